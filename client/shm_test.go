package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
)

// dialNear is a client with memory that servers may be let into.
func (w *wired) dialNear(buffers int) *FS {
	t := w.t
	t.Helper()
	arenas := shm.NewArenas()
	near, err := shm.Open(shm.Options{Arenas: arenas})
	must(t, err)
	t.Cleanup(func() { must(t, near.Close()) })
	fs, err := Dial(context.Background(), "sluice://"+w.addr, Options{
		Providers: &peer.Providers{Domains: []fabric.Domain{near, w.domain}, Memory: arenas},
		Buffers:   buffers,
		WaitMax:   30 * time.Second, Cred: &meta.Cred{}})
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	return fs
}

// TestSharedMemory writes and reads random ranges and lists from memory of both kinds, against a
// model, with more at once than there are buffers for.
func TestSharedMemory(t *testing.T) {
	w := newWiredBy(t, 4, true)
	fs := w.dialNear(buffersMin)
	ctx := context.Background()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(worker)))
			f, err := fs.Create(ctx, fmt.Sprintf("/f%d", worker))
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close(ctx)
			model := make([]byte, 6<<20)
			for i := range 25 {
				if err := shmStep(ctx, fs, f, model, rng); err != nil {
					t.Errorf("worker %d, step %d: %v", worker, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if fs.buffers.arena == nil {
		t.Fatal("no buffers were made")
	}
	if st := fs.buffers.zones.Stats(); st.Waiting != 0 || inUse(&st) != 0 {
		t.Errorf("buffers are still out: %+v", st)
	}
}

func inUse(st *mem.ZonesStats) (n int) {
	for _, c := range st.Class {
		n += c.InUse
	}
	return n
}

// shmStep does one random thing to a file and its model.
func shmStep(ctx context.Context, fs *FS, f *File, model []byte, rng *rand.Rand) error {
	off := rng.IntN(len(model) - 1)
	n := 1 + rng.IntN(min(len(model)-off, 1<<(8+rng.IntN(15))))
	want := model[off : off+n]
	own := fs.TryTake(n)
	p := make([]byte, n)
	if own != nil && rng.IntN(2) == 0 {
		p = own.Bytes()[:n]
	}
	defer func() {
		if own != nil {
			own.Return()
		}
	}()
	a := seg.Contig(int64(off), int64(n))
	bufs := [][]byte{p[:n/3], p[n/3:]}
	var err error
	switch rng.IntN(4) {
	case 0:
		fill(p, rng)
		copy(want, p)
		_, err = f.WriteAt(ctx, p, int64(off))
		return err
	case 1:
		fill(p, rng)
		copy(want, p)
		_, err = f.WriteList(ctx, bufs, a)
		return err
	case 2:
		_, err = f.ReadAt(ctx, p, int64(off))
	case 3:
		_, err = f.ReadList(ctx, bufs, a)
	}
	size := f.Size()
	known := min(max(size-int64(off), 0), int64(n)) // behind the end nothing is read
	if err != nil && int64(off+n) <= size {
		return err
	}
	if !bytes.Equal(p[:known], want[:known]) {
		return fmt.Errorf("%d bytes at %d differ", n, off)
	}
	return nil
}

func fill(p []byte, rng *rand.Rand) {
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
}

// TestBuffersOfATCPClient: a client that has tcp alone takes none, others no more than they may.
func TestBuffersOfATCPClient(t *testing.T) {
	w := newWired(t, 1)
	if b := w.dial("").TryTake(100); b != nil {
		t.Error("a buffer that is of no use to anybody")
	}
	fs := w.dialNear(buffersMin)
	if fs.TryTake(0) != nil || fs.TryTake(64<<20) != nil {
		t.Error("a buffer that cannot be")
	}
	var got []*Buffer
	for b := fs.TryTake(1 << 20); b != nil; b = fs.TryTake(1 << 20) {
		got = append(got, b)
	}
	if len(got) == 0 || len(got) > buffersMin>>20 {
		t.Errorf("%d buffers of 1 MiB out of %d bytes", len(got), buffersMin)
	}
	for _, b := range got {
		b.Return()
	}
	_, err := Dial(t.Context(), "sluice://"+w.addr, Options{Providers: w.far(), Buffers: 1})
	if errs.KindOf(err) != errs.Invalid {
		t.Errorf("too few buffers: %v", err)
	}
}

// TestPrepare makes the buffers once, whoever asks for them first, and a client may be closed
// meanwhile.
func TestPrepare(t *testing.T) {
	w := newWired(t, 1)
	w.dial("").Prepare() // it has none
	for i := range 20 {
		fs := w.dialNear(buffersMin)
		fs.Prepare()
		fs.Prepare()
		if i%2 == 0 {
			continue
		}
		b := fs.TryTake(100)
		if b == nil {
			t.Fatal("no buffer after all")
		}
		b.Return()
		if s := fs.buffers.arena.Stats(); s.Bytes < buffersMin {
			t.Fatalf("%d bytes", s.Bytes)
		}
	}
}

// BenchmarkFile compares ways and kinds of memory. cpu-us/op is what both sides cost together,
// which other programs on the host hardly change.
func BenchmarkFile(b *testing.B) {
	for _, way := range []string{"tcp", "shm", "shm-buffer"} {
		w := newWiredBy(b, 1, true)
		fs := w.dialNear(32 << 20)
		if way == "tcp" {
			fs = w.dial("")
		}
		f, err := fs.Create(context.Background(), "/f")
		must(b, err)
		for _, size := range []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			p := make([]byte, size)
			if way == "shm-buffer" {
				buf := fs.TryTake(size)
				p = buf.Bytes()[:size]
				defer buf.Return()
			}
			for name, op := range map[string]func(context.Context, []byte, int64) (int, error){
				"write": f.WriteAt, "read": f.ReadAt} {
				b.Run(fmt.Sprintf("%s/%s/%dK", name, way, size>>10), func(b *testing.B) {
					b.SetBytes(int64(size))
					_, err := f.WriteAt(context.Background(), make([]byte, 1<<20), 0)
					must(b, err)
					before := cpuTime()
					for b.Loop() {
						if _, err := op(context.Background(), p, 0); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
				})
			}
		}
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestLentReads: what a server on this host has in its cache is copied once, into whatever memory
// it is read to. That copy is the provider's and not counted.
func TestLentReads(t *testing.T) {
	w := newWiredBy(t, 2, true)
	fs := w.dialNear(buffersMin)
	ctx := context.Background()
	f, err := fs.Create(ctx, "/lent")
	must(t, err)
	defer f.Close(ctx)
	want := make([]byte, 4<<20)
	fill(want, rand.New(rand.NewPCG(1, 2)))
	_, err = f.WriteAt(ctx, want, 0)
	must(t, err)
	must(t, f.Sync(ctx))
	got := make([]byte, len(want))
	whole := seg.Contig(0, int64(len(want)))
	for name, read := range map[string]func() error{
		"at": func() error {
			_, err := f.ReadAt(ctx, got, 0)
			return err
		},
		"list": func() error {
			_, err := f.ReadList(ctx, [][]byte{got[:3<<20], got[3<<20:]}, whole)
			return err
		},
	} {
		must(t, read()) // what is not lent yet is lent by then
		clear(got)
		before := mem.Copied()
		must(t, read())
		if n := mem.Copied() - before; n > 0 {
			t.Errorf("%s: %d bytes were copied besides", name, n)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes than were written", name)
		}
	}
}
