// Package delay makes a fast network slow: completions are held back for a fixed or random time,
// and a bandwidth limit holds them back until their bytes would have passed. It is for people who
// want to see on one host what a slow network does to a program.
//
// It moves no data later than the provider does: what is delayed is that a side learns of it. So a
// limit slows down the side whose domain is wrapped, by holding its places in the send and receive
// queues; to slow down both directions wrap both. Bytes that the peer writes or reads in this
// side's memory are the peer's to limit. Failures are not delayed, and the death or Close of an
// endpoint lets everything go that was held for it. Times are as exact as the host's timers, about
// a millisecond, or better where the queue's Spin allows; what is late does not add up.
//
// Each endpoint's completions keep the order in which the provider gave them out, which is stricter
// than the contract: no Read overtakes another. A place that a silent request holds is free with
// the next signalled completion, as late as the contract allows.
//
// A wrapped queue has one goroutine, which waits in the queue below and ends with the queue or the
// domain; it uses no timer, and who waits uses one however many completions come. A queue with
// SolicitedOnly needs a queue below that is a fabric.Waker; a completion that Poll found and that
// was not due yet counts as solicited for a Wait that comes then.
//
// Read delay.go first, then queue.go (how completions wait), lane.go and endpoint.go (places).
package delay

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook"
)

// Span is a time between two bounds, drawn evenly; exactly Min where Max is not above it.
type Span struct{ Min, Max time.Duration }

// Options of a slow domain. The zero value delays nothing.
type Options struct {
	// Seed decides the random times.
	Seed uint64

	// Delay is how long each completion is held back, from the moment at which the provider
	// completed the request. Default 0.
	Delay Span

	// Ops replaces Delay for some operations; fabric.OpRecv are receives.
	Ops map[fabric.Op]Span

	// Bandwidth, in bytes per second, is what passes in each of the two directions: out by Sends
	// and Writes, in by Reads and received messages. Default 0: no limit.
	Bandwidth int64

	// Burst, in bytes, passes at once after a pause. Default 64 KiB.
	Burst int64

	// PerEndpoint gives the bandwidth to each endpoint. Default: all of the domain share it.
	PerEndpoint bool
}

func (o Options) withDefaults() Options {
	if o.Burst == 0 {
		o.Burst = 64 << 10
	}
	return o
}

func (o Options) validate() error {
	spans := []Span{o.Delay}
	for _, s := range o.Ops {
		spans = append(spans, s)
	}
	for _, s := range spans {
		if s.Min < 0 || s.Max < 0 || max(s.Min, s.Max) > time.Hour {
			return errs.Newf(errs.Invalid, "delay.New", "", "a delay out of range: %v", s)
		}
	}
	if o.Bandwidth < 0 || o.Burst < 0 {
		return errs.Newf(errs.Invalid, "delay.New", "", "negative bandwidth or burst")
	}
	return nil
}

// Domain is a domain on a slow network. Safe for concurrent use.
type Domain struct {
	*hook.Domain
	opts  Options
	spans [fabric.OpRecv + 1]Span
	start time.Time
	rates *rates // shared by all endpoints; nil with PerEndpoint

	mu     sync.Mutex
	queues map[*queue]struct{} // open
	made   uint64              // queues, ever
	closed bool
}

// New wraps a domain.
func New(inner fabric.Domain, opts Options) (*Domain, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	d := &Domain{opts: opts, start: time.Now(), queues: map[*queue]struct{}{}}
	for op := range d.spans {
		d.spans[op] = opts.Delay
		if s, ok := opts.Ops[fabric.Op(op)]; ok {
			d.spans[op] = s
		}
	}
	if !opts.PerEndpoint {
		d.rates = d.newRates()
	}
	d.Domain = hook.Wrap(inner, hook.Layer{
		Connect: d.connect, Connected: d.connected, Endpoint: d.newEndpoint, CQ: d.newQueue,
	})
	return d, nil
}

// Close implements fabric.Domain. What was held back can be polled at once.
func (d *Domain) Close() error {
	err := d.Domain.Close()
	d.mu.Lock()
	d.closed = true
	queues := make([]*queue, 0, len(d.queues))
	for q := range d.queues {
		queues = append(queues, q)
	}
	d.mu.Unlock()
	for _, q := range queues {
		q.retire()
	}
	return err
}

// now is the time since the domain was opened, in nanoseconds.
func (d *Domain) now() int64 { return int64(time.Since(d.start)) }

// rates are the two directions of a limited line.
type rates struct{ out, in bucket }

func (d *Domain) newRates() *rates {
	b := bucket{rate: float64(d.opts.Bandwidth), burst: d.opts.Burst}
	r := &rates{}
	r.out.rate, r.out.burst = b.rate, b.burst
	r.in.rate, r.in.burst = b.rate, b.burst
	return r
}

// bucket limits bytes by telling when they have passed.
type bucket struct {
	rate  float64 // bytes per second; 0: no limit
	burst int64

	mu   sync.Mutex
	next int64 // when everything so far has passed
}

// charge tells when bytes that are handed in now have passed.
func (b *bucket) charge(now int64, bytes int) int64 {
	if b.rate == 0 {
		return now
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	idle := now - int64(float64(b.burst)/b.rate*1e9)
	b.next = max(b.next, idle) + int64(float64(bytes)/b.rate*1e9)
	return b.next
}
