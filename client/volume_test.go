package client

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestDeposedVolumeWriter: who is taken over from while it writes is refused from then on, in its
// present session and in the next, and changes nothing that its successor has written.
func TestDeposedVolumeWriter(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	ctx := context.Background()
	a, b := c.client(Options{}), c.client(Options{})
	_, err := a.CreateVolume(ctx, "disk", 1<<20, unit, 3)
	must(t, err)
	f, _, err := a.OpenVolume(ctx, "disk", false)
	must(t, err)
	if f.Epoch() == 0 {
		t.Fatal("a writer without a generation")
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for p := pattern(6*unit, byte(i)); ; {
				if _, err := f.WriteAt(ctx, p, 0); err != nil {
					if errs.KindOf(err) != errs.Fenced {
						t.Errorf("a deposed writer hears: %v", err)
					}
					return
				}
			}
		})
	}
	v, err := b.HandOverVolume(ctx, "disk", true)
	if err != nil || v.Writer != "" {
		t.Fatalf("%v: %+v", err, v)
	}
	g, _, err := b.OpenVolume(ctx, "disk", false)
	must(t, err)
	want := pattern(6*unit, 99)
	write(t, g, want, 0)
	wg.Wait()
	must(t, g.Sync(ctx))
	if f.Epoch() >= g.Epoch() {
		t.Errorf("generations %d and %d", f.Epoch(), g.Epoch())
	}
	if err := f.Sync(ctx); err != nil && errs.KindOf(err) != errs.Fenced {
		t.Logf("sync of a deposed writer: %v", err)
	}
	must(t, a.replaceSession(ctx, a.sess.Load()))
	<-a.sess.Load().ready
	_, err = f.WriteAt(ctx, want[:unit], 0)
	if errs.KindOf(err) != errs.Fenced {
		t.Errorf("a deposed writer in its next session: %v", err)
	}
	got := make([]byte, len(want))
	if _, err := g.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the successor's bytes are gone: %v", err)
	}
	must(t, g.Close(ctx))
	_ = f.Close(ctx)
	g, _, err = a.OpenVolume(ctx, "disk", false) // as anybody else
	must(t, err)
	must(t, g.Close(ctx))
}

// TestVolumeWriterComesBack: who lost its session, and was not taken over from, goes on as what it
// was.
func TestVolumeWriterComesBack(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	ctx := context.Background()
	a := c.client(Options{})
	_, err := a.CreateVolume(ctx, "disk", 1<<20, unit, 2)
	must(t, err)
	f, _, err := a.OpenVolume(ctx, "disk", false)
	must(t, err)
	epoch := f.Epoch()
	write(t, f, pattern(2*unit, 1), 0)
	must(t, c.meta.EndSession(ctx, a.sess.Load().id))
	must(t, a.replaceSession(ctx, a.sess.Load()))
	<-a.sess.Load().ready
	write(t, f, pattern(2*unit, 2), 0)
	if f.Epoch() != epoch {
		t.Errorf("generation %d, and %d before", f.Epoch(), epoch)
	}
	must(t, f.Close(ctx))
}

// TestVolumeGrowsInUse: its users hear of it, and write to the new part.
func TestVolumeGrowsInUse(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	ctx := context.Background()
	a, b := c.client(Options{}), c.client(Options{})
	v, err := a.CreateVolume(ctx, "disk", 4*unit, unit, 2)
	must(t, err)
	f, _, err := a.OpenVolume(ctx, "disk", false)
	must(t, err)
	if _, err := f.WriteAt(ctx, make([]byte, unit), 4*unit); errs.KindOf(err) != errs.TooBig {
		t.Fatalf("a write behind the end: %v", err)
	}
	_, err = b.ResizeVolume(ctx, "disk", 8*unit, false)
	must(t, err)
	now, err := a.AwaitVolume(ctx, "disk", v.State())
	for err == nil && now.Size == v.Size {
		now, err = a.AwaitVolume(ctx, "disk", now.State())
	}
	must(t, err)
	f.Grow(now.Size)
	write(t, f, pattern(2*unit, 3), 6*unit)
	must(t, f.Close(ctx))
}

// TestCopyVolume: bytes and holes are as in the source, also where the copy was begun before and
// holds something else.
func TestCopyVolume(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	ctx := context.Background()
	a := c.client(Options{})
	const size = 6<<20 + 4096
	open := func(name string) *File {
		_, err := a.CreateVolume(ctx, name, size, 1<<20, 3)
		must(t, err)
		f, _, err := a.OpenVolume(ctx, name, false)
		must(t, err)
		return f
	}
	src, dst, old := open("src"), open("dst"), open("old")
	want := make([]byte, size)
	for off, p := range map[int64][]byte{100: pattern(5000, 1), 1<<20 - 10: pattern(300_000, 2),
		5 << 20: make([]byte, 256<<10), size - 4096: pattern(4096, 3)} {
		write(t, src, p, off)
		copy(want[off:], p)
	}
	write(t, old, pattern(2<<20, 7), 1<<19)
	write(t, old, want[:300_000], 0)
	var seen, expected atomic.Int64
	for name, f := range map[string]*File{"new": dst, "begun": old} {
		did, err := CopyVolume(ctx, f, src, VolumeCopy{Resume: f == old,
			Expect: func(n int64) { expected.Add(n) }, Moved: func(n int64) { seen.Add(n) }})
		must(t, err)
		got := make([]byte, size)
		if _, err := f.ReadAt(ctx, got, 0); err != nil && err != io.EOF || !bytes.Equal(got, want) {
			t.Errorf("%s: the copy differs: %v", name, err)
		}
		if did.Written >= size/2 || did.Data == 0 || seen.Load() != expected.Load() {
			t.Errorf("%s: %+v, and told of %d of %d bytes", name, did, seen.Load(), expected.Load())
		}
		list, err := f.Map(ctx, 4<<20, 1<<20)
		if err != nil || len(list) != 1 || !list[0].Hole {
			t.Errorf("%s: a hole was filled: %v %+v", name, err, list)
		}
	}
	small := open("small")
	_, err := a.CreateVolume(ctx, "tiny", 4096, 1<<20, 1)
	must(t, err)
	tiny, _, err := a.OpenVolume(ctx, "tiny", false)
	must(t, err)
	if _, err := CopyVolume(ctx, tiny, small, VolumeCopy{}); errs.KindOf(err) != errs.TooBig {
		t.Errorf("into a smaller one: %v", err)
	}
}
