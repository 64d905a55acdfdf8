// Package writeback is the highest of the unifier's three parts: it brings writes to the backing,
// at once or a little later, and keeps the order in which they must arrive.
//
// A write is received into a Draft, which Publish makes what everybody reads. A draft that goes
// through is in the backing when Publish returns. A pending one is acknowledged before; it stays in
// the Writer's queues, with its memory, until a flusher has written it. Whoever goes to the backing
// himself, past this package, settles first what is pending there.
//
// The draft's memory belongs to the caller from Draft to Publish or Abort, and to the Writer
// afterwards; whole units of a pending draft are held in the index meanwhile, so that they neither
// change nor are evicted before the backing has them.
//
// Writer.mu guards the queues and what is remembered of them. Order of locks: a range lock of the
// index (held over calls of the backing), Writer.mu, the index's lock, then those inside gates
// and stripe.Sessions. Writer.mu is not held across a call of the backing that reads or writes,
// nor across a wait. What is pending of a range changes only under its range lock, but for
// becoming less: that is why looking at the queues and locking the index need not be one step.
//
// It calls the index and the memory below it, and nothing above. Loss of pending writes is told by
// Losses and Config.OnLoss.
//
// Read draft.go and publish.go first (life of a write), then pending.go, flush.go and merge.go (in
// which order what goes to the backing), and since.go (what comes again after a loss).
package writeback

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/freelist"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/wire"
)

// Backing is what the cache needs of a store, with the meaning that package stripe gives it.
// Buffers belong to the backing only during a call. A backing that is a stripe.Admitter too can be
// written back to, and tells repeated requests; the end of objects, where readahead stops, is known
// of one that is a stripe.Stater.
type Backing interface {
	ReadSums(ctx context.Context, id index.Key, bufs [][]byte, off int64, sums []uint32) error
	WriteSums(ctx context.Context, id index.Key, bufs [][]byte, off int64, sums []uint32,
		stamps []wire.Stamp, d stripe.Durability) error
	Sync(ctx context.Context, id index.Key) error
}

const flushers = 2 // goroutines that write back

// Config of a writer. DraftBytes are what drafts may hold; DirtyBytes what may be pending, 0: every
// write goes through; DirtyAge is how long it may be. OnLoss may be nil.
type Config struct {
	DraftBytes, DirtyBytes int64
	DirtyAge               time.Duration
	OnLoss                 func(id index.Key, err error)
}

// Writer brings drafts to the backing. Make one with New. Safe for concurrent use.
type Writer struct {
	cfg      Config
	index    *index.Index
	backing  Backing
	admitter stripe.Admitter // nil: the backing is none
	keeper   keeper          // the same
	placer   stripe.Placer   // of a backing of several members; nil: it is one place

	mergeMax int64 // bytes of a run that is not one stretch

	drafts *gate.Gate // bytes of drafts
	dirty  *gate.Gate // bytes of pending writes; nil: all go through

	losses   atomic.Uint64
	closed   atomic.Bool
	waiting  atomic.Int64                    // pending writes
	promised atomic.Int64                    // space of the store that they may need
	sessions atomic.Pointer[stripe.Sessions] // requests that were pending, or are

	life     context.Context // ends with the writer
	kill     context.CancelFunc
	flushers sync.WaitGroup

	freeDrafts freelist.List[Draft] // guarded by the index's lock

	mu         sync.Mutex
	pending    list.List[Draft] // of all objects, oldest first
	queues     map[index.Key]*queue
	slots      map[stripe.SessionSlot]*Draft // the last pending write of each
	order      uint64
	dirtyBytes int64
	full       int                // queues that are
	through    map[index.Key]bool // objects that are not written back to
	since      since              // what was changed, see since.go
	flushing   bool               // the flushers run
	kick       chan struct{}
	flushed    wait.Queue // those who wait until some write has reached the backing
	stats      Stats

	freeQueues freelist.List[queue]
	freeRuns   freelist.List[run]
}

// keeper is a backing that knows of lives.
type keeper interface {
	stripe.Keeper
	stripe.Stater
}

// Draft is memory for one write that nobody else can see. It ends with Publish or Abort. A
// draft is used by one goroutine at a time.
//
// Whole units of the pieces get blocks of their own, which Publish exchanges for the cached
// ones without a copy. Parts of units are packed behind each other, since they are merged by
// copying in any case: so a thousand small pieces do not take a thousand units.
//
// Where writes are written back later, the draft is also what waits for that: see pending.go.
type Draft struct {
	w       *Writer
	pub     index.Publication // its memory, and the units that it became
	pieces  []seg.Piece
	sges    []fabric.Sge
	chunks  []uint32 // sums of what has arrived, as the sender sums it
	bytes   [][]byte // what the backing gets, piece by piece
	cuts    []int    // where in bytes each piece ends
	sumAt   []int    // where in pub.Sums each piece begins; -1: it does not consist of blocks
	one     [1]wire.Stamp
	stamp   wire.Stamp
	size    int64
	held    int64 // of the drafts' share, or of the dirty bytes while it is pending
	through bool  // it will not be pending
	again   bool  // it was acknowledged once, see since.go
	summed  bool
	live    bool

	// While it is pending. Guarded by Writer.mu.
	order         uint64           // among all pending writes
	at            time.Time        // when it was published
	before, after *Draft           // pending writes of the same slot, by their numbers
	flying        bool             // it is being written
	inRun         int              // its place in the run that writes it
	inQueue       list.Link[Draft] // of its object
	inAll         list.Link[Draft] // in Writer.pending
}

// queue is what is pending of one object. It exists while something is. Guarded by Writer.mu.
type queue struct {
	obj      *index.Object // open while something is pending of it
	drafts   list.List[Draft]
	units    map[int64]int32 // how many of the drafts touch a unit
	flushing bool            // somebody writes the first ones back
	bytes    int64           // of the drafts
	row      int64           // bytes that were written one behind the other, up to the last draft
	full     bool            // see fullLocked
	most     int             // pieces that the next run looks at; 0: piecesMax
}

// run is what is written back of one object in one step: see merge.go.
type run struct {
	placer stripe.Placer // as the writer's
	drafts []*Draft
	parts  []part // the drafts' pieces by offset, unless there is one whose pieces do not rise
	calls  []call // likewise
	spare  []part // for sorting, as ends
	ends   []int
	last   []int // which call has the last piece of each draft
	stamps []wire.Stamp
	ways   [lanes]exchange // memory of calls that are being made
	next   atomic.Int64    // of calls
}

// New makes a writer with nothing pending.
func New(cfg Config, x *index.Index, backing Backing) *Writer {
	w := &Writer{
		cfg: cfg, index: x, backing: backing,
		drafts: gate.New(gate.Options{Bytes: cfg.DraftBytes}),
		queues: map[index.Key]*queue{}, slots: map[stripe.SessionSlot]*Draft{},
		through: map[index.Key]bool{}, kick: make(chan struct{}, flushers),
	}
	w.admitter, _ = backing.(stripe.Admitter)
	w.keeper, _ = backing.(keeper)
	if p, ok := backing.(stripe.Placer); ok && p.Members() > 1 {
		w.placer = p
	}
	if cfg.DirtyBytes > 0 {
		w.dirty = gate.New(gate.Options{Bytes: cfg.DirtyBytes})
		w.mergeMax = cfg.DirtyBytes / 2
	}
	w.sessions.Store(&stripe.Sessions{})
	w.life, w.kill = context.WithCancel(context.Background())
	return w
}

// Stop lets nothing more become pending, and returns when the flushers have ended. What is pending
// then stays so: Flush writes it.
func (w *Writer) Stop() {
	w.mu.Lock()
	w.closed.Store(true)
	w.mu.Unlock()
	w.kill()
	w.flushers.Wait()
}

// Losses is unifier.Cache.Losses.
func (w *Writer) Losses() uint64 { return w.losses.Load() }

// Promised is how many bytes of the store pending writes may need.
func (w *Writer) Promised() int64 { return w.promised.Load() }

// Stats describe a writer at one moment.
type Stats struct {
	Flushes  uint64 // runs of pending data: see merge.go
	Flushed  uint64 // requests that were written so
	Losses   uint64 // times that pending writes were lost
	Dirty    int64  // bytes pending now
	Promised int64  // bytes of the store that they may need
	Drafted  int64  // bytes held by drafts now
	Waits    uint64 // for the drafts' share
}

// Stats tells how writes fare.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, use := w.stats, w.drafts.Usage()
	s.Losses, s.Dirty, s.Promised = w.losses.Load(), w.dirtyBytes, w.promised.Load()
	s.Drafted, s.Waits = use.Bytes, use.Waits
	return s
}
