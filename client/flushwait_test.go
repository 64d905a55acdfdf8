package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// slowCommit is a service that keeps one Commit for a while. Then it fails, if it is to.
type slowCommit struct {
	meta.Service
	on   atomic.Bool
	came chan struct{}
	goOn chan error
}

func newSlowCommit(svc meta.Service) *slowCommit {
	return &slowCommit{Service: svc, came: make(chan struct{}), goOn: make(chan error)}
}

func (s *slowCommit) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	if s.on.Swap(false) {
		close(s.came)
		select {
		case err := <-s.goOn:
			if err != nil {
				return meta.Attr{}, err
			}
		case <-ctx.Done():
			return meta.Attr{}, errs.Wrap("slowCommit", "", ctx.Err())
		}
	}
	return s.Service.Commit(ctx, c, w, sync)
}

// TestFlushWaitsForWhoTells: a program syncs a file when it is to be told by itself, and that fails
// for the moment. What was written is told nevertheless, without the program asking again.
func TestFlushWaitsForWhoTells(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, withLongLeases(store.Options{}))
	svc := newSlowCommit(c.service())
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	svc.on.Store(true)
	write(t, f, []byte("content"), 0)
	synced := make(chan error, 1)
	go func() { synced <- f.Sync(ctx) }()
	<-svc.came
	eventually(t, func() bool {
		fs.flushing.mu.Lock()
		defer fs.flushing.mu.Unlock()
		return len(fs.flushing.nodes) == 0 // it has its turn
	})
	time.Sleep(100 * time.Millisecond)
	svc.goOn <- errs.New(errs.Disconnected, "slowCommit", "", nil)
	if err := <-synced; errs.KindOf(err) != errs.Disconnected {
		t.Errorf("Sync: %v", err)
	}
	eventually(t, func() bool { return !f.node.untold() })
	must(t, f.Close(ctx))
}

// TestFlushingHoldsWhatItLists: whoever takes a file out of those that are to be told finds it with
// a reference.
func TestFlushingHoldsWhatItLists(t *testing.T) {
	q, n := newFlushing(), &inode{}
	n.mu.Lock()
	done := make(chan struct{})
	go func() { defer close(done); q.put(n) }()
	for range 50 {
		time.Sleep(time.Millisecond)
		q.mu.Lock()
		if len(q.nodes) > n.refs {
			t.Error("it is listed without a reference")
		}
		q.mu.Unlock()
		if t.Failed() {
			break
		}
	}
	n.mu.Unlock()
	<-done
	q.put(n)
	if got := q.take(); len(got) != 1 || n.refs != 1 {
		t.Errorf("%d files with %d references", len(got), n.refs)
	}
}
