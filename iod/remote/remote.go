// Package remote asks I/O servers over package msg. It implements iod.Data, iod.Space and
// iod.Manager for any server whose id the pool can resolve, keeps no data, and sends a request
// again when the connection was lost: all requests are idempotent.
//
// It does not renew capabilities and does not know layouts: package client does.
//
// Read remote.go first, then stage.go (data of callers whose memory a provider cannot reach).
package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Options of a Remote.
type Options struct {
	// WaitMax is how long a server that cannot be reached is waited for before the request fails.
	// Default 60 s.
	WaitMax time.Duration

	// AttemptMax bounds one attempt; then the connection is given up and made anew. Default 20 s.
	AttemptMax time.Duration

	// Buffers, if not nil, lends memory that every provider reaches: data of callers goes through it
	// where theirs is not such (see msg.Conn.Direct). It may return nil: there is none. Default nil.
	Buffers func() *mem.User
}

func (o Options) withDefaults() Options {
	if o.WaitMax == 0 {
		o.WaitMax = 60 * time.Second
	}
	if o.AttemptMax == 0 {
		o.AttemptMax = 20 * time.Second
	}
	return o
}

// Remote is safe for concurrent use.
type Remote struct {
	pool  *msg.Pool
	opts  Options
	calls sync.Pool // of *call
}

var (
	_ iod.Data    = (*Remote)(nil)
	_ iod.Space   = (*Remote)(nil)
	_ iod.Manager = (*Remote)(nil)
)

// New makes a remote on a pool that resolves server ids. The pool stays the caller's to close.
func New(pool *msg.Pool, opts Options) *Remote {
	return &Remote{pool: pool, opts: opts.withDefaults()}
}

// call is what one request needs; kept for the next one.
type call struct {
	enc   wire.Enc
	req   msg.Request
	rep   msg.Reply
	stage stage
}

func (r *Remote) take(op iod.Op, t *iod.Target, a *iod.Args) *call {
	c, ok := r.calls.Get().(*call)
	if !ok {
		c = &call{}
	}
	c.enc.B = c.enc.B[:0]
	iod.AppendRequest(&c.enc, op, t, a)
	c.req = msg.Request{Op: uint16(op), Stamp: t.Stamp, Body: c.enc.B, Level: levelOf(op, 0)}
	c.req.Stamp.Gen = t.Object.Gen
	return c
}

// smallBytes is what still counts as a small request: it goes before bulk.
const smallBytes = 64 << 10

// levelOf is the service level of a request: questions about a server before everything, small
// requests before bulk.
func levelOf(op iod.Op, bytes int64) msg.Level {
	switch {
	case op == iod.OpStatus || op == iod.OpFence:
		return 2
	case bytes <= smallBytes:
		return 1
	}
	return 0
}

func (r *Remote) put(c *call) {
	c.req = msg.Request{}
	r.calls.Put(c)
}

// do sends the request until it is answered, refused, or WaitMax is over.
func (r *Remote) do(ctx context.Context, server uint32, c *call) error {
	err := r.attempt(ctx, server, c)
	if err == nil || !again(err) {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, r.opts.WaitMax)
	defer cancel()
	last := err
	err = msg.Retry(limit, msg.Backoff{First: 5 * time.Millisecond, Max: 500 * time.Millisecond},
		func(ctx context.Context) error {
			err := r.attempt(ctx, server, c)
			if err != nil && errs.KindOf(err) == errs.TimedOut && ctx.Err() == nil {
				err = errs.New(errs.Disconnected, "iod.Call", "", err) // this attempt only: try again
			}
			if err != nil && again(err) {
				last = err
			}
			return err
		})
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		return errs.Newf(errs.IO, "iod.Call", fmt.Sprintf("server %d", server),
			"unreachable for %v (last: %v); see `sluice status`", r.opts.WaitMax, last)
	}
	return err
}

// again tells whether a repetition can succeed.
func again(err error) bool {
	switch errs.KindOf(err) {
	case errs.Disconnected, errs.Shutdown, errs.Again, errs.Closed, errs.TimedOut:
		return true
	}
	return false
}

func (r *Remote) attempt(ctx context.Context, server uint32, c *call) error {
	ctx, cancel := context.WithTimeout(ctx, r.opts.AttemptMax)
	defer cancel()
	conn, err := r.pool.Get(ctx, server)
	if err != nil {
		return err
	}
	err = r.call(ctx, conn, c)
	switch errs.KindOf(err) {
	case errs.Disconnected, errs.Closed, errs.Shutdown, errs.TimedOut:
		r.pool.Drop(server, conn)
	}
	return err
}

func (r *Remote) marked(ctx context.Context, op iod.Op, t *iod.Target, a *iod.Args,
	out, in *msg.Memory) (iod.Mark, error) {
	c := r.take(op, t, a)
	defer r.put(c)
	c.req.Out, c.req.In = out, in
	c.req.Level = levelOf(op, out.Len()+in.Len())
	if err := r.do(ctx, t.Server, c); err != nil {
		return iod.Mark{}, err
	}
	return iod.DecodeMark(c.rep.Body)
}

// Read implements iod.Data.
func (r *Remote) Read(ctx context.Context, t iod.Target, object seg.Access,
	m *msg.Memory) (iod.Mark, error) {
	t.How.NoSums = true
	c := r.take(iod.OpRead, &t, &iod.Args{Access: object})
	defer r.put(c)
	c.req.In, c.req.Level = m, levelOf(iod.OpRead, m.Len())
	if err := r.do(ctx, t.Server, c); err != nil {
		return iod.Mark{}, err
	}
	mark, _, err := iod.DecodeData(c.rep.Body, object.Len(), &t.How, nil)
	return mark, err
}

// Write implements iod.Data.
func (r *Remote) Write(ctx context.Context, t iod.Target, object seg.Access, m *msg.Memory,
	d stripe.Durability) (iod.Mark, error) {
	t.How.NoSums = true
	return r.marked(ctx, iod.OpWrite, &t, &iod.Args{Access: object, Durability: d}, m, nil)
}

// Sync implements iod.Data.
func (r *Remote) Sync(ctx context.Context, t iod.Target) (iod.Mark, error) {
	return r.marked(ctx, iod.OpSync, &t, &iod.Args{}, nil, nil)
}

// Punch implements iod.Space.
func (r *Remote) Punch(ctx context.Context, t iod.Target, off, length int64,
	d stripe.Durability) (iod.Mark, error) {
	return r.marked(ctx, iod.OpPunch, &t, &iod.Args{Off: off, Len: length, Durability: d}, nil, nil)
}

// Map implements iod.Space.
func (r *Remote) Map(ctx context.Context, t iod.Target,
	off, length int64) ([]stripe.Extent, error) {
	c := r.take(iod.OpMap, &t, &iod.Args{Off: off, Len: length})
	defer r.put(c)
	if err := r.do(ctx, t.Server, c); err != nil {
		return nil, err
	}
	return iod.DecodeExtents(c.rep.Body)
}

// Stat implements iod.Space.
func (r *Remote) Stat(ctx context.Context, t iod.Target) (stripe.Info, error) {
	c := r.take(iod.OpStat, &t, &iod.Args{})
	defer r.put(c)
	if err := r.do(ctx, t.Server, c); err != nil {
		return stripe.Info{}, err
	}
	return iod.DecodeInfo(t.Object, c.rep.Body)
}

// Truncate implements iod.Manager.
func (r *Remote) Truncate(ctx context.Context, t iod.Target, size int64) error {
	_, err := r.marked(ctx, iod.OpTruncate, &t, &iod.Args{Len: size}, nil, nil)
	return err
}

// Remove implements iod.Manager.
func (r *Remote) Remove(ctx context.Context, t iod.Target) error {
	_, err := r.marked(ctx, iod.OpRemove, &t, &iod.Args{}, nil, nil)
	return err
}

// Fence implements iod.Manager.
func (r *Remote) Fence(ctx context.Context, t iod.Target) error {
	_, err := r.marked(ctx, iod.OpFence, &t, &iod.Args{}, nil, nil)
	return err
}

// Status asks a server about itself. It is not repeated: an answer that comes late is of no use.
func (r *Remote) Status(ctx context.Context, server uint32) (iod.Status, error) {
	c := r.take(iod.OpStatus, &iod.Target{Server: server}, &iod.Args{})
	defer r.put(c)
	if err := r.attempt(ctx, server, c); err != nil {
		return iod.Status{}, err
	}
	return iod.DecodeStatus(c.rep.Body)
}
