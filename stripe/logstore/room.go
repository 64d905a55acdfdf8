package logstore

import (
	"errors"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/device"
	"golang.org/x/sys/unix"
)

// Where a member's space comes from. A member that is a file has a size from the beginning, but
// takes space of its file system only as it needs it, and gives back what it does not need any
// more: others live there too, above all metadata, whose removals are what makes room.
//
// Space that is free is kept for a while: a file system gives more slowly than we reuse. What was
// not needed for giveBackEvery is given back, but for a few clusters; everything, at once, when the
// file system runs short.

const (
	giveBackEvery = 5 * time.Second

	// spareClusters are kept in any case, so that single writes do not ask the file system.
	spareClusters = 64

	// tidyClusters in quarantine are worth a checkpoint although nobody asks for one: 1 MiB.
	tidyClusters = 16

	// runsMax is how many holes are punched, however small, when a member is opened.
	runsMax = 4096

	// stepShare keeps members of one file system from taking its last space in large pieces, of
	// which one would have too much and another nothing: a step takes a 16th of what is there.
	stepShare = 16

	// clusterCost is what a cluster takes of its file system: itself, and its entry in both tables.
	// That of a whole segment is reserved at a time, by each of those who share the file system; of
	// them tablesMargin counts four: 1 MiB.
	clusterCost  = clusterBytes + 2*entryBytes
	tablesMargin = 4 * segmentCount * 2 * entryBytes
)

// room is what a member may have of its file system.
type room struct {
	sparse  device.Sparse // nil: the device owns its space
	reserve int64         // bytes that are left to others
	total   int64         // bytes of the file system
}

// measure looks at the device when it is opened. reserve is as in Options.
func (r *room) measure(dev device.Device, reserve int64) {
	s, is := dev.(device.Sparse)
	if !is {
		return
	}
	total, _, ok := s.Room()
	if !ok {
		return
	}
	if reserve == 0 {
		reserve = min(max(total/20, 64<<20), 8<<30, total/8)
	}
	r.sparse, r.reserve, r.total = s, max(reserve, 0), total
}

// clusters is how many of bare clusters the file system could give if keep bytes are to stay.
func (r *room) clusters(bare uint32, keep int64) int64 {
	if r.sparse == nil {
		return int64(bare)
	}
	_, free, ok := r.sparse.Room()
	if !ok {
		return 0
	}
	return min(int64(bare), max(free-keep-tablesMargin, 0)/clusterCost)
}

// borrowed is how many clusters were taken of what is to be left to others: see grow. Who reports
// them as free gets new files for which there is no room.
func (r *room) borrowed() int64 {
	if r.sparse == nil {
		return 0
	}
	_, free, ok := r.sparse.Room()
	if !ok {
		return 0
	}
	return max(r.reserve-free, 0) / clusterCost
}

// usable is how much of so many bytes of clusters can be used at best.
func (r *room) usable(bytes int64) int64 {
	if r.sparse == nil {
		return bytes
	}
	return max(min(bytes, r.total-r.reserve), 0)
}

// short tells whether the file system has so little left that others may need what is free here.
func (r *room) short() bool {
	if r.sparse == nil {
		return false
	}
	_, free, ok := r.sparse.Room()
	return ok && free < 2*r.reserve
}

// grow asks the device for the space of more clusters, a segment at most.
//
// It may take half of what is left to others: Admit promises nothing of that, so that writes which
// were acknowledged early find their space although another member was quicker.
func (m *member) grow() error {
	m.growing.Lock()
	defer m.growing.Unlock()
	m.mu.Lock()
	bare := m.alloc.bare
	m.mu.Unlock()
	n := m.room.clusters(bare, m.room.reserve/2)
	if m.room.sparse != nil {
		n = min(n, max(n/stepShare, spareClusters))
	}
	if n <= 0 {
		return errs.Newf(errs.NoSpace, "logstore", m.dev.Name(), "the file system has no room left "+
			"but for its reserve of %d bytes", m.room.reserve)
	}
	n = min(n, segmentCount)
	m.mu.Lock()
	from, to := m.alloc.findBare(uint32(n))
	limit := m.alloc.limit
	m.mu.Unlock()
	if from == to {
		end := min(limit+segmentCount, m.g.clusters)
		if err := m.reserveEntries(int64(limit), int64(end)); err != nil {
			return err
		}
		m.mu.Lock()
		m.alloc.limit = end
		from, to = m.alloc.findBare(uint32(n))
		m.mu.Unlock()
	}
	off, length := m.g.blockOff(from, 0), int64(to-from)*clusterBytes
	if err := m.dev.Reserve(off, length); err != nil {
		m.punch(off, length) // a file system may have given a part
		return err
	}
	m.mu.Lock()
	m.alloc.back(from, to)
	m.mu.Unlock()
	return nil
}

// growSlots reserves the space of more slots, unless another has done it meanwhile. It takes
// little, and removing and cutting files needs it, so that no reserve is kept from it.
func (m *member) growSlots() error {
	m.growing.Lock()
	defer m.growing.Unlock()
	m.mu.Lock()
	limit, some := m.slots.limit, m.slots.some()
	m.mu.Unlock()
	if some {
		return nil
	}
	end := min(limit+segmentCount, m.g.slots)
	if limit == end {
		return errs.Newf(errs.NoSpace, "logstore", m.dev.Name(), "all %d slots for objects are taken",
			m.g.slots)
	}
	first := int64(m.g.clusters)
	if err := m.reserveEntries(first+int64(limit), first+int64(end)); err != nil {
		return err
	}
	m.mu.Lock()
	m.slots.limit = end
	m.mu.Unlock()
	return nil
}

// reserveEntries reserves the space of entries [from, to) in both tables.
func (m *member) reserveEntries(from, to int64) error {
	first := from / tableEntries * blockBytes
	last := min((to+tableEntries)/tableEntries*blockBytes, m.g.tableBytes)
	for _, at := range m.g.tableAt {
		if err := m.dev.Reserve(at+first, last-first); err != nil {
			return err
		}
	}
	return nil
}

// giveBack punches clusters that are free and were not needed lately. It runs on the checkpointer.
func (m *member) giveBack() {
	short := m.room.short()
	m.mu.Lock()
	waiting := len(m.alloc.quarantine)
	m.mu.Unlock()
	if waiting >= tidyClusters || short && waiting > 0 {
		if m.checkpoint(false) != nil {
			return
		}
	}
	m.mu.Lock()
	idle, spare := m.alloc.low, min(segmentCount, m.g.clusters/64)
	if short {
		idle, spare = m.alloc.free, spareClusters
	}
	m.alloc.low = m.alloc.free
	m.mu.Unlock()
	if idle > spare {
		m.unback(idle - spare)
	}
}

// unback gives up the space of n free clusters.
func (m *member) unback(n uint32) {
	below := m.g.clusters
	for n > 0 && m.broken.Load() == nil {
		m.growing.Lock()
		m.mu.Lock()
		from, to := m.alloc.unback(below, min(n, segmentCount))
		m.mu.Unlock()
		if from < to {
			m.punch(m.g.blockOff(from, 0), int64(to-from)*clusterBytes)
		}
		m.mu.Lock()
		for c := from; c < to; c++ {
			m.alloc.release(c)
		}
		m.mu.Unlock()
		m.growing.Unlock()
		if from == to {
			return
		}
		n -= to - from
		below = from
	}
}

// releaseUnused gives up, when a member is opened, what the last process had and nobody uses: which
// clusters those are is not written down. A run of clusters without space costs one call.
func (m *member) releaseUnused() {
	if m.room.sparse == nil {
		return
	}
	m.growing.Lock()
	defer m.growing.Unlock()
	m.mu.Lock()
	var runs [][2]uint32
	for c, from := uint32(0), uint32(0); c <= m.alloc.limit; c++ {
		if c == m.alloc.limit || m.alloc.inUse(c) {
			if from < c {
				runs = append(runs, [2]uint32{from, c})
			}
			from = c + 1
		}
	}
	m.mu.Unlock()
	for _, r := range runs {
		if len(runs) > runsMax && r[1]-r[0] < tidyClusters {
			continue // it is known as soon as it is used again
		}
		m.punch(m.g.blockOff(r[0], 0), int64(r[1]-r[0])*clusterBytes)
	}
}

// punch returns space to the file system. Where that fails the space stays the file's, which is no
// fault: it is reserved again without being taken a second time.
func (m *member) punch(off, length int64) {
	if m.room.sparse == nil {
		return
	}
	err := m.room.sparse.Punch(off, length)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		m.opt.log.Warn("space was not given back", "device", m.dev.Name(), "err", err)
	}
}
