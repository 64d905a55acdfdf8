// Package relay moves one large request between a disk and a peer without a cache: chunk by chunk,
// so that the disk reads the next chunk while the last one is on its way, and over all members of a
// store at once. A peer is where the data goes to or comes from: a client of the I/O server or of a
// block export.
//
// Three ways to do it, for each request:
//
//	Plain     |read read read read|                     all of it, then it is sent: the baseline
//	                              |send send send send|
//	Single    |read|read|read|read|                     one chunk after the other, each leaves at
//	               |send|send|send|send|                once: 'synchronized send'
//	Multiple  |read|read|                               members work at the same time, chunks leave
//	          |read|read|                               in whatever order they come, each with its
//	               |send|send|send|send|                place: 'multiple streams'
//
// Writes are the reverse: disks write the first chunks while the next ones arrive.
//
// This package copies no data: disk and network use the same memory, which comes from Room. (The
// system that it is modelled on used memory of a card; a Room could do so too.)
//
// It knows neither the cache, nor the protocol, nor access rights: its user keeps direct and cached
// requests coherent, and does admission. A write that fails half-way, for example because the peer
// has died, has stored some of its chunks.
//
// Locks: Engine.mu and flow.mu, both leaves, held for memory only.
//
// Read relay.go first, then job.go (what a user sees), flow.go (which lane does which chunk, and
// when) and lane.go (the work on one).
package relay

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// BlockBytes is the unit of sums, and of the boundaries of chunks.
const BlockBytes = crc32c.BlockBytes

// Streams says how a request's chunks follow each other.
type Streams uint8

// The ways, see the package comment. The zero value is the engine's default.
const (
	Default Streams = iota
	Plain
	Single
	Multiple
	streamsEnd
)

// String is the way's name in options and figures.
func (s Streams) String() string {
	if s >= streamsEnd {
		return "unknown"
	}
	return [streamsEnd]string{"default", "plain", "single", "multiple"}[s]
}

// Disk is where the data lives: a stripe.Engine is one. See stripe.Summer and stripe.Store.
type Disk interface {
	ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64, sums []uint32) error
	WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64, sums []uint32,
		stamps []wire.Stamp, d stripe.Durability) error
	Sync(ctx context.Context, id stripe.ObjectID) error
}

// Placer tells which member holds what: a stripe.Engine is one. See stripe.Placer.
type Placer interface {
	Place(id stripe.ObjectID, off int64) (member int, run int64)
}

// Room gives memory that disk and network can use: aligned to BlockBytes, registered. Take waits
// until there is some; the piece has exactly n bytes, a multiple of BlockBytes. A lane that holds a
// piece does not take another one.
type Room interface {
	Take(ctx context.Context, bytes int) (Piece, error)
}

// Piece is memory on loan.
type Piece interface {
	Sges() []fabric.Sge
	Return()
}

// Options of an engine.
type Options struct {
	Disk  Disk   // required
	Room  Room   // required
	Place Placer // nil: everything is on one member

	// ChunkBytes is how much is read, sent or stored in one step, at most: a multiple of 4 KiB, from 4
	// KiB to 2 MiB. Default 128 KiB. A request that does not name a size itself, and has less than two
	// such chunks for each member, has smaller ones, down to 32 KiB: the last chunk is sent when no
	// disk works any more, and should be small. While other requests are under way chunks are twice as
	// large: disks and network are busy then, and each chunk has a fixed cost.
	ChunkBytes int

	// WindowBytes bounds the memory that one request has at a time. It is at least one chunk; a
	// Plain request takes its pieces in this size. Default 1 MiB for each member, up to 8 MiB.
	WindowBytes int64

	// Streams is the default of requests. Default Multiple.
	Streams Streams

	// Ahead is how many chunks of one request a member works on at the same time, with Multiple:
	// two keep a disk busy between one chunk and the next, more let one of several queues work
	// while others are emptied. 1 to 64; default 4.
	Ahead int

	// Workers is how many goroutines run lanes besides the requests' callers. A request that finds
	// none idle goes on with the lanes it has. Default 64.
	Workers int
}

// The limits of ChunkBytes.
const (
	ChunkMin = BlockBytes
	ChunkMax = 2 << 20

	chunkLeast = 32 << 10 // of those that the engine chooses
	chunksEach = 2        // chunks that a member has of a request, unless they would be smaller
	lanesMost  = 64       // of one request
)

func (o Options) withDefaults() Options {
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 128 << 10
	}
	if o.WindowBytes == 0 {
		o.WindowBytes = max(int64(min(o.members(), 8))<<20, int64(o.ChunkBytes))
	}
	if o.Streams == Default {
		o.Streams = Multiple
	}
	if o.Ahead == 0 {
		o.Ahead = 4
	}
	if o.Workers == 0 {
		o.Workers = 64
	}
	return o
}

// members is how many the placer has, if it says so.
func (o Options) members() int {
	if p, ok := o.Place.(interface{ Members() int }); ok {
		return max(p.Members(), 1)
	}
	return 1
}

func (o Options) validate() error {
	const op = "relay.New"
	switch {
	case o.Disk == nil || o.Room == nil:
		return errs.Newf(errs.Invalid, op, "", "no disk or no room for chunks")
	case !chunkFits(o.ChunkBytes):
		return errs.Newf(errs.Invalid, op, "", "ChunkBytes is %d; a multiple of %d, up to %d",
			o.ChunkBytes, ChunkMin, ChunkMax)
	case o.WindowBytes < int64(o.ChunkBytes) || o.WindowBytes > 1<<30:
		return errs.Newf(errs.Invalid, op, "", "WindowBytes is %d; from a chunk, %d, to 1 GiB",
			o.WindowBytes, o.ChunkBytes)
	case o.Streams >= streamsEnd:
		return errs.Newf(errs.Invalid, op, "", "Streams is %d; there are plain, single and multiple",
			o.Streams)
	case o.Ahead < 1 || o.Ahead > 64:
		return errs.Newf(errs.Invalid, op, "", "Ahead is %d; 1 to 64", o.Ahead)
	case o.Workers < 0 || o.Workers > 1<<14:
		return errs.Newf(errs.Invalid, op, "", "Workers is %d; 1 to %d", o.Workers, 1<<14)
	}
	return nil
}

func chunkFits(n int) bool { return n >= ChunkMin && n <= ChunkMax && n%BlockBytes == 0 }

// Engine moves requests. Safe for concurrent use.
type Engine struct {
	opt     Options
	workers sync.WaitGroup
	flows   sync.Pool
	count   counters

	mu     sync.Mutex
	wake   sync.Cond // a request asks for a worker, or the engine is closed
	asking []*flow   // requests that could use one more, in their order
	active int       // requests under way
	closed bool
	over   bool
	idle   chan struct{} // closed when the last one ends after Close
}

type counters struct{ reads, writes, chunks, bytes, helped atomic.Uint64 }

// Stats count since the start.
type Stats struct {
	Reads, Writes uint64 // requests
	Chunks        uint64
	Bytes         uint64
	Helped        uint64 // times that a worker joined a request
}

// New starts an engine.
func New(o Options) (*Engine, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	e := &Engine{opt: o, idle: make(chan struct{})}
	e.wake.L = &e.mu
	for range o.Workers {
		e.workers.Go(e.help)
	}
	return e, nil
}

// help is a worker: it joins requests that ask for one.
func (e *Engine) help() {
	var l lane
	for {
		f := e.next()
		if f == nil {
			return
		}
		e.count.helped.Add(1)
		l.run(f)
		f.lanes.Done()
	}
}

// next waits for a request that asks; nil at the end.
func (e *Engine) next() *flow {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.asking) == 0 && !e.over {
		e.wake.Wait()
	}
	if len(e.asking) == 0 {
		return nil
	}
	f := e.asking[0]
	e.dropLocked(0)
	f.lanes.Add(1) // before its caller can withdraw the request (forget)
	return f
}

func (e *Engine) dropLocked(i int) {
	last := len(e.asking) - 1
	copy(e.asking[i:], e.asking[i+1:])
	e.asking[last] = nil
	e.asking = e.asking[:last]
}

// ask makes a worker join the flow as soon as one is idle.
func (e *Engine) ask(f *flow) {
	e.mu.Lock()
	if !f.alone {
		e.asking = append(e.asking, f)
	}
	e.mu.Unlock()
	e.wake.Signal()
}

// forget withdraws what the flow has asked for and not got. A lane that asks after that gets
// nothing.
func (e *Engine) forget(f *flow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f.alone = true
	for i := len(e.asking) - 1; i >= 0; i-- {
		if e.asking[i] == f {
			e.dropLocked(i)
		}
	}
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	c := &e.count
	return Stats{Reads: c.reads.Load(), Writes: c.writes.Load(), Chunks: c.chunks.Load(),
		Bytes: c.bytes.Load(), Helped: c.helped.Load()}
}

// Close waits for the requests under way, refuses others with errs.Closed, and ends the workers.
// Closing twice is allowed.
func (e *Engine) Close() {
	e.mu.Lock()
	was := e.closed
	e.closed = true
	if !was && e.active == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
	<-e.idle
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.wake.Broadcast()
	e.workers.Wait()
}

// enter counts a request, and tells whether others are under way.
func (e *Engine) enter(op string) (others bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false, errs.New(errs.Closed, op, "", nil)
	}
	e.active++
	return e.active > 1, nil
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active--; e.active == 0 && e.closed {
		close(e.idle)
	}
}
