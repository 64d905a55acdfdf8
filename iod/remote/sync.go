package remote

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
)

// Sync implements iod.Data. When it returns without an error, all changes of the object that were
// acknowledged to this Remote before are on stable storage, and are not kept any longer.
func (r *Remote) Sync(ctx context.Context, t iod.Target) (iod.Mark, error) {
	mark, _, err := r.sync(ctx, &t, true)
	return mark, err
}

// syncTries is how often one Sync starts over because the server has lost its volatile state in
// between. Each restart takes longer than one Sync.
const syncTries = 32

// sync also tells whether it failed because the server tried and could not. A loss that was not
// reported yet is an error too; with last set it counts as reported, else it stays for the next
// Sync.
func (r *Remote) sync(ctx context.Context, t *iod.Target, last bool) (m iod.Mark, failed bool,
	err error) {
	srv := r.server(t.Server)
	for range syncTries {
		r.mu.Lock()
		upTo := r.order
		r.mu.Unlock()
		mark, conn, err := r.syncOnce(ctx, t)
		if err != nil && hard(err) {
			r.giveUp(srv, t, upTo)
			return mark, true, err
		}
		if err != nil {
			return mark, false, err
		}
		done, lost := r.synced(srv, t, conn, mark, upTo, last)
		if done {
			return mark, false, lost
		}
	}
	return iod.Mark{}, false, errs.Newf(errs.IO, "iod.Sync", serverName(t.Server),
		"lost its volatile state %d times", syncTries)
}

// syncOnce also returns the connection that the answer came by.
func (r *Remote) syncOnce(ctx context.Context, t *iod.Target) (iod.Mark, *msg.Conn, error) {
	c := r.take(iod.OpSync, t, &iod.Args{})
	defer r.put(c)
	if err := r.do(ctx, t, c); err != nil {
		return iod.Mark{}, c.conn, err
	}
	mark, err := iod.DecodeMark(c.rep.Body)
	return mark, c.conn, err
}

// hard tells whether a server has tried and failed: it is unknown what reached its disk, and
// sending the data again would not help.
func hard(err error) bool {
	switch errs.KindOf(err) {
	case errs.IO, errs.Corrupt, errs.NoSpace, errs.Fenced:
		return true
	}
	return false
}

// synced drops the changes that a sync has covered: those up to upTo that were acknowledged in the
// life that answered. It returns false if some of them were acknowledged in an earlier life. It
// also returns a loss that was not reported yet; with last set it counts as reported.
func (r *Remote) synced(srv *server, t *iod.Target, conn *msg.Conn, m iod.Mark, upTo uint64,
	last bool) (done bool, lost error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.heardLocked(srv, conn, m) {
		return false, nil
	}
	o := srv.objects[t.Object]
	if o == nil {
		return true, nil
	}
	o.users++
	done = true
	for k, next := o.first, (*kept)(nil); k != nil; k = next {
		next = k.next
		switch {
		case k.acked == 0 || k.acked > upTo:
		case k.life == srv.life:
			r.forgetLocked(k)
		default:
			done = false
		}
	}
	if done {
		lost = o.lost
	}
	if done && last {
		o.lost = nil
	}
	o.users--
	r.dropIfEmptyLocked(o)
	return done, lost
}

// giveUp drops the changes that a server could not sync.
func (r *Remote) giveUp(srv *server, t *iod.Target, upTo uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := srv.objects[t.Object]
	if o == nil {
		return
	}
	o.users++
	for k, next := o.first, (*kept)(nil); k != nil; k = next {
		next = k.next
		if k.acked != 0 && k.acked <= upTo && k.life == srv.life {
			r.counts.lost.Add(1)
			r.forgetLocked(k)
		}
	}
	o.users--
	r.dropIfEmptyLocked(o)
}

// SyncFile syncs every object of a file of which something is kept.
func (r *Remote) SyncFile(ctx context.Context, file uint64) error {
	return r.syncAll(ctx, r.holdObjects(func(o *object) bool { return o.id.File == file }))
}

// SyncAll syncs everything that is kept.
func (r *Remote) SyncAll(ctx context.Context) error {
	return r.syncAll(ctx, r.holdObjects(func(*object) bool { return true }))
}

func (r *Remote) holdObjects(want func(*object) bool) []*object {
	all := r.servers.Load()
	if all == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*object
	for _, s := range *all {
		for _, o := range s.objects {
			if o.count > 0 && want(o) {
				o.users++
				list = append(list, o)
			}
		}
	}
	return list
}

// atOnce is how many objects are synced at the same time: a server's disk can combine them.
const atOnce = 8

// round is a list of objects that are synced at the same time; it is reused.
type round struct {
	r    *Remote
	ctx  context.Context
	work func() // made once: share, on a goroutine
	wg   sync.WaitGroup

	mu    sync.Mutex
	list  []*object // that are not being synced yet
	first error
}

// syncAll syncs objects and releases them. It returns the first error.
func (r *Remote) syncAll(ctx context.Context, list []*object) error {
	x, ok := r.rounds.Get().(*round)
	if !ok {
		x = &round{r: r}
		x.work = func() {
			defer x.wg.Done()
			x.share()
		}
	}
	x.ctx, x.list = ctx, list
	for range min(atOnce, len(list)) - 1 {
		x.wg.Add(1)
		go x.work()
	}
	x.share()
	x.wg.Wait()
	first := x.first
	x.ctx, x.list, x.first = nil, nil, nil
	r.rounds.Put(x)
	return first
}

// share syncs objects of the list until none is left.
func (x *round) share() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.list) > 0 {
		o := x.list[0]
		x.list = x.list[1:]
		x.mu.Unlock()
		err := x.r.syncObject(x.ctx, o)
		x.r.release(o)
		x.mu.Lock()
		if x.first == nil {
			x.first = err
		}
	}
}

// syncObject syncs an object by the rights that are known for it, or fresh ones.
func (r *Remote) syncObject(ctx context.Context, o *object) error {
	for try := 0; ; try++ {
		r.mu.Lock()
		t := o.target
		r.mu.Unlock()
		_, failed, err := r.sync(ctx, &t, false)
		switch kind := errs.KindOf(err); {
		case kind == errs.Expired || kind == errs.Perm || kind == errs.Stale:
			if try >= renewTries {
				return err
			}
		case failed:
			r.reportLoss(o, err)
			return err
		case kind == errs.NotFound: // the object was removed, with its data
			return r.abandon(ctx, o)
		default:
			return err
		}
		_, rerr := r.renew(ctx, o)
		switch errs.KindOf(rerr) {
		case errs.OK:
		case errs.NotFound: // the file was removed, with its data
			return r.abandon(ctx, o)
		case errs.Unsupported:
			return err
		default:
			return rerr
		}
	}
}

// abandon drops all acknowledged writes of an object.
func (r *Remote) abandon(ctx context.Context, o *object) error {
	select {
	case o.replaying <- struct{}{}: // they are not replayed meanwhile
	case <-ctx.Done():
		return errs.Wrap("iod.Sync", "", ctx.Err())
	}
	defer func() { <-o.replaying }()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandonLocked(o)
	return nil
}

func (r *Remote) abandonLocked(o *object) {
	for k, next := o.first, (*kept)(nil); k != nil; k = next {
		next = k.next
		if k.acked != 0 {
			r.counts.superseded.Add(1)
			r.forgetLocked(k)
		}
	}
}

// sweepLocked syncs the oldest objects in the background when room or slots become scarce, before a
// write has to wait.
func (r *Remote) sweepLocked() {
	if r.sweeping || r.closed {
		return
	}
	r.sweeping = true
	r.workers.Add(1)
	go r.sweeper()
}

func (r *Remote) sweep() {
	defer r.workers.Done()
	for {
		list := r.oldest()
		if len(list) == 0 {
			return
		}
		r.counts.forced.Add(uint64(len(list)))
		err := r.syncAll(r.ctx, list)
		r.mu.Lock()
		r.stuck = err != nil
		if r.stuck {
			r.sweeping = false
			r.changed.WakeAll()
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

// oldest picks the objects of the oldest kept writes; none when there is room enough.
func (r *Remote) oldest() []*object {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.swept)
	list := r.swept[:0]
	if r.tight || r.memory.Used() > r.opts.RetainBytes/2 {
		for k := r.byAge.First(); k != nil && len(list) < atOnce; k = k.byAge.Next() {
			if k.acked != 0 && !k.obj.picked {
				k.obj.picked = true
				k.obj.users++
				list = append(list, k.obj)
			}
		}
	}
	for _, o := range list {
		o.picked = false
	}
	r.tight = false
	r.sweeping = len(list) > 0
	r.swept = list
	return list
}

// armLocked starts the timer that syncs old changes in the background: that frees memory, and less
// is lost if this process and a server die together.
func (r *Remote) armLocked() {
	if r.armed || r.closed {
		return
	}
	r.armed = true
	if r.timer == nil {
		r.timer = time.AfterFunc(r.opts.KeepMax, r.tick)
		return
	}
	r.timer.Reset(r.opts.KeepMax)
}

func (r *Remote) tick() {
	r.mu.Lock()
	r.armed = false
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.workers.Add(1)
	r.mu.Unlock()
	defer r.workers.Done()
	limit := r.now().Add(-r.opts.KeepMax)
	list := r.holdObjects(func(o *object) bool {
		return o.first.acked != 0 && o.first.since.Before(limit)
	})
	if err := r.syncAll(r.ctx, list); err != nil && r.ctx.Err() == nil {
		r.opts.Logger.Warn("unsynced writes are still kept here only", "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.byAge.Empty() {
		r.armLocked()
	}
}
