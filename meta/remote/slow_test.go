package remote_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/hook/fault"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// slow is a service that holds one kind of operation back.
type slow struct {
	msg.Handler
	op   meta.Op
	held atomic.Int32
	free chan struct{} // closed when they may go on
}

func (s *slow) Serve(ctx context.Context, c *msg.Call) {
	if c.Header().Op == uint16(s.op) {
		s.held.Add(1)
		select {
		case <-s.free:
		case <-ctx.Done():
		}
	}
	s.Handler.Serve(ctx, c)
}

func (s *slow) await(t *testing.T, n int32) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.held.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d operations are held, want %d", s.held.Load(), n)
		}
	}
}

// rig is a client of a slow service over tcp.
type rig struct {
	*slow
	*remote.Service
	pool   *peer.Pool
	faults *fault.Domain // that the client's connections go by
	dials  atomic.Int32
}

func newSlow(t *testing.T, op meta.Op, opt remote.Options, near msg.Options) *rig {
	t.Helper()
	engine := memkv.New(memkv.Options{})
	s := must(store.New(context.Background(), engine,
		store.Options{Objects: metatest.NewObjects(), HeartbeatMax: time.Hour}))
	far := must(tcp.Open(tcp.Options{Linger: 50 * time.Millisecond}))
	farNode := must(msg.NewNode(msg.Options{Domain: far}))
	h := must(server.New(s, server.Options{Node: farNode}))
	r := &rig{slow: &slow{Handler: h, op: op, free: make(chan struct{})}}
	srv := must(farNode.Serve("127.0.0.1:0", r.slow, msg.ServeOptions{}))
	domain := must(tcp.Open(tcp.Options{Linger: 50 * time.Millisecond}))
	r.faults = fault.New(domain, fault.Options{})
	near.Domain = r.faults
	node := must(msg.NewNode(near))
	r.pool = peer.NewPool(node, func(context.Context, uint32) (string, error) {
		r.dials.Add(1)
		return srv.Addr(), nil
	})
	opt.Pool, opt.Node = r.pool, node
	t.Cleanup(func() {
		_ = r.pool.Close()
		_ = node.Close()
		_ = r.faults.Close()
		_ = farNode.Close()
		_ = far.Close()
		s.Stop()
		_ = engine.Close()
	})
	r.Service = must(remote.New(opt))
	return r
}

// makeDirs begins n directories at once; the result tells which failed.
func (r *rig) makeDirs(ctx context.Context, n int) func() []error {
	failed := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, failed[i] = r.Make(ctx, meta.Caller{}, meta.RootIno, fmt.Sprint("d", i),
				meta.NewFile{Type: meta.Directory})
		})
	}
	return func() []error { wg.Wait(); return failed }
}

// TestSlowOperationsAreWaitedFor: they take longer than a peer may be silent, and than a call
// without a deadline may take; the connection that they share with others stays, and what goes on
// there meanwhile is not disturbed.
func TestSlowOperationsAreWaitedFor(t *testing.T) {
	r := newSlow(t, meta.OpMake, remote.Options{WaitMax: peer.Forever},
		msg.Options{KeepAlive: 50 * time.Millisecond, PeerTimeout: 5 * time.Second,
			CallTimeout: 300 * time.Millisecond})
	made := r.makeDirs(t.Context(), 4)
	r.await(t, 4)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if _, err := r.Lookup(t.Context(), meta.Caller{}, meta.RootIno, "."); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	close(r.free)
	for _, err := range made() {
		if err != nil {
			t.Error(err)
		}
	}
	if n := r.dials.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

// TestLostConnectionsAreADelay: when a connection breaks that calls share, they are repeated on the
// next one, and done once: a second Make of a name would fail with errs.Exists.
func TestLostConnectionsAreADelay(t *testing.T) {
	r := newSlow(t, meta.OpMake, remote.Options{}, msg.Options{})
	made := r.makeDirs(t.Context(), 4)
	r.await(t, 4)
	for range 3 {
		n := r.held.Load()
		if r.faults.Break("") == 0 {
			t.Fatal("there is no connection to break")
		}
		r.await(t, n+4)
	}
	close(r.free)
	for _, err := range made() {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestPatienceEnds with the error that is promised, and at once where the caller gives up.
func TestPatienceEnds(t *testing.T) {
	r := newSlow(t, meta.OpMake, remote.Options{WaitMax: 200 * time.Millisecond}, msg.Options{})
	defer close(r.free)
	for _, err := range r.makeDirs(t.Context(), 2)() {
		if errs.KindOf(err) != errs.TimedOut {
			t.Error(err)
		}
	}
	if n := r.dials.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := r.held.Load()
	made := r.makeDirs(ctx, 1)
	r.await(t, n+1)
	cancel()
	if err := made()[0]; errs.KindOf(err) != errs.Canceled {
		t.Error(err)
	}
}
