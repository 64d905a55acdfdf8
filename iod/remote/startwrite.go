package remote

import (
	"context"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/dirty"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// writing is a write that was sent. Until it is over it has its number: an attempt whose answer was
// lost is followed by one with the same, so that a server that is late with the first one does not
// carry it out over what was written since.
type writing struct {
	started
	k    *kept // nil: it is durable when it is acknowledged
	slot *slot // of a durable one; nil: it is not numbered
}

// TryWrite implements iod.Starter.
func (r *Remote) TryWrite(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory,
	d stripe.Durability, ready func()) (s iod.Started, full bool) {
	conn := r.usable(&t, m)
	if conn == nil {
		return nil, false
	}
	if conn.Full(m.Len()) {
		return nil, true
	}
	r.spareSums(&t)
	x := &writing{started: started{r: r, t: t, object: object, m: m}}
	n := m.Len()
	room := n + bodyMax(object, n)
	var ok bool
	if d == stripe.Volatile && t.Stamp.Seq == 0 && n > 0 && r.keepable(room) {
		ok, full = x.beginKept(ctx, conn, room, ready)
	} else {
		ok, full = x.begin(ctx, conn, ready)
	}
	if !ok {
		return nil, full
	}
	return x, false
}

// beginKept is writeKept that waits for nothing.
func (x *writing) beginKept(ctx context.Context, conn *msg.Conn, room int64, ready func()) (
	ok, full bool) {
	r := x.r
	if x.k = r.tryEnter(&x.t, iod.OpWrite, laneOf(&x.t), onePiece(x.object), room); x.k == nil {
		return false, true
	}
	x.c = r.take(0, &x.t, nil)
	defer func() { // also where the caller's memory is not there
		if !ok {
			r.forget(x.k)
			r.put(x.c)
		}
	}()
	k, c := x.k, x.c
	k.data = int(x.m.Len())
	if !r.direct(conn, k.payload()) {
		return false, false
	}
	x.m.Note("", mem.Pack, "kept until it is synced")
	c.keep(k.payload(), x.m, !x.t.How.NoSums)
	if err := r.describe(&x.t, c, k, x.object); err != nil {
		return false, false
	}
	x.req = c.req
	return x.start(ctx, conn, ready)
}

// tryEnter is enter that waits for nothing.
func (r *Remote) tryEnter(t *iod.Target, op iod.Op, l lane, span seg.Piece, n int64) *kept {
	srv := r.server(t.Server)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || srv.objects[t.Object].overlapsRunning(span) {
		return nil
	}
	k := r.tryEnterLocked(srv, t, op, l, dirty.Room{}, n)
	if k == nil {
		r.tight = true
		r.sweepLocked()
		return nil
	}
	k.span = span
	return k
}

// begin sends a write that is durable when it is acknowledged.
func (x *writing) begin(ctx context.Context, conn *msg.Conn, ready func()) (ok, full bool) {
	r := x.r
	if x.t.Stamp.Session != 0 && x.t.Stamp.Seq == 0 {
		if x.slot = r.trySlot(&x.t); x.slot == nil {
			return false, true
		}
	}
	x.c = r.take(0, &x.t, nil)
	defer func() {
		if !ok {
			x.end()
			r.putSlot(x.slot)
		}
	}()
	c := x.c
	if !x.t.How.NoSums {
		c.sum(x.m)
	}
	c.encode(iod.OpWrite, &x.t, &iod.Args{Access: x.object, Durability: stripe.Durable,
		Sums: c.summing.Sums()})
	c.req.Out, c.req.Level = x.m, levelOf(iod.OpWrite, x.m.Len())
	if ok, full = x.place(conn); !ok {
		return false, full
	}
	if x.staged && x.m.Gather(c.stage.memory.Windows) != nil {
		return false, false
	}
	return x.start(ctx, conn, ready)
}

// trySlot is takeSlot that does not wait.
func (r *Remote) trySlot(t *iod.Target) *slot {
	srv := r.server(t.Server)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := srv.table(t.Stamp.Session).take(laneDurable)
	if s != nil {
		s.number(&t.Stamp)
	}
	return s
}

// Finish implements iod.Started.
func (x *writing) Finish(ctx context.Context) (m iod.Mark, again bool, err error) {
	if err = x.sent.Finish(ctx, &x.c.rep); err == nil {
		m, err = iod.DecodeMark(x.c.rep.Body)
	}
	x.unstage()
	switch {
	case passes(ctx, err):
		return m, true, err
	case err == nil && x.k != nil && !x.r.acknowledge(x.k, x.c.conn, m):
		return m, true, nil // by an earlier life of the server
	}
	x.over(m, err)
	return m, false, err
}

// over ends a write. One that was kept and has succeeded is the list's already.
func (x *writing) over(m iod.Mark, err error) {
	r := x.r
	switch {
	case x.k != nil && err != nil:
		r.forget(x.k)
	case x.k == nil && err == nil:
		r.heard(x.c.srv, x.c.conn, m)
	}
	x.k = nil
	r.put(x.c)
	if x.slot != nil {
		r.putSlot(x.slot)
	}
}

// Complete implements iod.Started.
func (x *writing) Complete(ctx context.Context) (m iod.Mark, err error) {
	if x.k != nil {
		m, err = x.r.persist(ctx, &x.t, x.c, x.k)
		x.k = nil
	} else if err = x.r.doSummed(ctx, &x.t, x.c); err == nil {
		m, err = iod.DecodeMark(x.c.rep.Body)
	}
	x.over(m, err)
	return m, err
}
