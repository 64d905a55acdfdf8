package store

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// upkeep is what checks and dumps keep between their pages.
type upkeep struct {
	turn chan struct{} // one token: who has it does a step of the check

	mu    sync.Mutex
	views map[uint64]*view
	run   *checkRun
	over  bool // the service ends
}

// view is a snapshot that several requests read.
type view struct {
	snap  kv.Snapshot
	used  time.Time
	users int  // requests that read it now
	ended bool // its last page was asked for: it is there to be repeated, or to make room
}

func newUpkeep() *upkeep {
	x := &upkeep{turn: make(chan struct{}, 1), views: map[uint64]*view{}}
	x.turn <- struct{}{}
	return x
}

// upkeepLoop lets go of what nobody asked for any more, and of everything at the end: snapshots
// keep the engine from reclaiming space.
func (s *Store) upkeepLoop(ctx context.Context) {
	s.loop(ctx, nil, true, func() bool {
		s.upkeep.expire(time.Now().Add(-meta.UpkeepIdle), false)
		return false
	})
	s.upkeep.expire(time.Now(), true)
	s.upkeep.endIfOver()
}

// expire ends views that were not used since a moment, and the run if nobody is at it.
func (x *upkeep) expire(since time.Time, over bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = x.over || over
	for id, v := range x.views {
		if v.users == 0 && (over || v.used.Before(since)) {
			delete(x.views, id)
			_ = v.snap.Close() // nothing is lost with it
		}
	}
	if x.run == nil || over || !x.run.used.Before(since) {
		return
	}
	select {
	case <-x.turn:
		x.run.close()
		x.run = nil
		x.turn <- struct{}{}
	default:
	}
}

// endRun ends the run, if there is one. The caller has the turn.
func (x *upkeep) endRun() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.run != nil {
		x.run.close()
		x.run = nil
	}
}

// take finds a view, or begins one; it must be put back.
func (x *upkeep) take(id uint64, begin bool, snapshot func() kv.Snapshot) (*view, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.views[id]
	if v == nil && begin && len(x.views) >= meta.ViewsMax {
		x.makeRoomLocked()
	}
	switch {
	case x.over:
		return nil, errs.New(errs.Shutdown, "meta.view", "", nil)
	case v != nil:
	case !begin:
		return nil, errs.Newf(errs.Stale, "meta.view", "", "the view is not known: begin another one")
	case len(x.views) >= meta.ViewsMax:
		return nil, errs.Newf(errs.Busy, "meta.view", "", "%d views are open already", len(x.views))
	default:
		v = &view{snap: snapshot()}
		x.views[id] = v
	}
	v.users++
	return v, nil
}

// makeRoomLocked lets go of views that were read to their end.
func (x *upkeep) makeRoomLocked() {
	for id, v := range x.views {
		if v.ended && v.users == 0 {
			delete(x.views, id)
			_ = v.snap.Close() // nothing is lost with it
		}
	}
}

// put gives a view back; ended says that its last page was read.
func (x *upkeep) put(id uint64, v *view, ended bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v.users--
	v.used = time.Now()
	v.ended = v.ended || ended
	if v.users == 0 && x.over {
		delete(x.views, id)
		_ = v.snap.Close()
	}
}

// mayMaintain tells whether the caller may look at everything.
func (t *txn) mayMaintain(c *meta.Cred) error {
	if isRoot(c) {
		return nil
	}
	n, err := t.inode(meta.RootIno)
	if err != nil {
		return err
	}
	if !isOwner(c, n) {
		return errs.Newf(errs.Perm, "meta.upkeep", "", "only root and the owner of / may")
	}
	return nil
}
