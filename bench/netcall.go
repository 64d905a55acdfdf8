package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// netDepth is how many requests are under way at once where many are.
const netDepth = 32

// caller is this side of a contender that uses package msg: a domain, a node and a connection of
// its own, opened when they are first used, and memory for depth requests.
type caller struct {
	n        *Net
	spec     spec
	protocol string
	op       uint16
	body     []byte
	size     int // bytes of data that a request carries, by opTake or opGive
	depth    int
	memory   memoryOf
	touch    bool // look at reply data when it has come
	calls    int  // so far, one at a time

	control *control
	domain  NetDomain
	node    *msg.Node
	conn    *msg.Conn
	arena   *mem.Arena
	jobs    []job
	regs    registrar
}

// memoryOf is where a request's data lies.
type memoryOf uint8

const (
	arenaMemory  memoryOf = iota // in an arena that the node knows
	cachedMemory                 // registered by a cache, which has it
	freshMemory                  // registered for the request
	plainMemory                  // in no arena, and not registered
)

// job is one of the requests that are under way.
type job struct {
	req msg.Request
	rep msg.Reply
	buf []byte
}

func (c *caller) open(ctx context.Context) (err error) {
	if c.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	if c.control, err = dialControl(ctx, c.n.Control); err != nil {
		return err
	}
	c.spec.Bytes = c.size
	a, err := c.control.ask(c.spec)
	if err != nil {
		return err
	}
	if c.domain, err = c.spec.open(c.n.Open); err != nil {
		return err
	}
	if c.node, err = msg.NewNode(c.spec.options(c.domain, c.protocol)); err != nil {
		return err
	}
	if err = c.allocate(); err != nil {
		return err
	}
	c.conn, err = c.node.Dial(ctx, a.Addr)
	return err
}

// allocate makes the requests.
func (c *caller) allocate() error {
	c.jobs = make([]job, c.depth)
	var all []byte
	if c.size > 0 {
		var err error
		if all, err = c.data(c.depth * c.size); err != nil {
			return err
		}
		copy(all, touched(len(all)))
	}
	for i := range c.jobs {
		j := &c.jobs[i]
		j.req = msg.Request{Op: c.op, Body: c.body}
		if c.size == 0 {
			continue
		}
		from := i * c.size
		j.buf = all[from : from+c.size : from+c.size]
		m := &msg.Memory{Windows: []fabric.Sge{{Buf: j.buf}}, Access: seg.Contig(0, int64(c.size))}
		if c.op == opGive {
			j.req.In = m
		} else {
			j.req.Out = m
		}
	}
	return nil
}

// data is memory for all requests.
func (c *caller) data(n int) ([]byte, error) {
	if c.memory == plainMemory && c.domain.Domain.Caps().AnyMemory {
		return make([]byte, n), nil
	}
	var err error
	if c.arena, err = mem.NewArena(n, c.domain.Source); err != nil {
		return nil, err
	}
	if c.memory == arenaMemory {
		err = c.node.Attach(c.arena)
	} else {
		err = c.regs.open(c.domain.Domain, c.memory)
	}
	return c.arena.Bytes()[:n], err
}

// call is one request.
func (c *caller) call(ctx context.Context, worker int) error {
	j := &c.jobs[worker]
	if c.memory == cachedMemory || c.memory == freshMemory {
		return c.callRegistered(ctx, j)
	}
	err := c.conn.Call(ctx, &j.req, &j.rep)
	if err == nil && c.touch {
		touch(j.buf)
	}
	return err
}

func (c *caller) callRegistered(ctx context.Context, j *job) error {
	reg, release, err := c.regs.get(ctx, j.buf)
	if err != nil {
		return err
	}
	m := j.req.Out
	if m == nil {
		m = j.req.In
	}
	m.Windows[0].Reg = reg
	err = c.conn.Call(ctx, &j.req, &j.rep)
	m.Windows[0].Reg = nil
	return errors.Join(err, release())
}

func (c *caller) close() error {
	var failed []error
	if c.node != nil {
		failed = append(failed, c.node.Close(), c.regs.close())
	}
	if c.arena != nil {
		c.node.Detach(c.arena)
		failed = append(failed, c.arena.Close())
	}
	if c.domain.Domain != nil {
		failed = append(failed, c.domain.Domain.Close())
	}
	return errors.Join(append(failed, c.control.close())...)
}

// latency measures one request at a time.
func (c *caller) latency(ctx context.Context, d time.Duration) (float64, error) {
	if err := c.open(ctx); err != nil {
		return 0, err
	}
	quiet := context.WithoutCancel(ctx) // requests without a context that can end are the usual ones
	return MedianLatency(ctx, d, func() error {
		c.calls++
		return c.call(quiet, 0)
	})
}

// stream keeps depth requests under way.
func (c *caller) stream(ctx context.Context, d time.Duration) (moved, error) {
	if err := c.open(ctx); err != nil {
		return moved{}, err
	}
	type result struct {
		ops int
		err error
	}
	results := make(chan result, c.depth)
	quiet := context.WithoutCancel(ctx)
	m := moved{begin: time.Now()}
	end := m.begin.Add(d)
	for w := range c.depth {
		go func() {
			var r result
			for r.err == nil && (r.ops == 0 || time.Now().Before(end)) && ctx.Err() == nil {
				if r.err = c.call(quiet, w); r.err == nil {
					r.ops++
				}
			}
			results <- r
		}()
	}
	var failed error
	for range c.depth {
		r := <-results
		m.add(r.ops, c.size)
		if failed == nil {
			failed = r.err
		}
	}
	m.took = time.Since(m.begin)
	if failed == nil {
		failed = ctx.Err()
	}
	return m, failed
}

// contender has no Measure yet.
func (c *caller) contender(name string) Contender {
	return Contender{
		Provider: name, Depth: c.depth, Protocol: c.protocol, Progress: c.spec.Progress.String(),
		Optional: c.spec.Provider == "verbs", Close: c.close,
	}
}

// nanoseconds is the body of opWork.
func nanoseconds(d time.Duration) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(d))
}

// registrar registers memory for requests, through a cache or each time anew.
type registrar struct {
	domain fabric.Domain
	cache  *regcache.Cache // nil: each time anew
}

func (r *registrar) open(d fabric.Domain, how memoryOf) (err error) {
	r.domain = d
	if how == cachedMemory {
		r.cache, err = regcache.New(d, regcache.Options{})
	}
	return err
}

func nothing() error { return nil }

// get registers memory, and tells how to end that.
func (r *registrar) get(ctx context.Context, b []byte) (fabric.Region, func() error, error) {
	if r.domain == nil {
		return nil, nothing, errs.Newf(errs.Invalid, "bench net", "", "nothing to register with")
	}
	if r.cache != nil {
		ref, err := r.cache.Get(ctx, b)
		return ref.Region(), func() error { ref.Put(); return nil }, err
	}
	reg, err := r.domain.Register(b)
	if err != nil {
		return nil, nothing, err
	}
	return reg, reg.Close, nil
}

func (r *registrar) close() error {
	if r.cache == nil {
		return nil
	}
	return r.cache.Close()
}
