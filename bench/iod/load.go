package iod

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// load is what is asked of a server.
type load struct {
	write, random bool
	class         stripe.Durability // of a write
	size, depth   int
	bytes         int64 // the part of the data that it goes through; 0: all
	pieces        int   // of one request; 0: one
	apart         bool  // pieces are requests of their own
	how           iod.How
	states        bool // tell where requests spend their time
	arrivals      bool // tell when each chunk of a request arrives, see arrivals.go
}

// caller is this side of a contender: memory for depth requests, in an arena that the node
// knows, and a connection to the server by one provider.
type caller struct {
	site     *site
	provider string
	load     load

	undo bench.Undo
	link *siteLink
	jobs []job
	next atomic.Int64
}

// job is one of the requests that are under way.
type job struct {
	memory msg.Memory
	rnd    *rand.Rand
}

func (c *caller) open(ctx context.Context) (err error) {
	if c.jobs != nil {
		return nil
	}
	if c.link, err = c.site.link(ctx, c.provider); err != nil {
		return err
	}
	arena, err := c.link.arena(c.load.size*c.load.depth, &c.undo)
	if err != nil {
		return err
	}
	store.Noise(arena.Bytes())
	c.jobs = make([]job, c.load.depth)
	for i := range c.jobs {
		from, to := i*c.load.size, (i+1)*c.load.size
		c.jobs[i] = job{rnd: rand.New(rand.NewPCG(1, uint64(i))), memory: msg.Memory{
			Windows: window(arena.Bytes()[from:to:to]), Access: seg.Contig(0, int64(c.load.size))}}
	}
	return nil
}

func (c *caller) close() error {
	c.link, c.jobs = nil, nil
	return errors.Join(c.undo.Close(), c.site.release())
}

// place is where the next request goes.
func (c *caller) place(j *job) int64 {
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
func (l *load) span() int64 {
	if l.pieces > 1 {
		return 2 * int64(l.size)
	}
	return int64(l.size)
}

// access is what a request asks for at off.
func (l *load) access(off int64) seg.Access {
	if l.pieces <= 1 {
		return seg.Contig(off, int64(l.size))
	}
	piece := int64(l.size / l.pieces)
	return seg.Strided(seg.Vector{Off: off, Block: piece,
		Dims: []seg.Dim{{Count: int64(l.pieces), Stride: 2 * piece}}})
}

// call is one request, or one for each piece.
func (c *caller) call(ctx context.Context, t *iod.Target, j *job) error {
	off := c.place(j)
	if c.load.apart {
		return c.callApart(ctx, t, j, off)
	}
	return c.one(ctx, t, c.load.access(off), &j.memory)
}

func (c *caller) one(ctx context.Context, t *iod.Target, a seg.Access, m *msg.Memory) error {
	if !c.load.write {
		_, err := c.link.remote.Read(ctx, *t, a, m)
		return err
	}
	_, err := c.link.remote.Write(ctx, *t, a, m, c.load.class)
	return err
}

func (c *caller) callApart(ctx context.Context, t *iod.Target, j *job, off int64) error {
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

// measure keeps all requests under way.
func (c *caller) measure(ctx context.Context, d time.Duration) (bench.Result, error) {
	if err := c.open(ctx); err != nil {
		return bench.Result{}, err
	}
	t := c.site.target()
	t.How = c.load.how
	quiet := context.WithoutCancel(ctx)
	r, err := bench.Load{Depth: c.load.depth, Size: c.load.size, Op: func(w, _ int) error {
		return c.call(quiet, &t, &c.jobs[w])
	}}.Run(ctx, d)
	if errs.KindOf(err) == errs.Expired {
		err = errs.Newf(errs.Invalid, "bench iod", "", "one measurement lasts too long")
	}
	return r, err
}

// counted is a measurement before and after which the server is asked for its numbers: outside of
// what is measured, since asking takes time and memory.
func (c *caller) counted(measure bench.Measure) bench.Measure {
	return func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
		if err := c.open(ctx); err != nil {
			return r, err
		}
		before, err := c.site.counts()
		if err != nil {
			return r, err
		}
		if r, err = measure(ctx, d); err != nil {
			return r, err
		}
		after, err := c.site.counts()
		r.Extras = c.extras(func(name string) float64 { return after[name] - before[name] })
		return r, err
	}
}

// extras are what the server counted meanwhile.
func (c *caller) extras(since func(name string) float64) []bench.Extra {
	var all []bench.Extra
	if hits, misses := since("cache_hits"), since("cache_misses"); hits+misses > 0 {
		all = append(all, bench.Extra{Metric: bench.CacheHits, Value: 100 * hits / (hits + misses)})
	}
	requests := since("requests_read")
	if !c.load.states || requests == 0 {
		return all
	}
	for _, s := range requestStates() {
		all = append(all,
			bench.Extra{Metric: bench.StateTime + s, Value: since("us_read_"+s) / requests})
	}
	return all
}

// requestStates are what a server calls the parts of a request's life.
func requestStates() []string { return []string{"init", "disk", "send_init", "send", "fin"} }
