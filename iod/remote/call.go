package remote

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// call is the memory of one request; it is reused.
type call struct {
	enc     wire.Enc
	req     msg.Request
	rep     msg.Reply
	stage   stage
	summing iod.Summing
	sums    []uint32
	memory  msg.Memory
	window  [1]fabric.Sge

	srv  *server
	conn *msg.Conn // of the last attempt
}

// take takes a call from the pool. With arguments it is encoded; without, the caller does that.
func (r *Remote) take(op iod.Op, t *iod.Target, a *iod.Args) *call {
	c, ok := r.calls.Get().(*call)
	if !ok {
		c = &call{}
	}
	c.srv = r.server(t.Server)
	c.summing.Reset()
	if a != nil {
		c.encode(op, t, a)
	}
	return c
}

func (c *call) encode(op iod.Op, t *iod.Target, a *iod.Args) {
	c.enc.B = c.enc.B[:0]
	iod.AppendRequest(&c.enc, op, t, a)
	c.req = msg.Request{Op: uint16(op), Stamp: t.Stamp, Body: c.enc.B, Level: levelOf(op, 0)}
	c.req.Stamp.Gen = t.Object.Gen
}

func (r *Remote) put(c *call) {
	c.req = msg.Request{}
	c.window[0] = fabric.Sge{}
	c.conn, c.srv = nil, nil
	r.calls.Put(c)
}

// bodyFixed is an upper bound of the fixed part of a request's body.
const bodyFixed = 192

// bodyMax is an upper bound of the body of a write of n bytes to the pieces of a.
func bodyMax(a seg.Access, n int64) int64 {
	return bodyFixed + int64(a.WireBytes()) + 4*int64(iod.Sums(n))
}

// lend makes p the data of the request.
func (c *call) lend(p []byte) {
	c.window[0] = fabric.Sge{Buf: p}
	c.memory = msg.Memory{Windows: c.window[:], Access: seg.Contig(0, int64(len(p)))}
	c.req.Out = &c.memory
}

// smallBytes is the largest small request: it goes before bulk.
const smallBytes = 64 << 10

// levelOf is the service level of a request: status first, then small requests, then bulk.
func levelOf(op iod.Op, bytes int64) msg.Level {
	switch {
	case op == iod.OpStatus || op == iod.OpFence:
		return 2
	case bytes <= smallBytes:
		return 1
	}
	return 0
}

func serverName(id uint32) string { return fmt.Sprintf("I/O server %d", id) }

// do sends the request until it is answered, refused, or WaitMax is over.
func (r *Remote) do(ctx context.Context, t *iod.Target, c *call) error {
	return r.retry(ctx, t.Server, func(ctx context.Context) error { return r.attempt(ctx, t, c) })
}

// doSummed is do for a request with data, which is sent once more if it arrived damaged.
func (r *Remote) doSummed(ctx context.Context, t *iod.Target, c *call) error {
	err := r.do(ctx, t, c)
	if errs.KindOf(err) == errs.Corrupt {
		r.counts.writeSums.Add(1)
		err = r.do(ctx, t, c)
	}
	return err
}

// retry tries until it succeeds, is refused, or WaitMax is over. The first attempt uses the
// caller's context: a context of its own would cost every request an allocation.
func (r *Remote) retry(ctx context.Context, server uint32,
	try func(context.Context) error) error {
	began := time.Now()
	err := try(ctx)
	if err == nil || !errs.Passes(ctx, err) {
		return err
	}
	p := peer.Patience{Peer: serverName(server), Max: r.opts.WaitMax,
		Backoff: peer.Backoff{First: 5 * time.Millisecond, Max: 500 * time.Millisecond}}
	return p.Do(ctx, began, try)
}

// unanswered tells whether an error is not the server's answer: the server was not reached, or the
// answer was not waited for.
func unanswered(err error) bool {
	k := errs.KindOf(err)
	return k == errs.Closed || k.Passing()
}

// attempt sends the request once, after the kept changes of its object that have to be replayed.
func (r *Remote) attempt(ctx context.Context, t *iod.Target, c *call) error {
	return r.withConn(ctx, c.srv, func(ctx context.Context, conn *msg.Conn) error {
		if err := r.replayIfStale(ctx, conn, c.srv, t); err != nil {
			return err
		}
		c.conn = conn
		return r.call(ctx, conn, c)
	})
}

// withConn calls fn with a connection to the server whose verifier is known. The pool replaces a
// broken connection.
func (r *Remote) withConn(ctx context.Context, srv *server,
	fn func(ctx context.Context, conn *msg.Conn) error) error {
	conn, err := r.pool.Get(ctx, srv.id)
	if err != nil {
		return err
	}
	if err := r.ensure(ctx, srv, conn); err != nil {
		return err
	}
	return fn(ctx, conn)
}

// reach is withConn that retries while the server is away.
func (r *Remote) reach(ctx context.Context, srv *server,
	fn func(ctx context.Context, conn *msg.Conn) error) error {
	return r.retry(ctx, srv.id, func(ctx context.Context) error { return r.withConn(ctx, srv, fn) })
}

// sum computes the checksums of the caller's data.
func (c *call) sum(m *msg.Memory) {
	eachRun(m, func(b []byte) { c.summing.Add(b) })
}

// sumBytes is how much is copied before it is summed, so that it is still in the processor's cache.
const sumBytes = 32 << 10

// keep copies the caller's data to dst and sums the copy, if sum is set.
func (c *call) keep(dst []byte, m *msg.Memory, sum bool) {
	eachRun(m, func(b []byte) {
		for len(b) > 0 {
			n := mem.CopyFor(mem.CopyCaller, dst[:min(len(dst), sumBytes)], b)
			if sum {
				c.summing.Add(dst[:n])
			}
			dst, b = dst[n:], b[n:]
		}
	})
}

// verify compares what has arrived in m with its sums.
func (c *call) verify(m *msg.Memory, want []uint32) bool {
	c.summing.Reset()
	c.sum(m)
	got := c.summing.Sums()
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

// check refuses invalid memory.
func check(m *msg.Memory) error {
	var n int64
	if m == nil {
		return errs.Newf(errs.Invalid, "iod.Call", "", "no memory")
	}
	for i := range m.Windows {
		n += int64(len(m.Windows[i].Buf))
	}
	return m.Access.Validate(iod.PiecesMax, n)
}

// eachRun calls fn with the bytes that m means, in stream order.
func eachRun(m *msg.Memory, fn func(b []byte)) {
	if m == nil {
		return
	}
	win, base := 0, int64(0) // a window, and the address of its first byte
	for cur := m.Access.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return
		}
		if p.Off < base {
			win, base = 0, 0
		}
		for p.Len > 0 {
			for p.Off >= base+int64(len(m.Windows[win].Buf)) {
				base += int64(len(m.Windows[win].Buf))
				win++
			}
			b := m.Windows[win].Buf[p.Off-base:]
			b = b[:min(int64(len(b)), p.Len)]
			fn(b)
			p.Off, p.Len = p.Off+int64(len(b)), p.Len-int64(len(b))
		}
	}
}
