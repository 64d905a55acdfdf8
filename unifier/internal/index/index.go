// Package index is the middle one of the unifier's three parts: it knows which units of which
// objects are cached and where in memory they are, who holds them, who is at work on them, and
// which of them goes first when memory is needed.
//
// A unit's memory belongs to the index until it is evicted or dropped and nobody holds it
// any more. Its bytes change only while nobody holds it: whoever changes a unit that is held makes
// a new version (Exchange), and the holders keep the old one. A Loan holds units for a reader; a
// Publication is memory of a writer that becomes units; a Fill is units whose bytes are on their
// way; a RangeLock keeps fills and publications of the same units apart.
//
// There is one lock for the index and the memory below it, Index.Lock, because finding a unit,
// holding it, evicting others for it and taking their memory is one step. Everything here is
// called under that lock, unless it says otherwise. It is never held across a call of the backing,
// a mapping, a wait or a copy of more than mergeInPlace bytes: methods that take a context may let
// go of it and wait, and say so. Unlock serves those who wait for memory from what its holder has
// freed.
//
// The index calls package memory and nothing above it. Whether something is pending, and what the
// backing holds, it does not know: whoever runs a fill settles and reads.
//
// Read unit.go first, then table.go, lend.go (life of a read), exchange.go (life of a write),
// rangelock.go (who waits for whom), policy.go (what stays) and ahead.go (readahead).
package index

import (
	"math/bits"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/freelist"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Config of an index. Bytes.
type Config struct {
	UnitBytes int   // of objects without a hint
	LoanMax   int64 // that loans may hold
	DirtyMax  int64 // of units that pending writes may hold
	AheadMax  int64 // the largest window ahead of a stream; 0: no readahead
	AheadAll  int64 // that may be read ahead and not asked for yet
}

// Index of what is cached. Make one with New.
type Index struct {
	Memory *memory.Pool

	cfg Config

	mu         sync.Mutex
	closed     bool
	objects    map[Key]*Object
	table      []*Unit
	tableShift uint8
	policy     policy
	ahead      readahead
	stats      Stats

	freeObjects freelist.List[Object]
	freeUnits   freelist.List[Unit]
	freeFills   freelist.List[Fill]
	freeLoans   freelist.List[Loan]
}

// New makes an empty index, and the memory below it.
func New(cfg Config, mem memory.Config) (*Index, error) {
	x := &Index{cfg: cfg, objects: map[Key]*Object{}}
	pool, err := memory.New(mem, &x.mu, x)
	if err != nil {
		return nil, err
	}
	x.Memory = pool
	x.policy.init(mem.Bytes)
	x.ahead.window = cfg.AheadMax
	buckets := uint64(mem.Bytes >> memory.SlabShift * 4)
	x.tableShift = uint8(64 - bits.Len64(buckets))
	x.table = make([]*Unit, 1<<(64-x.tableShift))
	return x, nil
}

// Lock takes the lock of index and memory.
func (x *Index) Lock() { x.mu.Lock() }

// Unlock serves those who wait for memory, and lets go of the lock.
func (x *Index) Unlock() {
	x.Memory.Serve()
	x.mu.Unlock()
}

// Stop refuses all requests from now on, those who wait included.
func (x *Index) Stop() {
	x.closed = true
	x.Memory.Stop()
}

// Closed is an error with errs.Closed after Stop.
func (x *Index) Closed(op string, id Key) error {
	if x.closed {
		return errs.New(errs.Closed, op, id.String(), nil)
	}
	return nil
}

// Stats describe an index at one moment. Those that count do so since it was made.
type Stats struct {
	Hits, Misses      uint64 // units asked for that were there, or were not
	Evictions         uint64 // units that made room
	GhostHits         uint64 // units asked for soon after they were evicted
	Exchanged, Merged uint64 // units published without a copy; units into which a part was merged
	Dropped           uint64 // units that a write or a change took out
	ReaderWaits       uint64 // how often a writer waited for a reader
	Ahead             uint64 // units read ahead
	AheadUsed         uint64 // of which somebody asked for
	AheadWasted       uint64 // of which nobody did before they were gone
	AheadWindow       int64  // bytes, the largest window that streams get now
	AheadBytes        int64  // read ahead and not asked for yet
	Bytes             int64  // cached now
	Protected         int64  // bytes that a scan does not sweep out
	ProtectedMax      int64  // bytes, as many as there may be
	Kept              int64  // bytes that are evicted last
	Objects           int    // of which something is cached or under way
	RangeLocks        int    // held, or waited for
	Busy              int    // objects held open by drafts, pending writes, fills and changes
}

// Stats tells how the cache is used.
func (x *Index) Stats() Stats {
	s, p := x.stats, &x.policy
	s.GhostHits, s.AheadUsed, s.AheadWasted = p.ghostHits, p.aheadGood, p.aheadWaste
	s.AheadWindow, s.AheadBytes = x.ahead.window, p.aheadBytes
	s.Protected, s.ProtectedMax, s.Kept = p.bytes[protected], p.protectedMax, p.bytes[kept]
	s.Objects = len(x.objects)
	return s
}
