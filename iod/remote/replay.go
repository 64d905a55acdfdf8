package remote

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
)

// Every answer of a server carries its verifier, which identifies the life of its volatile state. A
// connection does not outlive the server's process; so while changes are kept for a server, the
// verifier is asked for on every new connection first. If it has changed, the kept changes of each
// object are replayed: sent again, in their order and under their numbers, before any other request
// for that object. The server recognises by their numbers those that it still has; by the life in
// which a change was acknowledged first it refuses one that would overwrite a later change.

// ensure finds out in which life of its server a connection is.
func (r *Remote) ensure(ctx context.Context, srv *server, conn *msg.Conn) error {
	if srv.conn.Load() == conn {
		return nil
	}
	select {
	case srv.probing <- struct{}{}:
	case <-ctx.Done():
		return errs.Wrap("iod.Call", "", ctx.Err())
	}
	defer func() { <-srv.probing }()
	if srv.conn.Load() == conn || r.adopt(srv, conn) {
		return nil
	}
	c := r.take(iod.OpStatus, &iod.Target{Server: srv.id}, &iod.Args{})
	defer r.put(c)
	if err := conn.Call(ctx, &c.req, &c.rep); err != nil {
		return err
	}
	st, err := iod.DecodeStatus(c.rep.Body)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if st.Verifier != srv.verifier.Load() {
		r.changeLocked(srv, st.Verifier)
	}
	srv.conn.Store(conn)
	return nil
}

// watchLocked waits for the end of a connection to a server with kept changes, and then replays
// them if the server has lost them: other clients may be reading, even if nothing is requested
// here.
func (r *Remote) watchLocked(srv *server, conn *msg.Conn) {
	if srv.watched == conn || r.closed {
		return
	}
	srv.watched = conn
	r.workers.Go(func() {
		select {
		case <-conn.Done():
		case <-r.ctx.Done():
			return
		}
		r.mu.Lock()
		kept := srv.acked > 0 && srv.conn.Load() == conn
		r.mu.Unlock()
		if kept { // ensure does the rest
			_ = r.reach(r.ctx, srv, func(context.Context, *msg.Conn) error { return nil })
		}
	})
}

// adopt takes a connection to a server without kept changes: the first answer will tell its
// verifier.
func (r *Remote) adopt(srv *server, conn *msg.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if srv.acked > 0 {
		return false
	}
	srv.known = false
	srv.life++
	srv.conn.Store(conn)
	return true
}

// heard checks the verifier of an answer to a request that changed nothing.
func (r *Remote) heard(srv *server, conn *msg.Conn, m iod.Mark) {
	if m.Verifier == srv.verifier.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heardLocked(srv, conn, m)
}

// heardLocked tells whether an answer is of the present life. If the verifier changes on one
// connection the server could not write back what it had acknowledged.
func (r *Remote) heardLocked(srv *server, conn *msg.Conn, m iod.Mark) bool {
	switch {
	case srv.conn.Load() != conn:
		return false // of a connection that has been replaced
	case !srv.known:
		srv.known = true
		srv.verifier.Store(m.Verifier)
		r.lives.Add(1)
	case m.Verifier == srv.verifier.Load():
	case slices.Contains(srv.past[:], m.Verifier):
		return false // overtaken by another answer
	default:
		r.changeLocked(srv, m.Verifier)
	}
	return true
}

// changeLocked begins a new life of a server.
func (r *Remote) changeLocked(srv *server, verifier uint64) {
	copy(srv.past[1:], srv.past[:])
	srv.past[0] = srv.verifier.Load()
	srv.verifier.Store(verifier)
	srv.known = true
	srv.life++
	r.lives.Add(1)
	r.counts.restarts.Add(1)
	for _, o := range srv.objects {
		o.toReplay, o.mixed = o.first, false
		if !o.stale && o.nextStale() != nil {
			o.stale = true
			srv.stale.Add(1)
		}
	}
	if srv.stale.Load() > 0 && !r.closed {
		r.workers.Go(func() { r.replayAll(srv) })
	}
}

// nextStale is the first change of the list that was acknowledged in an earlier life. None is
// before toReplay.
func (o *object) nextStale() *kept {
	for ; o.toReplay != nil; o.toReplay = o.toReplay.next {
		if o.toReplay.acked != 0 && o.toReplay.life != o.srv.life {
			return o.toReplay
		}
	}
	return nil
}

// replayAll replays the kept changes of all objects of a server.
func (r *Remote) replayAll(srv *server) {
	for {
		o := r.anyStale(srv)
		if o == nil {
			return
		}
		err := r.reach(r.ctx, srv, func(ctx context.Context, conn *msg.Conn) error {
			return r.replay(ctx, conn, o)
		})
		r.release(o)
		if err != nil {
			return // the next request, or the next sweep, tries again
		}
	}
}

func (r *Remote) anyStale(srv *server) *object {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range srv.objects {
		if o.stale {
			o.users++
			return o
		}
	}
	return nil
}

// replayIfStale replays the kept changes of an object before a request for it is sent.
func (r *Remote) replayIfStale(ctx context.Context, conn *msg.Conn, srv *server,
	t *iod.Target) error {
	if srv.stale.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	o := srv.objects[t.Object]
	if o == nil || !o.stale {
		r.mu.Unlock()
		return nil
	}
	o.users++
	r.mu.Unlock()
	defer r.release(o)
	return r.replay(ctx, conn, o)
}

// replay sends again, one after the other, the changes that were acknowledged in an earlier life.
// It fails when the server cannot be reached. What the server refuses is lost, and reported once. A
// change that the server had applied before it was truncated is not refused but recognised by its
// number.
func (r *Remote) replay(ctx context.Context, conn *msg.Conn, o *object) error {
	select {
	case o.replaying <- struct{}{}:
	case <-ctx.Done():
		return errs.Wrap("iod.Call", "", ctx.Err())
	}
	defer func() { <-o.replaying }()
	told := false
	var last cut
	for first := true; ; first = false {
		k := r.nextToReplay(o)
		if k == nil {
			return nil
		}
		if first && r.gone(ctx, o) {
			return nil
		}
		mark, err := r.resend(ctx, conn, k)
		if errs.KindOf(err) == errs.Stale {
			if err := r.measure(ctx, conn, k, &last); err != nil {
				return err
			}
		}
		switch kind := errs.KindOf(err); {
		case kind == errs.OK:
			r.resent(k, conn, mark)
		case kind == errs.NotFound, kind == errs.Stale && last.covers(k):
			r.counts.superseded.Add(1)
			r.forget(k)
		case unanswered(err):
			return err
		default:
			if !told { // before a waiting sync can return
				told = true
				r.reportLoss(o, err)
			}
			r.counts.lost.Add(1)
			r.forget(k)
		}
	}
}

// cut is the last truncation of an object, as far as its server tells: only later writes lie behind
// size.
type cut struct {
	seq  uint64 // 0: not known
	size int64
}

// covers tells whether a change that is refused, because the object was truncated since, would have
// been cut off by that: all of it lies behind the end. A change that lies before the end, even in
// part, is lost. If later writes hide where the end was the change counts as lost too.
func (c *cut) covers(k *kept) bool {
	var req iod.Request
	if c.seq <= k.stamp.TruncSeq || req.Decode(k.op, k.stamp, k.request()) != nil {
		return false
	}
	first := req.Args.Off
	if k.op == iod.OpWrite {
		first = req.Args.Access.Span().Off
	}
	return first >= c.size
}

// measure asks the server about the truncation that k is older than. It fails when the server
// cannot be reached; if the server does not tell, last stays unknown.
func (r *Remote) measure(ctx context.Context, conn *msg.Conn, k *kept, last *cut) error {
	if last.seq > k.stamp.TruncSeq {
		return nil
	}
	r.mu.Lock()
	t := k.obj.target
	r.mu.Unlock()
	c := r.take(iod.OpStat, &t, &iod.Args{})
	defer r.put(c)
	if err := conn.Call(ctx, &c.req, &c.rep); err != nil {
		if unanswered(err) {
			return err
		}
		return nil
	}
	if info, err := iod.DecodeInfo(t.Object, c.rep.Body); err == nil {
		last.seq, last.size = info.TruncSeq, info.Size
	}
	return nil
}

// gone renews the rights before changes are sent again, and drops the changes of a file that does
// not exist any more: sent again they would create the object anew. If the rights cannot be renewed
// the old ones are used.
func (r *Remote) gone(ctx context.Context, o *object) bool {
	if _, err := r.renew(ctx, o); errs.KindOf(err) != errs.NotFound {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandonLocked(o)
	return true
}

// nextToReplay is the next change to send; nil when there is none: then the object is not stale any
// more.
func (r *Remote) nextToReplay(o *object) *kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := o.nextStale()
	if k == nil {
		r.freshLocked(o)
		return nil
	}
	if o.mixed {
		o.mixed = false
		o.renumber(k)
	}
	return k
}

// renumber is for a server that went on after it had lost a change: because it has a later number
// it would take the earlier one for a repeat. So the changes from k on are sent again without
// numbers.
func (o *object) renumber(k *kept) {
	for ; k != nil; k = k.next {
		if k.acked != 0 {
			k.stamp.Seq, k.stamp.Slot = 0, 0
			k.life = 0
		}
	}
}

// resent records the answer to a change that was sent again. Its place in the server's order stays
// that of its first acknowledgement. A change without a number is durable now.
func (r *Remote) resent(k *kept, conn *msg.Conn, m iod.Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	present := r.heardLocked(k.obj.srv, conn, m)
	switch {
	case !stripe.Numbered(k.stamp):
		r.forgetLocked(k)
	case !present:
		return // it is sent once more
	default:
		k.life = k.obj.srv.life
	}
	r.counts.resent.Add(1)
}

// reportLoss reports lost changes. The error is errs.IO, unless space is missing, which programs
// handle differently.
func (r *Remote) reportLoss(o *object, lost error) {
	r.mu.Lock()
	t := o.target
	r.mu.Unlock()
	kind := errs.KindOf(lost)
	if kind != errs.NoSpace && kind != errs.Quota {
		kind = errs.IO
	}
	lost = errs.New(kind, "iod.Sync", serverName(t.Server),
		errs.Wrap("lost unsynced writes, which it refuses to take again", "", lost))
	if r.opts.Lost != nil {
		r.opts.Lost(t, lost)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o.lost = lost
}

// resend sends one change again as it was sent at first, except for its capability, which may be
// renewed. A known truncation does not mean that the change is refused: only the server knows
// whether the change was applied before. So it is sent with fresh rights at least once.
func (r *Remote) resend(ctx context.Context, conn *msg.Conn, k *kept) (iod.Mark, error) {
	for try := 0; ; try++ {
		mark, err := r.resendOnce(ctx, conn, k)
		kind := errs.KindOf(err)
		switch kind {
		case errs.Expired, errs.Perm, errs.Stale:
		default:
			return mark, err
		}
		if try >= renewTries {
			return mark, err
		}
		over, rerr := r.renew(ctx, k.obj)
		switch {
		case rerr != nil && errs.KindOf(rerr) == errs.Unsupported:
			return mark, err
		case rerr != nil:
			return mark, renewFailed(rerr)
		case kind == errs.Stale && try > 0 && over > k.stamp.TruncSeq:
			return mark, errs.Newf(errs.Stale, "iod.Write", "", "the file was truncated since")
		}
		if try > 0 && !wait.Sleep(ctx, time.Duration(try)*renewPause) {
			return mark, errs.Wrap("iod.Call", "", ctx.Err())
		}
	}
}

// renewFailed is the error of a kept change whose rights could not be renewed: its file is gone, or
// its writer is fenced, or it has to wait.
func renewFailed(err error) error {
	switch errs.KindOf(err) {
	case errs.NotFound, errs.Fenced, errs.Canceled:
		return err
	}
	return errs.New(errs.Disconnected, "iod.Renew", "", err)
}

// While a truncation is under way a server refuses what the metadata service still allows; the
// change is retried, with backoff.
const (
	renewTries = 8
	renewPause = 20 * time.Millisecond
)

func (r *Remote) resendOnce(ctx context.Context, conn *msg.Conn, k *kept) (iod.Mark, error) {
	var req iod.Request
	if err := req.Decode(k.op, k.stamp, k.request()); err != nil {
		return iod.Mark{}, err
	}
	r.setRights(k, &req.Target)
	req.Args.Again = k.from
	if !stripe.Numbered(req.Target.Stamp) {
		req.Args.Durability = stripe.Durable
	}
	c := r.take(k.op, &req.Target, &req.Args)
	defer r.put(c)
	if k.data > 0 {
		c.lend(k.payload())
		c.req.Level = levelOf(k.op, int64(k.data))
	}
	if err := conn.Call(ctx, &c.req, &c.rep); err != nil {
		return iod.Mark{}, err
	}
	return iod.DecodeMark(c.rep.Body)
}

// setRights puts the newest rights into a request that is sent again. The numbers of a session that
// has ended are not valid any more: its changes are sent without numbers, and durably, because a
// repeat would not be recognised.
func (r *Remote) setRights(k *kept, t *iod.Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := &k.obj.target
	t.Cap, t.Layout = now.Cap, now.Layout
	if k.stamp.Session != now.Stamp.Session {
		k.stamp.Session, k.stamp.Slot, k.stamp.Seq = now.Stamp.Session, 0, 0
	}
	t.Stamp = k.stamp
}

// renew gets fresh rights to an object, and its present truncate sequence.
func (r *Remote) renew(ctx context.Context, o *object) (truncSeq uint64, err error) {
	if r.opts.Renew == nil {
		return 0, errs.Newf(errs.Unsupported, "iod.Renew", "", "nobody renews capabilities")
	}
	r.mu.Lock()
	t := o.target
	r.mu.Unlock()
	if err := r.opts.Renew(ctx, &t); err != nil {
		return 0, err
	}
	if t.Object != o.id {
		return 0, errs.Newf(errs.Fenced, "iod.Renew", o.id.String(), "the file's generation is %d now",
			t.Object.Gen)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o.target = t
	return t.Stamp.TruncSeq, nil
}
