package client

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// unreachable is a cluster whose I/O servers a client cannot write to: it waits for them.
type unreachable struct {
	*cluster
	on atomic.Bool
}

func (u *unreachable) Write(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory,
	d stripe.Durability) (iod.Mark, error) {
	for u.on.Load() {
		if !wait.Sleep(ctx, time.Millisecond) {
			return iod.Mark{}, errs.Wrap("unreachable", "", ctx.Err())
		}
	}
	return u.cluster.Write(ctx, t, object, m, d)
}

// TestRecalledFileCannotMoveOut: a client has written to a small file that a second one opens for
// writing, and the I/O servers are full, or are away. The second one sees what the first one has
// written, and the first one keeps its leases.
func TestRecalledFileCannotMoveOut(t *testing.T) {
	for name, hinder := range map[string]func(*cluster, *unreachable){
		"full": func(c *cluster, _ *unreachable) {
			c.setHook(func(k call) error {
				if k.op == iod.OpWrite {
					return errs.New(errs.NoSpace, "double", "", nil)
				}
				return nil
			})
		},
		"away": func(_ *cluster, u *unreachable) { u.on.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			c := newCluster(t, 2, withLongLeases(store.Options{}))
			data := &unreachable{cluster: c}
			fs, err := New(c.service(), data, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
			must(t, err)
			defer func() { _ = fs.Close() }()
			listened(t, fs)
			other := c.client(Options{})
			f := createSmall(t, fs, "f", 2)
			write(t, f, []byte("first"), 0)
			hinder(c, data)
			epoch, start := fs.leases.current(), time.Now()
			w, err := other.OpenIno(ctx, *other.opts.Cred, f.Ino(), meta.OpenRead|meta.OpenWrite)
			must(t, err)
			if got := contents(t, w); string(got) != "first" {
				t.Errorf("the second client sees %q", got)
			}
			if d := time.Since(start); d > longLease/2 {
				t.Errorf("the second client has waited for %v, a lease is %v", d, longLease)
			}
			if fs.leases.current() != epoch {
				t.Error("the first client has lost all of its leases")
			}
			write(t, w, []byte("again"), 0)
			must(t, w.Close(ctx))
			data.on.Store(false)
			c.setHook(nil)
			if got := contents(t, f); string(got) != "again" {
				t.Errorf("the first client sees %q in the end", got)
			}
			must(t, f.Close(ctx))
		})
	}
}

// TestNothingIsMovedOutBehindATruncation: a small file was cut while it moves out, perhaps because
// its writer was taken for dead. Nothing is written under the truncation that came.
func TestNothingIsMovedOutBehindATruncation(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs := c.client(Options{})
	f := createSmall(t, fs, "f", 2)
	write(t, f, []byte("first"), 0)
	n := f.node
	n.mu.Lock()
	before := n.content
	n.truncSeq++
	n.mu.Unlock()
	var written atomic.Int32
	c.setHook(func(k call) error {
		if k.op == iod.OpWrite {
			written.Add(1)
		}
		return nil
	})
	err := f.spill(context.Background(), &before, nil)
	if errs.KindOf(err) != errs.Fenced || written.Load() != 0 {
		t.Fatalf("%d writes, error %v", written.Load(), err)
	}
}

// moveless is a service that a client cannot tell that a file has moved out.
type moveless struct {
	meta.Service
	on atomic.Bool
}

func (m *moveless) MoveOut(ctx context.Context, c meta.Caller, w meta.Change, version uint64) (
	meta.Attr, error) {
	if m.on.Load() {
		return meta.Attr{}, errs.New(errs.Disconnected, "moveless", "", nil)
	}
	return m.Service.MoveOut(ctx, c, w, version)
}

// TestHalfMovedFileIsCut: what a client has left at the I/O servers of a file that did not move out
// in the end does not come back when another one has made the file shorter and moves it out.
func TestHalfMovedFileIsCut(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := &moveless{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { _ = fs.Close() }()
	listened(t, fs)
	other := c.client(Options{})
	f := createSmall(t, fs, "f", 1)
	write(t, f, pattern(1000, 1), 0)
	svc.on.Store(true)
	w, err := other.OpenIno(ctx, *other.opts.Cred, f.Ino(), meta.OpenRead|meta.OpenWrite)
	must(t, err)
	must(t, w.Truncate(ctx, 10))
	must(t, other.moveOut(ctx, w))
	if a, err := fs.Stat(ctx, "/f"); err != nil || a.Size != 10 {
		t.Errorf("%d bytes, %v", a.Size, err)
	}
	write(t, w, []byte("x"), 99)
	want := append(pattern(1000, 1)[:10:10], make([]byte, 90)...)
	want[99] = 'x'
	if got := contents(t, w); !bytes.Equal(got, want) {
		t.Errorf("the file has %x", got)
	}
	must(t, w.Close(ctx))
	must(t, f.Close(ctx))
}

// TestRecallDoesNotWaitForOtherClosings: a client has closed a file that it has written, and closes
// others for a long time, as when it has to wait for another client. Who looks at the file does not
// wait for that.
func TestRecallDoesNotWaitForOtherClosings(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, withLongLeases(store.Options{}))
	fs, other := c.client(Options{}), c.client(Options{})
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	must(t, fs.endings.round.take(ctx))
	must(t, f.Close(ctx))
	start := time.Now()
	r, err := other.Open(ctx, "/f")
	must(t, err)
	if got := contents(t, r); string(got) != "content" {
		t.Errorf("the file has %q", got)
	}
	if d := time.Since(start); d > longLease/2 {
		t.Errorf("it took %v, a lease is %v", d, longLease)
	}
	fs.endings.round.giveBack()
	must(t, r.Close(ctx))
}

// TestGrowingFileIsRecalled: a program makes a small file longer than small files are, and the I/O
// servers are away. Another client that looks at the file sees what was there before, and does not
// wait for them; the first one keeps its leases, and goes on when they are back.
func TestGrowingFileIsRecalled(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 2, withLongLeases(store.Options{}))
	data := &unreachable{cluster: c}
	fs, err := New(c.service(), data, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { _ = fs.Close() }()
	listened(t, fs)
	other := c.client(Options{})
	f := createSmall(t, fs, "f", 2)
	write(t, f, []byte("first"), 0)
	data.on.Store(true)
	var grown sync.WaitGroup
	grown.Go(func() { write(t, f, pattern(meta.SmallMax, 1), 5) })
	epoch, seq := fs.leases.current(), f.node.sequence()
	for range 2 {
		eventually(t, func() bool {
			f.node.mu.Lock()
			defer f.node.mu.Unlock()
			return f.node.content.frozen
		})
		start := time.Now()
		a, err := other.Stat(ctx, "/f")
		if must(t, err); a.Size != 5 {
			t.Errorf("the other client sees %d bytes", a.Size)
		}
		if d := time.Since(start); d > longLease/2 {
			t.Errorf("the other client has waited for %v, a lease is %v", d, longLease)
		}
		time.Sleep(1100 * time.Millisecond) // otherwise who is recalled again moves it out, for a while
	}
	if fs.leases.current() != epoch {
		t.Error("the first client has lost all of its leases")
	}
	if f.node.sequence() == seq {
		t.Error("what was begun at the I/O servers is not fenced off")
	}
	data.on.Store(false)
	grown.Wait()
	want := append([]byte("first"), pattern(meta.SmallMax, 1)...)
	if !bytes.Equal(contents(t, f), want) {
		t.Error("the file has something else than what was written")
	}
	must(t, f.Close(ctx))
	if a, err := other.Stat(ctx, "/f"); err != nil || a.Size != 5+meta.SmallMax {
		t.Errorf("in the end there are %d bytes, %v", a.Size, err)
	}
}
