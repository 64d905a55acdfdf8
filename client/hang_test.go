package client

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// paused is a service as a client sees it that is stopped now and then, as by SIGSTOP: nothing of
// the client reaches it, and nothing reaches the client.
type paused struct {
	meta.Service

	mu   sync.Mutex
	gate chan struct{} // closed: it goes on
}

func newPaused(svc meta.Service) *paused {
	p := &paused{Service: svc, gate: make(chan struct{})}
	close(p.gate)
	return p
}

func (p *paused) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
}

func (p *paused) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gate)
}

func (p *paused) pass(ctx context.Context) {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
	}
}

func (p *paused) Listen(ctx context.Context, l meta.Listening) (meta.Heard, error) {
	p.pass(ctx)
	h, err := p.Service.Listen(ctx, l)
	p.pass(ctx)
	return h, err
}

func (p *paused) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	p.pass(ctx)
	return p.Service.Commit(ctx, c, w, sync)
}

func (p *paused) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	p.pass(ctx)
	return p.Service.CloseMany(ctx, c, list)
}

func (p *paused) Find(ctx context.Context, c meta.Caller, dir meta.Ino, name string) (
	meta.Found, error) {
	p.pass(ctx)
	return p.Service.Find(ctx, c, dir, name)
}

// hangLease is the lease time of these tests, and hangMore what a busy host may add.
const (
	hangLease = 500 * time.Millisecond
	hangMore  = 10 * time.Second
)

// hanging is a cluster with a client that can be stopped, and another one.
func hanging(t *testing.T) (*paused, *FS, *FS) {
	t.Helper()
	c := newCluster(t, 2, store.Options{LeaseTime: hangLease})
	svc := newPaused(c.service())
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	listened(t, fs)
	other := c.client(Options{})
	listened(t, other)
	return svc, fs, other
}

// took runs fn and fails if it took longer than a lease and what the host adds, or not even most of
// a lease.
func took(t *testing.T, what string, fn func()) {
	t.Helper()
	start := time.Now()
	fn()
	if d := time.Since(start); d > hangLease+hangMore || d < hangLease/2 {
		t.Errorf("%s took %v, the lease is %v", what, d, hangLease)
	}
}

// TestHolderHangs: others wait for a lease, not for the client that holds one; when it is back it
// answers nothing that is not true any more, and what it wrote under a lease that somebody else has
// taken over is reported as lost.
func TestHolderHangs(t *testing.T) {
	ctx := context.Background()
	svc, fs, other := hanging(t)
	touch(t, fs, "/name")
	f, err := fs.Create(ctx, "/small")
	must(t, err)
	_, err = f.WriteAt(ctx, []byte("first"), 0)
	must(t, err)
	must(t, f.Sync(ctx))
	_, err = fs.Stat(ctx, "/name")
	must(t, err)
	_, err = f.WriteAt(ctx, []byte("second"), 0)
	must(t, err)

	svc.stop()
	took(t, "removing a name", func() { must(t, other.Remove(ctx, "/name")) })
	w, err := other.OpenFile(ctx, "/small", os.O_RDWR, 0)
	must(t, err)
	got := make([]byte, 5)
	if _, err := w.ReadAt(ctx, got, 0); err != nil || string(got) != "first" {
		t.Errorf("what was synced is %q, %v", got, err)
	}
	_, err = w.WriteAt(ctx, []byte("other"), 0)
	must(t, err)
	must(t, w.Sync(ctx))
	must(t, w.Close(ctx))
	svc.resume()

	if _, err := fs.Stat(ctx, "/name"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("a name that was removed meanwhile: %v", err)
	}
	if err := f.Sync(ctx); errs.KindOf(err) != errs.IO {
		t.Errorf("what was written under a lease that is gone: %v", err)
	}
	if _, err := f.ReadAt(ctx, got, 0); err != nil || string(got) != "other" {
		t.Errorf("the file shows %q, %v", got, err)
	}
	must(t, f.Close(ctx))
}

// TestHolderComesBack: a client that was stopped for longer than its leases, while nobody wanted
// anything of it, loses nothing.
func TestHolderComesBack(t *testing.T) {
	ctx := context.Background()
	svc, fs, other := hanging(t)
	f, err := fs.Create(ctx, "/small")
	must(t, err)
	_, err = f.WriteAt(ctx, []byte("before"), 0)
	must(t, err)
	svc.stop()
	time.Sleep(2 * hangLease)
	svc.resume()
	_, err = f.WriteAt(ctx, []byte(" and after"), 6)
	must(t, err)
	must(t, f.Close(ctx))
	r, err := other.Open(ctx, "/small")
	must(t, err)
	got := make([]byte, 16)
	if _, err := r.ReadAt(ctx, got, 0); err != nil || string(got) != "before and after" {
		t.Errorf("the file shows %q, %v", got, err)
	}
	must(t, r.Close(ctx))
}

// TestRemovedWhileLocal: a small file that was opened without asking anybody stays readable when
// another client removes it, and when this one does.
func TestRemovedWhileLocal(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 2, store.Options{})
	fs, other := c.client(Options{}), c.client(Options{})
	listened(t, fs)
	for _, remover := range []*FS{fs, other} {
		w, err := other.Create(ctx, "/f")
		must(t, err)
		_, err = w.WriteAt(ctx, []byte("content"), 0)
		must(t, err)
		must(t, w.Close(ctx))
		_, err = fs.Stat(ctx, "/f")
		must(t, err)
		r, err := fs.Open(ctx, "/f")
		must(t, err)
		if r.grant.Load().handle != 0 {
			t.Error("opening a small file that is known asked the service")
		}
		must(t, remover.Remove(ctx, "/f"))
		got := make([]byte, 7)
		if _, err := r.ReadAt(ctx, got, 0); err != nil || string(got) != "content" {
			t.Errorf("a removed file shows %q, %v", got, err)
		}
		if a, err := r.Stat(ctx); err != nil || a.Nlink != 0 || a.Size != 7 {
			t.Errorf("a removed file: %d links, %d bytes, %v", a.Nlink, a.Size, err)
		}
		must(t, r.Close(ctx))
	}
}

// TestLostWhileLocal: a client has lost its leases, and has a small file open that it has opened
// without asking anybody. When another one removes the file later it stays readable.
func TestLostWhileLocal(t *testing.T) {
	for try := 0; !lostWhileLocal(t); try++ {
		if try == 20 {
			t.Fatal("the session was lost each time, too")
		}
	}
}

// lostWhileLocal tries it. false: on a busy machine the session was lost besides the leases.
func lostWhileLocal(t *testing.T) bool {
	t.Helper()
	ctx := context.Background()
	svc, fs, other := hanging(t)
	touch(t, fs, "/lost")
	w, err := other.Create(ctx, "/f")
	must(t, err)
	write(t, w, []byte("content"), 0)
	must(t, w.Close(ctx))
	var r *File
	eventually(t, func() bool { // a busy machine may lose its leases before that
		_, err := fs.Stat(ctx, "/lost")
		must(t, err)
		_, err = fs.Stat(ctx, "/f")
		must(t, err)
		r, err = fs.Open(ctx, "/f")
		must(t, err)
		if r.grant.Load().handle != 0 {
			must(t, r.Close(ctx))
			return false
		}
		return true
	})
	epoch, s := fs.leases.current(), fs.sess.Load()
	svc.stop()
	must(t, other.Remove(ctx, "/lost"))
	svc.resume()
	eventually(t, func() bool { return fs.leases.current() != epoch })
	if fs.sess.Load() != s {
		_ = r.Close(ctx) // of a session that is no more
		return false
	}
	eventually(t, func() bool { return r.grant.Load().handle != 0 })
	must(t, other.Remove(ctx, "/f"))
	if got := contents(t, r); string(got) != "content" {
		t.Errorf("the removed file shows %q", got)
	}
	must(t, r.Close(ctx))
	return true
}

// TestRemovedWhileClosing: a file is removed at the moment at which a handle that nobody but this
// client knows of is being closed.
func TestRemovedWhileClosing(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs, ctx := c.client(Options{}), context.Background()
	touch(t, fs, "/f")
	f, err := fs.Open(ctx, "/f")
	must(t, err)
	if g := f.grant.Load(); g.handle != 0 {
		t.Fatalf("the service knows of handle %d", g.handle)
	}
	f.mu.Lock()
	f.closed = true // Close has begun
	f.mu.Unlock()
	must(t, fs.Remove(ctx, "/f"))
	f.endHandle(ctx, false, nil)
}
