package logstore

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
	"golang.org/x/sys/unix"
)

// member is one device with its log, its index and its data: a store of its own. It holds those
// parts of objects that the store gives to it, under the offsets that they have in the object.
type member struct {
	dev     device.Device
	starter device.Starter // the same, if it is one; else nil
	opt     memberOptions
	g       geometry
	pool    *pool

	storeID [16]byte

	broken  atomic.Pointer[error] // the first failed write or sync, for ever
	stopped chan struct{}         // closed when it is set
	count   counters
	waiters sync.Pool
	flushes sync.Pool
	wrapBuf []byte // the log writer's, and the operation that writes it
	wrap    struct {
		op   device.Op
		ops  [1]*device.Op
		bufs [1][]byte
	}

	writer, checkpointer sync.WaitGroup // of one goroutine each

	room    room
	growing sync.Mutex // clusters gain or lose their space; held over that I/O, before mu

	checkpointing sync.Mutex // one checkpoint at a time, with these; held over its I/O
	work          []pendingBlock
	ops           writes
	pageBuf       []byte
	superBuf      []byte
	sessionBuf    []byte

	// life is shared by every request, and exclusive where all older ones must be over.
	life sync.RWMutex

	mu    sync.Mutex // guards what follows; never held over I/O but for a page that was pushed out
	super super

	replayEnd    logEnd // of a restart: where the log ends
	replayMarked bool   // and that a mark was written there
	logLost      uint64 // blocks that the log has lost
	looking      bool   // loaded for a look: nothing is written

	objects  map[stripe.ObjectID]*object
	newborn  map[stripe.ObjectID]*object // being written for the first time
	fences   map[uint64]fence
	sessions stripe.Sessions
	table    *table
	alloc    *allocator
	slots    slotList
	pending  map[uint64]*block // by cluster*16+block: logged and not yet in place
	log      logState
	logged   uint64 // the last record that is in the log
	reads    readers
	asked    bool // a checkpoint is wanted
	ask      chan struct{}
	closing  bool
}

type fence struct {
	bar
	logged  bar // as the log says: less, as long as the record is on its way
	slot    uint32
	slotted bool // it has a slot
}

// bar is what is refused of a file: generations below gen, and writers of epochs below epoch. It
// only rises.
type bar struct{ gen, epoch uint32 }

func (b bar) covers(other bar) bool { return b.gen >= other.gen && b.epoch >= other.epoch }

func (b bar) raised(to bar) bar { return bar{max(b.gen, to.gen), max(b.epoch, to.epoch)} }

// memberOptions are the store's, as far as a member needs them.
type memberOptions struct {
	pendingBlocks int
	indexPages    int
	log           *slog.Logger
	unsummed      bool
	salvage       bool
	reserve       int64
	life          *atomic.Uint64 // the store's, see stripe.Keeper; nil: it is only looked at
	late          bool           // checkpoints wait until there is no room
}

type counters struct {
	diskReads, diskWrites, diskReadBytes, diskWriteBytes atomic.Uint64
	syncs, groups, checkpoints, badSums, copied, repeats atomic.Uint64
}

// readers counts reads under way by generation, so that a cluster is not reused below one that
// found it earlier. The member's lock guards it, but for leaving.
type readers struct {
	now   uint64
	under [generations]atomic.Int64 // by generation modulo their number
}

// generations is how many can have readers at once.
const generations = 64

func (r *readers) enter() uint64 {
	r.under[r.now%generations].Add(1)
	return r.now
}

// leave needs no lock: who sees too many readers waits longer than it must.
func (r *readers) leave(gen uint64) { r.under[gen%generations].Add(-1) }

// turn begins a new generation, unless a reader from long ago still has its place: then what is
// freed waits for the next one.
func (r *readers) turn() {
	if r.under[(r.now+1)%generations].Load() == 0 {
		r.now++
	}
}

// oldest is the oldest generation that still reads.
func (r *readers) oldest() uint64 {
	for back := min(r.now, generations-1); back > 0; back-- {
		if r.under[(r.now-back)%generations].Load() > 0 {
			return r.now - back
		}
	}
	return r.now
}

// do carries out operations that change the device. The first error stops the member.
func (m *member) do(ops []*device.Op) error {
	m.dev.Do(ops)
	return m.finished(ops)
}

// finished counts operations that have changed the device.
func (m *member) finished(ops []*device.Op) error {
	var first error
	for _, op := range ops {
		switch {
		case op.Err != nil && first == nil:
			first = device.Failed(m.dev, op)
		case op.Kind == device.Sync:
			m.count.syncs.Add(1)
		default:
			m.count.diskWrites.Add(1)
			m.count.diskWriteBytes.Add(uint64(op.N))
			if op.Stable {
				m.count.syncs.Add(1)
			}
		}
	}
	if first != nil {
		return m.fail(first)
	}
	return nil
}

func (m *member) flush() error {
	s, ok := m.flushes.Get().(*flush)
	if !ok {
		s = &flush{}
		s.ops[0] = &s.op
	}
	s.op = device.Op{Kind: device.Sync}
	err := m.do(s.ops[:])
	m.flushes.Put(s)
	return err
}

// flush is an operation that is kept for the next time.
type flush struct {
	op  device.Op
	ops [1]*device.Op
}

// fail stops the member: after a failed write or sync nobody knows what the device holds, and
// what would be built upon that. Loudly, and once.
func (m *member) fail(cause error) error {
	if m.broken.CompareAndSwap(nil, &cause) {
		m.opt.log.Error("store member stopped: it refuses changes until it is opened again",
			"device", m.dev.Name(), "cause", cause, "remedy", remedy(cause))
		close(m.stopped)
		m.pool.stop(errs.IO)
	}
	return m.brokenError()
}

// remedy tells people what to do.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return "free space on the file system, then restart the server"
	case errors.Is(err, unix.EROFS):
		return "the file system is read-only: look at the kernel's log, repair, mount, restart"
	case errors.Is(err, unix.EIO):
		return "the disk fails: look at the kernel's log, replace it, or restart to try again"
	}
	return "look at the kernel's log, then restart the server"
}

func (m *member) writableLocked() error {
	if m.broken.Load() != nil {
		return m.brokenError()
	}
	if m.table.failed != nil {
		return m.fail(m.table.failed)
	}
	return nil
}

func (m *member) waiter() *waiter {
	if w, ok := m.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{ready: make(chan error, 1)}
}

func (m *member) free(w *waiter) { m.waiters.Put(w) }

// wantCheckpointLocked asks the checkpointer to come by.
func (m *member) wantCheckpointLocked() {
	if !m.asked && !m.closing {
		m.asked = true
		select {
		case m.ask <- struct{}{}:
		default:
		}
	}
}

// wantCheckpoint is the same for who does not hold the lock.
func (m *member) wantCheckpoint() {
	m.mu.Lock()
	m.wantCheckpointLocked()
	m.mu.Unlock()
}

// unrefLocked gives up one reference to a block.
func (m *member) unrefLocked(b *block) {
	if b.refs--; b.refs == 0 {
		m.pool.put(b)
	}
}

// begin admits a request; end must follow unless it fails. It finds the object, nil if there is
// none.
func (m *member) begin(op string, id stripe.ObjectID) (*object, error) {
	m.life.RLock()
	m.mu.Lock()
	defer m.mu.Unlock()
	o, err := m.findLocked(op, id)
	if err != nil {
		m.life.RUnlock()
	}
	return o, err
}

func (m *member) end() { m.life.RUnlock() }

func (m *member) findLocked(op string, id stripe.ObjectID) (*object, error) {
	if m.closing {
		return nil, errs.New(errs.Closed, op, m.dev.Name(), nil)
	}
	if err := stripe.CheckFence(op, id, m.fences[id.File].gen); err != nil {
		return nil, err
	}
	return m.objects[id], nil
}

// checkEpochLocked refuses a writer that another one has taken over from.
func (m *member) checkEpochLocked(op string, id stripe.ObjectID, epoch uint32) error {
	return stripe.CheckEpoch(op, id, m.fences[id.File].epoch, wire.Stamp{Epoch: epoch})
}

// slotList hands out slots of the table. Guarded by the member's lock.
type slotList struct {
	free  []uint32 // below high
	high  uint32
	limit uint32 // slots whose space is reserved
}

func (s *slotList) take() (uint32, bool) {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot, true
	}
	if s.high == s.limit {
		return 0, false
	}
	s.high++
	return s.high - 1, true
}

// some tells whether there is one to take.
func (s *slotList) some() bool { return len(s.free) > 0 || s.high < s.limit }

func (s *slotList) put(slot uint32) { s.free = append(s.free, slot) }
