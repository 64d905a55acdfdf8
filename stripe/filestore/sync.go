package filestore

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"golang.org/x/sys/unix"
)

// group lets concurrent syncs of one object share a system call. Runs are numbered; a run covers
// every change that was acknowledged before it started.
type group struct {
	mu       sync.Mutex
	started  uint64
	finished uint64
	done     chan struct{} // of the run under way, nil when none is
}

// flush returns when every change to the object that was acknowledged before is stable. The
// caller holds o.mu, shared or exclusively.
func (s *Store) flush(ctx context.Context, o *object) error {
	g := &o.group
	g.mu.Lock()
	// dirty is cleared when a run starts, so that a clean object is covered by the last one.
	want := g.started
	if o.dirty.Load() {
		want++
	}
	for g.finished < want {
		if g.done == nil {
			s.runLocked(g, o)
			continue
		}
		done := g.done
		g.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return errs.Wrap("filestore.Sync", "object "+o.id.String(), ctx.Err())
		}
		g.mu.Lock()
	}
	g.mu.Unlock()
	return s.writable("filestore.Sync")
}

// runLocked makes one run, without the lock. A failure is the store's: every waiter asks
// writable.
func (s *Store) runLocked(g *group, o *object) {
	g.started++
	run := g.started
	g.done = make(chan struct{})
	o.dirty.Store(false)
	g.mu.Unlock()
	s.syncFile(o)
	g.mu.Lock()
	g.finished = run
	close(g.done)
	g.done = nil
}

// syncFile makes the file stable, and its directory entry if the file is new: a file that a
// crash leaves without a name holds nobody's data.
func (s *Store) syncFile(o *object) {
	if o.state != present || s.broken.Load() != nil {
		return
	}
	err := s.step("fdatasync", o.path)
	if err == nil {
		err = again(func() error { return unix.Fdatasync(o.fd) })
	}
	if err != nil {
		s.fail("fdatasync", o.path, err)
		return
	}
	if !o.newborn {
		return
	}
	if s.syncDirOf(o) == nil {
		o.newborn = false
	}
}

func (s *Store) syncDirOf(o *object) error {
	dir := filepath.Dir(o.path)
	err := s.step("fsync", dir)
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return s.fail("fsync", dir, err)
	}
	return nil
}

// Sync implements stripe.Store. An object that is not in the table is stable.
func (s *Store) Sync(ctx context.Context, id stripe.ObjectID) error {
	const op = "filestore.Sync"
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, "", err)
	}
	if err := s.begin(op); err != nil {
		return err
	}
	defer s.end()
	if id == (stripe.ObjectID{}) {
		return s.syncAll(ctx)
	}
	if err := s.fences.check(op, id); err != nil {
		return err
	}
	if o := s.table.peek(id); o != nil {
		return s.syncOne(ctx, o)
	}
	return s.writable(op)
}

// syncOne flushes an object and gives its reference back.
func (s *Store) syncOne(ctx context.Context, o *object) error {
	defer s.table.release(o)
	o.mu.RLock()
	defer o.mu.RUnlock()
	return s.flush(ctx, o)
}

// syncAll flushes all objects in the table, a few at a time: the file system merges their
// commits.
func (s *Store) syncAll(ctx context.Context) error {
	const lanes = 8
	// A run under way may not be finished, so that clean objects are asked as well.
	all := s.table.pick(func(*object) bool { return true })
	next := make(chan *object)
	errc := make(chan error, lanes)
	for range lanes {
		go func() {
			var first error
			for o := range next {
				if err := s.syncOne(ctx, o); first == nil {
					first = err
				}
			}
			errc <- first
		}()
	}
	for _, o := range all {
		next <- o
	}
	close(next)
	err := s.writable("filestore.Sync")
	for range lanes {
		if e := <-errc; err == nil {
			err = e
		}
	}
	return err
}
