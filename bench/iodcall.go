package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// iodLoad is what is asked of a server.
type iodLoad struct {
	write, random bool
	class         stripe.Durability // of a write
	size, depth   int
	bytes         int64 // the part of the data that it goes through; 0: all
	pieces        int   // of one request; 0: one
	apart         bool  // pieces are requests of their own
	pace          int64 // bytes a second at most; 0: as fast as it goes
	how           iod.How
	states        bool // tell where requests spend their time
}

// iodCaller is this side of a contender: memory for depth requests, in an arena that the node
// knows, and a connection to the server by one provider.
type iodCaller struct {
	site     *site
	provider string
	load     iodLoad

	link  *siteLink
	arena *mem.Arena
	jobs  []iodJob
	next  atomic.Int64
	last  []Extra
}

// iodJob is one of the requests that are under way.
type iodJob struct {
	memory msg.Memory
	rnd    *rand.Rand
}

func (c *iodCaller) open(ctx context.Context) (err error) {
	if c.jobs != nil {
		return nil
	}
	if c.link, err = c.site.link(ctx, c.provider); err != nil {
		return err
	}
	n := c.load.size * c.load.depth
	if c.arena, err = mem.NewArena(n, c.link.domain.Source); err != nil {
		return err
	}
	if err := c.link.node.Attach(c.arena); err != nil {
		return err
	}
	noise(c.arena.Bytes())
	c.jobs = make([]iodJob, c.load.depth)
	for i := range c.jobs {
		from, to := i*c.load.size, (i+1)*c.load.size
		c.jobs[i] = iodJob{rnd: rand.New(rand.NewPCG(1, uint64(i))), memory: msg.Memory{
			Windows: window(c.arena.Bytes()[from:to:to]), Access: seg.Contig(0, int64(c.load.size))}}
	}
	return nil
}

func (c *iodCaller) close() error {
	var failed []error
	if c.arena != nil && c.link != nil {
		c.link.node.Detach(c.arena)
		failed = append(failed, c.arena.Close())
	}
	c.arena, c.link, c.jobs = nil, nil, nil
	return errors.Join(append(failed, c.site.release())...)
}

// place is where the next request goes.
func (c *iodCaller) place(j *iodJob) int64 {
	bytes := c.load.bytes
	if bytes == 0 {
		bytes = c.site.spec.Bytes
	}
	n := (bytes - c.load.span()) / int64(c.load.size)
	if c.load.random {
		return j.rnd.Int64N(n+1) * int64(c.load.size)
	}
	return (c.next.Add(1) - 1) % (n + 1) * int64(c.load.size)
}

// span is how much of the object a request reaches over: every second piece is left out.
func (l *iodLoad) span() int64 {
	if l.pieces > 1 {
		return 2 * int64(l.size)
	}
	return int64(l.size)
}

// access is what a request asks for at off.
func (l *iodLoad) access(off int64) seg.Access {
	if l.pieces <= 1 {
		return seg.Contig(off, int64(l.size))
	}
	piece := int64(l.size / l.pieces)
	return seg.Strided(seg.Vector{Off: off, Block: piece,
		Dims: []seg.Dim{{Count: int64(l.pieces), Stride: 2 * piece}}})
}

// call is one request, or one for each piece.
func (c *iodCaller) call(ctx context.Context, t *iod.Target, j *iodJob) error {
	off := c.place(j)
	if c.load.apart {
		return c.callApart(ctx, t, j, off)
	}
	return c.one(ctx, t, c.load.access(off), &j.memory)
}

func (c *iodCaller) one(ctx context.Context, t *iod.Target, a seg.Access, m *msg.Memory) error {
	if !c.load.write {
		_, err := c.link.remote.Read(ctx, *t, a, m)
		return err
	}
	_, err := c.link.remote.Write(ctx, *t, a, m, c.load.class)
	return err
}

func (c *iodCaller) callApart(ctx context.Context, t *iod.Target, j *iodJob, off int64) error {
	piece := int64(c.load.size / c.load.pieces)
	buf := j.memory.Windows[0].Buf
	for i := range int64(c.load.pieces) {
		m := msg.Memory{Windows: window(buf[i*piece : (i+1)*piece]), Access: seg.Contig(0, piece)}
		if err := c.one(ctx, t, seg.Contig(off+2*i*piece, piece), &m); err != nil {
			return err
		}
	}
	return nil
}

// stream keeps depth requests under way.
func (c *iodCaller) stream(ctx context.Context, d time.Duration) (moved, error) {
	if err := c.open(ctx); err != nil {
		return moved{}, err
	}
	type result struct {
		ops int
		err error
	}
	results := make(chan result, c.load.depth)
	t := c.site.target()
	t.How = c.load.how
	quiet := context.WithoutCancel(ctx)
	m := moved{begin: time.Now()}
	end := m.begin.Add(d)
	for w := range c.load.depth {
		go func() {
			var r result
			for r.err == nil && (r.ops == 0 || time.Now().Before(end)) && ctx.Err() == nil {
				c.wait(m.begin, r.ops)
				if r.err = c.call(quiet, &t, &c.jobs[w]); r.err == nil {
					r.ops++
				}
			}
			results <- r
		}()
	}
	var failed error
	for range c.load.depth {
		r := <-results
		m.add(r.ops, c.load.size)
		if failed == nil {
			failed = r.err
		}
	}
	m.took = time.Since(m.begin)
	if errs.KindOf(failed) == errs.Expired {
		failed = errs.Newf(errs.Invalid, "bench iod", "", "one measurement lasts too long")
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return m, failed
}

// counted is a measurement before and after which the server is asked for its numbers: outside of
// what is measured, since asking takes time and memory.
func (c *iodCaller) counted(measure func(context.Context, time.Duration) (float64,
	error)) func(context.Context, time.Duration) (float64, error) {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		if err := c.open(ctx); err != nil {
			return 0, err
		}
		before, err := c.site.counts()
		if err != nil {
			return 0, err
		}
		v, err := measure(ctx, d)
		if err == nil {
			err = c.note(before)
		}
		return v, err
	}
}

// wait keeps a load to its pace.
func (c *iodCaller) wait(begin time.Time, ops int) {
	if c.load.pace == 0 {
		return
	}
	each := time.Duration(float64(c.load.size*c.load.depth) / float64(c.load.pace) * 1e9)
	time.Sleep(time.Until(begin.Add(time.Duration(ops) * each)))
}

// note makes extras of what the server counted meanwhile.
func (c *iodCaller) note(before map[string]float64) error {
	after, err := c.site.counts()
	if err != nil {
		return err
	}
	c.last = c.last[:0]
	since := func(name string) float64 { return after[name] - before[name] }
	if hits, misses := since("cache_hits"), since("cache_misses"); hits+misses > 0 {
		c.last = append(c.last, Extra{CacheHits, 100 * hits / (hits + misses)})
	}
	requests := since("requests_read")
	if !c.load.states || requests == 0 {
		return nil
	}
	for _, s := range requestStates() {
		c.last = append(c.last, Extra{StateTime + s, since("us_read_"+s) / requests})
	}
	return nil
}

// requestStates are what a server calls the parts of a request's life.
func requestStates() []string { return []string{"init", "disk", "send_init", "send", "fin"} }
