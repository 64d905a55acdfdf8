package mount

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/mount/state"
)

// kept notes, for the process that may have to go on in the place of this one, what that must know.
// All methods work on nil, and do nothing: a mount without a keeper dies with its process.
type kept struct {
	table   *state.Table
	secret  [16]byte
	appends map[uint64]state.Append // that the process before this one was about to do

	inherited map[uint32]uint64 // lives of servers in which that one has left something

	workers sync.WaitGroup
	stop    chan struct{}
	ended   sync.Once

	believed atomic.Int64  // as noted down
	lives    atomic.Uint64 // up to which change lives of servers are noted down
	handing  atomic.Bool   // the kernel is told to believe nothing any more
	gate     gate

	mu     sync.Mutex
	slots  map[uint64]int      // of open files and directories, by their numbers
	opened map[uint64]uint64   // numbers of what was open when this process began, by request
	writes map[meta.Ino]uint64 // inodes that are marked, with how often they were written

	unsynced unsynced
}

func newKept(t *state.Table) *kept {
	return &kept{table: t, secret: t.Secret(), appends: t.Appends(), inherited: t.Lives(),
		stop:  make(chan struct{}),
		slots: map[uint64]int{}, opened: map[uint64]uint64{}, writes: map[meta.Ino]uint64{},
		unsynced: unsynced{}}
}

// restored notes what was open when this process began.
func (k *kept) restored(slot int, h *state.Handle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slots[h.Number] = slot
	if h.Request != 0 {
		k.opened[h.Request] = h.Number
	}
}

// add notes something that is open, before the kernel hears of it.
func (k *kept) add(h state.Handle) error {
	if k == nil {
		return nil
	}
	slot, err := k.table.Add(&h)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slots[h.Number] = slot
	return nil
}

// remove notes that the kernel has let go of something, when all that follows from it is done: if
// this process dies before the kernel is told to send it again.
func (k *kept) remove(number uint64) {
	if k == nil {
		return
	}
	k.mu.Lock()
	slot, ok := k.slots[number]
	delete(k.slots, number)
	k.mu.Unlock()
	if ok {
		k.table.Remove(slot)
	}
}

// before is the number of what a request has opened that was not answered by the process before
// this one.
func (k *kept) before(unique uint64) (number uint64, ok bool) {
	if k == nil || !resent(unique) {
		return 0, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	number, ok = k.opened[plain(unique)]
	return number, ok
}

func (k *kept) slot(number uint64) (slot int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slot, ok = k.slots[number]
	return slot, ok
}

// own notes that locks were taken through an open file.
func (k *kept) own(number, owner uint64) {
	if k == nil {
		return
	}
	if slot, ok := k.slot(number); ok {
		k.table.Own(slot, owner)
	}
}

// disown notes that they were released.
func (k *kept) disown(number, owner uint64) {
	if k == nil {
		return
	}
	if slot, ok := k.slot(number); ok {
		k.table.Disown(slot, owner)
	}
}

// bury notes that an open directory has no name any more.
func (k *kept) bury(number uint64, a *meta.Attr) {
	if k == nil {
		return
	}
	if slot, ok := k.slot(number); ok {
		k.table.Bury(slot, a.Mode, a.UID, a.GID)
	}
}

// believes notes that the kernel is about to be told to believe something, for so long at most. It
// is false when it must not be told, because this process is about to hand over.
func (k *kept) believes(long time.Duration) bool {
	if k == nil {
		return true
	}
	if k.handing.Load() {
		return false
	}
	until := monotonic() + int64(long)
	if k.believed.Load() >= until {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.believed.Load() < until {
		until += int64(believeAhead)
		k.table.SetBelieved(until)
		k.believed.Store(until)
	}
	return true
}

// believeAhead is how much longer is noted than is true, so that most answers note nothing.
const believeAhead = 20 * time.Millisecond

// wrote notes that data of an inode may be nowhere but in this process. It is called when that is
// so, before the program hears that it has written.
func (k *kept) wrote(ino meta.Ino) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.writes[ino]++; k.writes[ino] == 1 {
		k.table.Mark(uint64(ino))
	}
}

// settle takes the mark of an inode away, unless it has data that is nowhere else. unsaved is asked
// without a lock: what was written meanwhile counts.
func (k *kept) settle(ino meta.Ino, unsaved func(meta.Ino) bool) {
	if k == nil {
		return
	}
	k.mu.Lock()
	count, marked := k.writes[ino]
	k.mu.Unlock()
	if !marked || unsaved(ino) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.writes[ino] == count {
		delete(k.writes, ino)
		k.table.Unmark(uint64(ino))
	}
}

func (k *kept) marked() (list []meta.Ino) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ino := range k.writes {
		list = append(list, ino)
	}
	return list
}

// end stops what runs beside the requests.
func (k *kept) end() {
	if k != nil {
		k.ended.Do(func() { close(k.stop) })
		k.workers.Wait()
	}
}

// unsaved tells whether data of an inode, or the news of a loss, is nowhere but in this process.
func (b *bridge) unsaved(ino meta.Ino) bool { return b.fs.Unsaved(ino) }

// wrote is called when something was written, before the program hears of it.
func (b *bridge) wrote(ino meta.Ino) {
	if b.kept != nil && b.unsaved(ino) {
		b.kept.wrote(ino)
	}
}

// saved is called when something may have been saved.
func (b *bridge) saved(ino meta.Ino) {
	b.kept.settle(ino, func(ino meta.Ino) bool {
		unsaved := b.unsaved(ino)
		b.noteLives() // before the mark goes: in which lives the servers have it
		return unsaved
	})
}

// noteWrite notes that a file is written through a handle: should this process die, the time of
// change is when it was found dead.
func (b *bridge) noteWrite(f *file, number uint64) {
	if b.kept == nil || f.noted.Swap(true) {
		return
	}
	if slot, ok := b.kept.slot(number); ok {
		b.kept.table.SetWritten(slot, true)
	}
}

// noteTold notes that the service was told of it.
func (b *bridge) noteTold(f *file, number uint64, err error) {
	if b.kept == nil || err != nil || !f.noted.Swap(false) {
		return
	}
	if slot, ok := b.kept.slot(number); ok {
		b.kept.table.SetWritten(slot, false)
	}
}

// sweepEach is how often it is looked whether data has reached the servers meanwhile.
const sweepEach = 100 * time.Millisecond

// settleEach is at which of these times it is looked whether it is durable.
const settleEach = 10

// sweep takes marks away until the mount ends.
func (b *bridge) sweep() {
	tick := time.NewTicker(sweepEach)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-b.kept.stop:
			return
		case <-tick.C:
		}
		if n%settleEach == 0 {
			b.settleUnsynced()
		}
		for _, ino := range b.kept.marked() {
			b.saved(ino)
		}
	}
}

// keep notes an open file or directory that the kernel is about to get.
func (b *bridge) keep(h state.Handle, unique uint64) error {
	h.Request = plain(unique)
	err := b.kept.add(h)
	return errs.Wrap("mount.open", "", err)
}
