package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// started is what requests that were sent without waiting have in common. They are begun where the
// connection is there and its server's verifier known, nothing is to be replayed, there is a
// credit, and the memory is reached as it is, or buffers are free.
type started struct {
	r      *Remote
	c      *call
	t      iod.Target
	object seg.Access
	m      *msg.Memory
	staged bool
	req    msg.Request // as it was sent
	sent   msg.Started
}

// reading is a read that was sent.
type reading struct{ started }

// usable is the connection to a target's server, unless something has to be done before it is used.
func (r *Remote) usable(t *iod.Target, m *msg.Memory) *msg.Conn {
	srv := r.server(t.Server)
	conn := srv.conn.Load()
	if conn == nil || conn.Err() != nil || srv.stale.Load() != 0 || check(m) != nil {
		return nil
	}
	return conn
}

// TryRead implements iod.Starter.
func (r *Remote) TryRead(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory,
	ready func()) (s iod.Started, full bool) {
	conn := r.usable(&t, m)
	if conn == nil {
		return nil, false
	}
	if conn.Full(m.Len()) {
		return nil, true
	}
	r.spareSums(&t)
	x := &reading{started{r: r, t: t, object: object, m: m}}
	x.c = r.take(iod.OpRead, &x.t, &iod.Args{Access: object})
	x.c.req.In, x.c.req.Level = m, levelOf(iod.OpRead, m.Len())
	ok, full := x.place(conn)
	if ok {
		ok, full = x.start(ctx, conn, ready)
	}
	if !ok {
		x.end()
		return nil, full
	}
	return x, false
}

// start sends the request.
func (x *started) start(ctx context.Context, conn *msg.Conn, ready func()) (ok, full bool) {
	x.c.conn = conn
	x.req.Ready = ready
	if x.sent, ok = conn.TryStart(ctx, &x.req); ok {
		return true, false
	}
	return false, ctx.Err() == nil && conn.Err() == nil && conn.Full(x.m.Len())
}

// place settles where the data is, or will arrive. Registering is left to Read and Write: it takes
// long.
func (x *started) place(conn *msg.Conn) (ok, full bool) {
	how, why := mem.Gather, ""
	if op := x.m.Operation; op != nil && op.Method != mem.Auto {
		how, why = op.Method, op.Why
	} else if n := x.m.Access.Pieces(); n > 1 {
		how, why = x.r.shapes.Choose(conn.Caps(), mover.Shape{Put: x.c.req.Out != nil,
			Fragments: int(n), Bytes: x.m.Len()})
	} else if op != nil {
		why = whyOne(conn, x.c.req.In)
	}
	x.req = x.c.req
	direct := x.r.opts.Buffers == nil || conn.Direct(x.m, x.c.req.In != nil)
	if x.m.Len() <= int64(conn.InlineRoom()) || direct && how != mem.Pack {
		x.m.Note(conn.Caps().Provider, how, why)
		return true, false
	}
	if x.r.opts.Buffers == nil || x.r.opts.Registrations != nil &&
		x.r.opts.Registrations(conn.Domain()) != nil {
		return false, false
	}
	lender := x.r.opts.Buffers()
	if lender == nil {
		return false, false
	}
	if !x.c.stage.tryTake(lender, int(x.m.Len())) {
		return false, true
	}
	if !direct {
		why = "memory that the provider does not reach"
	}
	x.m.Note(conn.Caps().Provider, mem.Pack, why)
	x.staged = true
	x.req = x.c.staged()
	return true, false
}

// unstage gives the buffers back.
func (x *started) unstage() {
	if x.staged {
		x.staged = false
		x.c.stage.release()
	}
}

// end gives back what the request holds.
func (x *started) end() {
	x.unstage()
	x.r.put(x.c)
}

// passes tells whether an attempt has failed so that another one is made.
func passes(ctx context.Context, err error) bool {
	return err != nil && (errs.KindOf(err) == errs.Corrupt || errs.Passes(ctx, err))
}

// Finish implements iod.Started.
func (x *reading) Finish(ctx context.Context) (m iod.Mark, again bool, err error) {
	defer x.end()
	m, err = x.finish(ctx)
	return m, passes(ctx, err), err
}

func (x *reading) finish(ctx context.Context) (iod.Mark, error) {
	c := x.c
	err := x.sent.Finish(ctx, &c.rep)
	if err == nil && x.staged {
		err = x.m.Scatter(c.stage.memory.Windows, min(max(c.rep.InLen, 0), x.m.Len()))
	}
	if err != nil {
		return iod.Mark{}, err
	}
	mark, sums, err := iod.DecodeData(c.rep.Body, x.object.Len(), &x.t.How, c.sums[:0])
	if err != nil {
		return mark, err
	}
	c.sums = sums
	x.r.heard(c.srv, c.conn, mark)
	if x.t.How.NoSums || c.verify(x.m, sums) {
		return mark, nil
	}
	x.r.counts.readSums.Add(1)
	return mark, errs.Newf(errs.Corrupt, "iod.Read", x.t.Object.String(),
		"data from %s does not match its checksum", serverName(x.t.Server))
}

// Complete implements iod.Started.
func (x *reading) Complete(ctx context.Context) (iod.Mark, error) {
	return x.r.Read(ctx, x.t, x.object, x.m)
}

// direct tells whether a connection moves memory as it is.
func (r *Remote) direct(conn *msg.Conn, p []byte) bool {
	return r.opts.Buffers == nil || len(p) <= conn.InlineRoom() ||
		conn.Direct(&msg.Memory{Windows: []fabric.Sge{{Buf: p}}, Access: seg.Contig(0, int64(len(p)))},
			false)
}
