package remote

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/stripe"
)

// A server tells with every answer in which life of its volatile state it was given: the verifier.
// A connection does not outlive the server's process; so while something is kept at a server every
// new connection is asked for the verifier before it carries anything else. If it has changed, the
// kept changes of each object are sent again, in their order and under their numbers, before
// anything else of that object goes out. What the server still has it recognises by the numbers;
// what would lie over a later change it refuses, by the life in which it was acknowledged first.

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

// watchLocked waits for the end of a connection to a server that something is kept of, and goes to
// see whether the server has lost it: others may be reading, even if nobody here is.
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
		if kept { // ensure, on the way to the server, does all that has to be done
			_ = r.reach(r.ctx, srv, func(context.Context, *msg.Conn) error { return nil })
		}
	})
}

// adopt takes a connection to a server at which nothing is kept: whatever life it is in, the first
// answer will tell.
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

// heard looks at the verifier of an answer to a request that changed nothing.
func (r *Remote) heard(srv *server, conn *msg.Conn, m iod.Mark) {
	if m.Verifier == srv.verifier.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heardLocked(srv, conn, m)
}

// heardLocked tells whether an answer is of the present life. A verifier that changes on one
// connection says that the server could not write back what it had acknowledged.
func (r *Remote) heardLocked(srv *server, conn *msg.Conn, m iod.Mark) bool {
	switch {
	case srv.conn.Load() != conn:
		return false // of a connection that has been replaced
	case !srv.known:
		srv.known = true
		srv.verifier.Store(m.Verifier)
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
	r.counts.restarts.Add(1)
	for _, o := range srv.objects {
		o.toMend, o.mixed = o.first, false
		if !o.stale && o.nextStale() != nil {
			o.stale = true
			srv.stale.Add(1)
		}
	}
	if srv.stale.Load() > 0 && !r.closed {
		r.workers.Go(func() { r.mendAll(srv) })
	}
}

// nextStale is the first change of the list that was acknowledged in an earlier life. Those before
// toMend were not, or were sent again.
func (o *object) nextStale() *kept {
	for ; o.toMend != nil; o.toMend = o.toMend.next {
		if o.toMend.acked != 0 && o.toMend.life != o.srv.life {
			return o.toMend
		}
	}
	return nil
}

// mendAll sends again what is kept of a server's objects, also of those that nobody asks for.
func (r *Remote) mendAll(srv *server) {
	for {
		o := r.anyStale(srv)
		if o == nil {
			return
		}
		err := r.reach(r.ctx, srv, func(ctx context.Context, conn *msg.Conn) error {
			return r.mend(ctx, conn, o)
		})
		r.letGo(o)
		if err != nil {
			return // the next request, or the next round of syncs, tries again
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

// mendIfStale sends again what is kept of an object before a request of it goes out.
func (r *Remote) mendIfStale(ctx context.Context, conn *msg.Conn, srv *server,
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
	defer r.letGo(o)
	return r.mend(ctx, conn, o)
}

// mend sends again, one after the other, what was acknowledged in an earlier life. It fails when
// the server cannot be reached; what the server refuses is lost, and told once. A change that the
// server had applied before it was truncated is not refused but recognised by its number.
func (r *Remote) mend(ctx context.Context, conn *msg.Conn, o *object) error {
	select {
	case o.mending <- struct{}{}:
	case <-ctx.Done():
		return errs.Wrap("iod.Call", "", ctx.Err())
	}
	defer func() { <-o.mending }()
	told := false
	var last cut
	for first := true; ; first = false {
		k := r.nextToMend(o)
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
		case kind == errs.NotFound, kind == errs.Stale && last.took(k):
			r.counts.superseded.Add(1)
			r.forget(k)
		case unsettled(err):
			return err
		default:
			if !told { // before a sync that waits for this can end
				told = true
				r.tell(o, err)
			}
			r.counts.lost.Add(1)
			r.forget(k)
		}
	}
}

// cut is the last truncation of an object, as far as its server tells: there is nothing of the
// object behind size but what was written later.
type cut struct {
	seq  uint64 // 0: not known
	size int64
}

// took tells whether a change that comes too late, because the object was truncated since, would
// have been cut off anyhow: it lies behind the end. What lies before it, even in part, is missing.
// What has been written behind the end since then hides where it was: that counts as missing too.
func (c *cut) took(k *kept) bool {
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

// measure finds out about the truncation that k is too old for. It fails when the server cannot be
// reached; a server that does not tell leaves it unknown.
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
		if unsettled(err) {
			return err
		}
		return nil
	}
	if info, err := iod.DecodeInfo(t.Object, c.rep.Body); err == nil {
		last.seq, last.size = info.TruncSeq, info.Size
	}
	return nil
}

// gone asks for fresh rights before something is sent again, and forgets what was written to a file
// that does not exist any more: sent again it would bring the object back to life, for nobody.
// Where nobody can be asked the rights that are there have to do.
func (r *Remote) gone(ctx context.Context, o *object) bool {
	if _, err := r.renew(ctx, o); errs.KindOf(err) != errs.NotFound {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandonLocked(o)
	return true
}

// nextToMend is what has to be sent next; nil when all is well, which ends the object's being
// stale.
func (r *Remote) nextToMend(o *object) *kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := o.nextStale()
	if k == nil {
		if o.stale {
			o.stale = false
			o.srv.stale.Add(-1)
		}
		return nil
	}
	if o.mixed {
		o.mixed = false
		o.renumber(k)
	}
	return k
}

// renumber is for a server that went on after it had lost a change: a later one that it has would
// make it take the earlier one for a repeat. From k on all are sent again without numbers.
func (o *object) renumber(k *kept) {
	for ; k != nil; k = k.next {
		if k.acked != 0 {
			k.stamp.Seq, k.stamp.Slot = 0, 0
			k.life = 0
		}
	}
}

// resent notes the answer to a change that was sent again. In the server's order it stays where it
// was first acknowledged. One without a number is durable now.
func (r *Remote) resent(k *kept, conn *msg.Conn, m iod.Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	present := r.heardLocked(k.obj.srv, conn, m)
	switch {
	case !stripe.Numbered(k.stamp):
		r.forgetLocked(k)
	case !present:
		return // once more, then
	default:
		k.life = k.obj.srv.life
	}
	r.counts.resent.Add(1)
}

// tell reports a loss. It is an input/output error, unless what is missing is space: a program does
// something else about that.
func (r *Remote) tell(o *object, lost error) {
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

// resend sends one change again as it was sent at first, but for its capability, which may have to
// be a fresh one. That a truncation is known does not say that the change is refused: only the
// server knows whether it was applied before. So it is asked by fresh rights once at least.
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
		if try > 0 && !pause(ctx, time.Duration(try)*renewPause) {
			return mark, errs.Wrap("iod.Call", "", ctx.Err())
		}
	}
}

// renewFailed is what a failure to renew means to a kept change: its file is gone, or its writer is
// deposed, or it has to wait.
func renewFailed(err error) error {
	switch errs.KindOf(err) {
	case errs.NotFound, errs.Fenced, errs.Canceled:
		return err
	}
	return errs.New(errs.Disconnected, "iod.Renew", "", err)
}

// A truncation that is under way makes a server refuse what the metadata service still allows; it
// is waited for so many times, a little longer each time.
const (
	renewTries = 8
	renewPause = 20 * time.Millisecond
)

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *Remote) resendOnce(ctx context.Context, conn *msg.Conn, k *kept) (iod.Mark, error) {
	var req iod.Request
	if err := req.Decode(k.op, k.stamp, k.request()); err != nil {
		return iod.Mark{}, err
	}
	r.entitle(k, &req.Target)
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

// entitle puts the newest rights into a request that is sent again. A session that has ended takes
// its numbers with it: its changes go out without, and durably, because nobody would recognise them
// another time.
func (r *Remote) entitle(k *kept, t *iod.Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := &k.obj.target
	t.Cap, t.Layout = now.Cap, now.Layout
	if k.stamp.Session != now.Stamp.Session {
		k.stamp.Session, k.stamp.Slot, k.stamp.Seq = now.Stamp.Session, 0, 0
	}
	t.Stamp = k.stamp
}

// renew gets fresh rights to an object, and how many truncations of it are known now.
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
