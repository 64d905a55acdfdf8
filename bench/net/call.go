package net

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/bench"
	netfabric "github.com/sluice-storage/sluice/bench/fabric"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// Load is what is asked of the other process.
type Load struct {
	Op    uint16 // OpEcho, OpTake or OpGive
	Size  int    // bytes of data that a request carries; 0: it has a body of PingBytes
	Depth int    // requests under way
	Walk  bool   // what is given is taken from walkBytes, one part after the other
	look  bool   // over shared memory this side looks at reply data, as in the ceiling
	timed bool   // one at a time, and the figure is the time of one
	args  serveArgs

	pinning pinning // how data is registered, where it has to be
}

// Bulk is the load of bulk-1m: large replies, or, by OpTake, large requests, which their receiver
// copies, as a socket's reader does.
func Bulk(op uint16) Load {
	return Load{Op: op, Size: bulkSize, Depth: bulkDepth, look: op == OpGive}
}

// Rate is the load of rate-4k-d32: small replies, many at once.
func Rate() Load { return Load{Op: OpGive, Size: rateSize, Depth: rateDepth} }

// Contender does a load over a provider. Requests without data are measured one at a time.
func (b *Bench) Contender(provider, name, protocol string, l Load) bench.Contender {
	l.args.Provider, l.args.Bytes, l.args.Walk = provider, l.Size, l.Walk
	l.look = l.look && provider == Shm
	c := &caller{b: b, load: l}
	return b.Costs(bench.Contender{
		Provider: name, Depth: l.Depth, Protocol: protocol, Progress: l.args.Progress.String(),
		Optional: provider == Verbs, Measure: c.measure, Close: c.undo.Close,
	}, provider)
}

// caller is this side of a contender: a domain, a node and a connection of its own, opened when
// they are first used, and memory for all requests that are under way.
type caller struct {
	b    *Bench
	load Load
	undo bench.Undo

	domain partner.Domain
	node   *msg.Node
	conn   *msg.Conn
	cache  *regcache.Cache // of registrations, where they are kept
	jobs   []job
}

// job is one of the requests that are under way.
type job struct {
	req msg.Request
	rep msg.Reply
	mem *msg.Memory // of buf
	buf []byte
	use regcache.Use
}

func (c *caller) open(ctx context.Context) (err error) {
	if c.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, netfabric.OpenMax)
	defer cancel()
	control, err := partner.Dial(ctx, c.b.Peer.Control)
	if err != nil {
		return err
	}
	c.undo.Later(control.Close)
	var addr string
	if err = control.Ask(doServe, c.load.args, &addr); err != nil {
		return err
	}
	if c.domain, err = c.load.args.open(c.b.Open); err != nil {
		return err
	}
	c.undo.Later(c.domain.Domain.Close)
	if c.node, err = msg.NewNode(c.load.args.options(c.domain)); err != nil {
		return err
	}
	c.undo.Later(c.node.Close)
	if err = c.allocate(); err != nil {
		return err
	}
	c.conn, err = c.node.Dial(ctx, addr)
	return err
}

// allocate makes the requests, with their data in an arena that the node knows.
func (c *caller) allocate() (err error) {
	l := &c.load
	c.jobs = make([]job, l.Depth)
	if l.Size == 0 {
		for i := range c.jobs {
			c.jobs[i].req = msg.Request{Op: l.Op, Body: make([]byte, PingBytes)}
		}
		return nil
	}
	if l.pinning != forLife {
		return c.ownMemory()
	}
	arena, err := mem.NewArena(l.Depth*l.Size, c.domain.Source)
	if err != nil {
		return err
	}
	c.undo.Later(arena.Close)
	if err = c.node.Attach(arena); err != nil {
		return err
	}
	c.undo.Later(func() error { c.node.Detach(arena); return nil })
	all := arena.Bytes()
	copy(all, plain.Touched(l.Depth*l.Size))
	for i := range c.jobs {
		from, to := i*l.Size, (i+1)*l.Size
		c.setJob(i, all[from:to:to])
	}
	return nil
}

// setJob makes buf the data of a request.
func (c *caller) setJob(i int, buf []byte) {
	m := &msg.Memory{Windows: []fabric.Sge{{Buf: buf}}, Access: seg.Contig(0, int64(len(buf)))}
	c.jobs[i] = job{req: msg.Request{Op: c.load.Op}, mem: m, buf: buf}
	if c.load.Op == OpGive {
		c.jobs[i].req.In = m
	} else {
		c.jobs[i].req.Out = m
	}
}

// call is one request.
func (c *caller) call(ctx context.Context, worker int) error {
	j := &c.jobs[worker]
	if c.load.pinning != forLife {
		return c.callPinned(ctx, j)
	}
	err := c.conn.Call(ctx, &j.req, &j.rep)
	if err == nil && c.load.look {
		touch(j.buf)
	}
	return err
}

func (c *caller) measure(ctx context.Context, d time.Duration) (bench.Result, error) {
	if err := c.open(ctx); err != nil {
		return bench.Result{}, err
	}
	quiet := context.WithoutCancel(ctx) // requests without a context that can end are the usual ones
	if c.load.Size == 0 && c.load.Depth == 1 || c.load.timed {
		return bench.Repeat(ctx, d, c.load.Size, func() error { return c.call(quiet, 0) })
	}
	return bench.Load{Depth: c.load.Depth, Size: c.load.Size,
		Op: func(worker, _ int) error { return c.call(quiet, worker) }}.Run(ctx, d)
}
