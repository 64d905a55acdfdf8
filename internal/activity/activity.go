// Package activity keeps what a process is doing for people who watch it: how many requests of each
// operation there were and how long they took, who asked and about what, which requests were the
// slowest of the last minute, and which are under way for long. It takes no lock and allocates
// nothing for a request, except to note one of the slowest.
//
// Everything is bounded. Numbers grow for ever, and whoever looks twice knows what happened in
// between; a Snapshot is what is shown to them. It does not know what operations, clients and
// objects are: they are numbers here, and names where they are shown.
//
// Read activity.go first, then hist.go, table.go, slow.go, snapshot.go.
package activity

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Op is an operation.
type Op struct {
	Name  string // "" has no number of its own: it is not shown
	Waits bool   // it waits for something to happen: how long it takes tells nothing
}

// PhasesMax is how many phases of a request are told apart.
const PhasesMax = 6

// Options of a Recorder.
type Options struct {
	// Ops are the operations, by number. Required.
	Ops []Op

	// Phases are names of the phases of a request, by number, at most PhasesMax: where the time of a
	// slow one went. Default: none are told apart.
	Phases []string
}

// Recorder takes note of requests. Safe for concurrent use.
type Recorder struct {
	opts    Options
	base    time.Time
	ops     []histogram
	clients table
	objects table
	slow    slow
	under   [underMax]running
}

// underMax is how many requests under way are known one by one. Those beyond are counted like all.
const underMax = 512

// New makes a Recorder.
func New(opts Options) *Recorder {
	r := &Recorder{opts: opts, base: time.Now(), ops: make([]histogram, len(opts.Ops))}
	r.clients.init(clientsMax)
	r.objects.init(objectsMax)
	r.slow.floor.Store(int64(slowMin))
	for i := range r.under {
		r.under[i].start.Store(free)
	}
	return r
}

// Base is what all times are counted from.
func (r *Recorder) Base() time.Time { return r.base }

// Now is the time since Base. It is quicker than time.Now.
func (r *Recorder) Now() time.Duration { return time.Since(r.base) }

// running is a place for a request under way. Fields are written by who has it and read by who
// looks on.
type running struct {
	start  atomic.Int64  // free: nobody has it
	what   atomic.Uint32 // operation, phase and whether the rest is told
	client atomic.Uint64
	object atomic.Uint64
	_      [32]byte // one to a line of the processor's cache
}

const (
	free      = math.MaxInt64
	phaseBits = 16
	phaseMask = 0x7fff << phaseBits
	opMask    = 1<<phaseBits - 1
	told      = 1 << 31
)

// Request is one that is under way. It is the caller's, who passes it to nobody else.
type Request struct {
	r      *Recorder
	at     *running // nil: all places were taken
	op     int
	what   uint32
	start  time.Duration
	client uint64
	object uint64
}

// Begin takes note of a request that began at a time since Base. An operation that is not known is
// not noted.
func (r *Recorder) Begin(op int, now time.Duration) Request {
	q := Request{r: r, op: op, start: now, what: uint32(op) & opMask}
	if op < 0 || op >= len(r.ops) {
		q.r = nil
		return q
	}
	// Neighbours in time are not neighbours in memory, and no counter is shared to find a place.
	first := rand.Uint32()
	for i := range uint32(4) {
		p := &r.under[(first+i)%underMax]
		if p.start.Load() == free && p.start.CompareAndSwap(free, int64(now)) {
			q.at = p
			p.what.Store(q.what)
			break
		}
	}
	return q
}

// Of says who asks and about what; 0 is nobody and nothing.
func (q *Request) Of(client, object uint64) {
	q.client, q.object = client, object
	if q.at != nil {
		q.at.client.Store(client)
		q.at.object.Store(object)
		q.what |= told
		q.at.what.Store(q.what)
	}
}

// Enter says which phase the request is in from now on.
func (q *Request) Enter(phase uint8) {
	if q.at != nil {
		q.what = q.what&^phaseMask | uint32(phase)<<phaseBits
		q.at.what.Store(q.what)
	}
}

// Forget ends a request that does not count.
func (q *Request) Forget() {
	if q.at != nil {
		q.at.start.Store(free)
	}
	q.r, q.at = nil, nil
}

// Done is what has become of a request.
type Done struct {
	Read, Written int64 // bytes
	Failed        bool
	Name          string                   // what it was about, in a word; copied if it is kept
	Phases        [PhasesMax]time.Duration // how long it was in each
}

// End takes note of the request's end at a time since Base.
func (q *Request) End(now time.Duration, d *Done) {
	r := q.r
	if r == nil {
		return
	}
	if q.at != nil {
		q.at.start.Store(free)
	}
	took := max(now-q.start, 0)
	r.ops[q.op].add(took, d.Failed)
	if q.client != 0 {
		r.clients.find(q.client, now).add(now, d)
	}
	if q.object != 0 {
		r.objects.find(q.object, now).add(now, d)
	}
	if !r.opts.Ops[q.op].Waits && r.slow.wants(now, took) {
		r.slow.note(now, took, q, d)
	}
}
