package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// reading is a read that was sent.
type reading struct {
	r      *Remote
	c      *call
	t      iod.Target
	object seg.Access
	m      *msg.Memory
	staged bool
	req    msg.Request // as it was sent
	sent   msg.Started
}

// TryRead implements iod.Starter. It does what an attempt of Read does where nothing has to be
// waited for: the connection is there and its server's verifier known, nothing is to be replayed,
// there is a credit, and the memory is reached as it is, or buffers are free.
func (r *Remote) TryRead(ctx context.Context, t iod.Target, object seg.Access,
	m *msg.Memory) iod.Reading {
	srv := r.server(t.Server)
	conn := srv.conn.Load()
	if conn == nil || conn.Err() != nil || srv.stale.Load() != 0 || check(m) != nil {
		return nil
	}
	r.spareSums(&t)
	x := &reading{r: r, t: t, object: object, m: m}
	x.c = r.take(iod.OpRead, &x.t, &iod.Args{Access: object})
	x.c.conn = conn
	x.c.req.In, x.c.req.Level = m, levelOf(iod.OpRead, m.Len())
	if !x.place(conn) {
		r.put(x.c)
		return nil
	}
	var ok bool
	if x.sent, ok = conn.TryStart(ctx, &x.req); !ok {
		x.end()
		return nil
	}
	return x
}

// place settles where the data will arrive. Registering is left to Read: it takes long.
func (x *reading) place(conn *msg.Conn) bool {
	how, why := mem.Gather, "one piece"
	if op := x.m.Operation; op != nil && op.Method != mem.Auto {
		how, why = op.Method, op.Why
	} else if n := x.m.Access.Pieces(); n > 1 {
		how, why = x.r.shapes.Choose(conn.Caps(), mover.Shape{Fragments: int(n), Bytes: x.m.Len()})
	}
	x.req = x.c.req
	direct := x.r.opts.Buffers == nil || conn.Direct(x.m)
	if x.m.Len() <= int64(conn.InlineRoom()) || direct && how != mem.Pack {
		x.m.Note(conn.Caps().Provider, how, why)
		return true
	}
	if x.r.opts.Buffers == nil || x.r.opts.Registrations != nil &&
		x.r.opts.Registrations(conn.Domain()) != nil {
		return false
	}
	lender := x.r.opts.Buffers()
	if lender == nil || !x.c.stage.tryTake(lender, int(x.m.Len())) {
		return false
	}
	if !direct {
		why = "memory that the provider does not reach"
	}
	x.m.Note(conn.Caps().Provider, mem.Pack, why)
	x.staged = true
	x.req = x.c.staged()
	return true
}

// end gives back what the read holds.
func (x *reading) end() {
	if x.staged {
		x.c.stage.release()
	}
	x.r.put(x.c)
}

// Finish implements iod.Reading.
func (x *reading) Finish(ctx context.Context) (iod.Mark, error) {
	defer x.end()
	return x.finish(ctx)
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
