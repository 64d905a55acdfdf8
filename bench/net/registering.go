package net

import (
	"context"
	"math"
	"runtime"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/msg"
)

// This file measures what it costs that a device moves registered memory only: registering and its
// end alone, and requests whose data is registered for each of them, or once, by a cache. Where
// there is no such device there are no contenders.

// registers tells whether a provider moves registered memory only.
func registers(provider string) bool { return provider == Verbs }

// pinning is how the memory of requests is registered.
type pinning uint8

const (
	forLife  pinning = iota // with the arena that it lies in
	byCache                 // by a cache of registrations, which keeps them
	eachTime                // for each request, and not longer
)

// pinnings are the ways that are compared, by what their rows are called.
func pinnings() []struct {
	name string
	how  pinning
} {
	return []struct {
		name string
		how  pinning
	}{{"each time", eachTime}, {"cached", byCache}, {"for life", forLife}}
}

// pinned is requests with n bytes of data, which their receiver fetches: one at a time, or several.
func (b *Bench) pinned(name string, n, depth int, metric string) bench.Case {
	c := newCase(name+"-"+bench.SizeName(n),
		"requests whose data is registered each time, by a cache, or for life", n, depth, metric)
	for _, p := range b.Providers {
		if !registers(p) {
			continue
		}
		for _, way := range pinnings() {
			l := Load{Op: OpTake, Size: n, Depth: depth, timed: depth == 1, pinning: way.how}
			l.args.Limits = msg.Limits{EagerMax: -1}
			by := b.Contender(p, p+", "+way.name, "", l)
			by.Ceiling = p + ", each time"
			c.Add(by)
		}
	}
	return c
}

// ownMemory gives each request memory of this program's own, of which the provider knows nothing.
func (c *caller) ownMemory() error {
	if c.load.pinning == byCache {
		// Registering looks as if it cost nothing, so that the cache never has anything copied.
		cache, err := regcache.New(c.domain.Domain, regcache.Options{
			Costs: regcache.Costs{Each: 1, Page: 1, Copy: math.MaxInt32}})
		if err != nil {
			return err
		}
		c.cache = cache
		c.undo.Later(cache.Close)
	}
	var pin runtime.Pinner
	c.undo.Later(func() error { pin.Unpin(); return nil })
	for i := range c.jobs {
		buf := make([]byte, c.load.Size)
		for at := range buf {
			buf[at] = byte(at)
		}
		pin.Pin(&buf[0])
		c.setJob(i, buf)
		c.jobs[i].mem.Domain = c.domain.Domain
	}
	return nil
}

// callPinned is one request with memory that is registered for it.
func (c *caller) callPinned(ctx context.Context, j *job) error {
	if c.load.pinning == byCache {
		c.cache.Take(&j.use, j.mem.Windows, nil)
		defer j.use.End()
		return c.conn.Call(ctx, &j.req, &j.rep)
	}
	region, err := c.domain.Domain.Register(j.buf)
	if err != nil {
		return err
	}
	j.mem.Windows[0].Reg = region
	err = c.conn.Call(ctx, &j.req, &j.rep)
	if e := region.Close(); err == nil {
		err = e
	}
	return err
}

// together is how many registrations the paper ends at once.
const together = 60

// registering is what one registration of n bytes costs, and its end: alone, and of many in a row.
func (b *Bench) registering(n int) bench.Case {
	c := newCase("registering-"+bench.SizeName(n),
		"registering memory, and ending it: the time of one, also where 60 are ended in a row", n, 1,
		bench.Latency)
	for _, p := range b.Providers {
		if !registers(p) {
			continue
		}
		for _, way := range []struct {
			name  string
			count int
			end   bool
		}{{"register", 1, false}, {"deregister", 1, true}, {"deregister 60", together, true}} {
			r := &registrar{b: b, provider: p, bytes: n, count: way.count, end: way.end}
			c.Add(bench.Contender{Provider: p + ", " + way.name, Ceiling: p + ", register",
				Optional: true, Measure: r.measure, Close: r.undo.Close})
		}
	}
	return c
}

// registrar registers memory and ends it, and times one of both.
type registrar struct {
	b        *Bench
	provider string
	bytes    int
	count    int  // how many are made, and then ended
	end      bool // the end is timed
	undo     bench.Undo

	domain  fabric.Domain
	memory  [][]byte
	regions []fabric.Region
}

func (r *registrar) open() error {
	if r.domain != nil {
		return nil
	}
	d, err := r.b.Open(r.provider)
	if err != nil {
		return err
	}
	r.domain = d.Domain
	r.undo.Later(d.Domain.Close)
	var pin runtime.Pinner
	r.undo.Later(func() error { pin.Unpin(); return nil })
	for range r.count {
		buf := make([]byte, r.bytes)
		for at := 0; at < len(buf); at += movePage {
			buf[at] = 1 // so that the page is there
		}
		pin.Pin(&buf[0])
		r.memory = append(r.memory, buf)
	}
	return nil
}

// once makes the registrations and ends them. It tells what one of either took.
func (r *registrar) once() (took time.Duration, err error) {
	begin := time.Now()
	for _, buf := range r.memory {
		var region fabric.Region
		if region, err = r.domain.Register(buf); err != nil {
			break
		}
		r.regions = append(r.regions, region)
	}
	made := time.Now()
	for _, region := range r.regions {
		if e := region.Close(); err == nil {
			err = e
		}
	}
	ended := time.Now()
	count := time.Duration(max(len(r.regions), 1))
	r.regions = r.regions[:0]
	if r.end {
		return ended.Sub(made) / count, err
	}
	return made.Sub(begin) / count, err
}

func (r *registrar) measure(ctx context.Context, d time.Duration) (res bench.Result, err error) {
	if err := r.open(); err != nil {
		return res, err
	}
	var times []float64
	for start := time.Now(); len(times) == 0 || time.Since(start) < d && ctx.Err() == nil; {
		took, err := r.once()
		if err != nil {
			return res, err
		}
		times = append(times, float64(took.Nanoseconds())/1e3)
		res.Took = time.Since(start)
	}
	res.Value = bench.Median(times)
	return res, ctx.Err()
}
