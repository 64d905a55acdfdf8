package eager

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
)

// Store is the memory of all slots that a node lends. It is one arena, mapped when first needed,
// never larger than Options.Bytes, and apart from all caches. Connections share it fairly, see
// mem.Zones.
type Store struct {
	opts  Options
	eager atomic.Int64 // bytes lent as slots

	mu     sync.Mutex
	arena  *mem.Arena
	zones  *mem.Zones
	users  int // those who may hold buffers
	closed bool
}

// Options of a Store.
type Options struct {
	Bytes     int        // of all slots; 0: there are none
	SlotBytes int        // of the largest slot
	Source    mem.Source // where the memory comes from; nil: anonymous memory

	// Attach and Detach make the memory known to whoever grants it, and forget it.
	Attach func(*mem.Arena) error
	Detach func(*mem.Arena)
}

// Open makes st ready.
func (st *Store) Open(o Options) { st.opts = o }

// Has tells whether there is any memory for slots.
func (st *Store) Has() bool { return st.opts.Bytes > 0 }

// open joins the users of the memory, and maps it for the first of them.
func (st *Store) open(name string) (*mem.User, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, errs.New(errs.Closed, "msg.Memory", name, nil)
	}
	if st.zones == nil {
		if err := st.mapLocked(); err != nil {
			return nil, errs.Wrap("msg.Memory", name, err)
		}
	}
	u, err := st.zones.NewUser(mem.UserOptions{Name: name})
	if err == nil {
		st.users++
	}
	return u, err
}

// mapLocked maps the memory and registers it everywhere.
func (st *Store) mapLocked() error {
	class := 0 // of buffers that hold a slot
	for class+1 < mem.Classes && mem.ClassBytes(class) < st.opts.SlotBytes {
		class++
	}
	var counts [mem.Classes]int
	counts[class] = st.opts.Bytes / mem.ClassBytes(class)
	arena, err := mem.OpenArena(mem.ArenaOptions{
		Bytes: max(mem.ZonesBytes(counts), 1), Source: st.opts.Source, Populate: mem.No, Lock: mem.No,
	})
	if err != nil {
		return err
	}
	zones, err := mem.NewZones(arena, mem.ZonesOptions{Counts: counts})
	if err == nil {
		err = st.opts.Attach(arena)
	}
	if err != nil {
		return errors.Join(err, arena.Close())
	}
	st.arena, st.zones = arena, zones
	return nil
}

// take takes one buffer that counts as a slot; nil if there is none to spare.
func (st *Store) take(u *mem.User, size int) *mem.Buf {
	var room [4]*mem.Buf
	bufs, ok := u.TryTake(size, room[:0])
	if ok && len(bufs) == 1 {
		if st.eager.Add(int64(bufs[0].Len())) <= int64(st.opts.Bytes) {
			return bufs[0]
		}
		st.eager.Add(-int64(bufs[0].Len()))
	}
	for _, b := range bufs { // chopped, or beyond the bound
		b.Return()
	}
	return nil
}

// Drop returns the memory of a slot that nobody can reach any more.
func (st *Store) Drop(b *mem.Buf) {
	st.eager.Add(-int64(b.Len()))
	b.Return()
}

// Leave ends a user that holds no buffers any more.
func (st *Store) Leave(u *mem.User) error {
	u.Close()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.users--
	return st.closeLocked()
}

// Close gives the memory back, when its last user has left.
func (st *Store) Close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	return st.closeLocked()
}

func (st *Store) closeLocked() error {
	if !st.closed || st.users > 0 || st.arena == nil {
		return nil
	}
	st.opts.Detach(st.arena)
	err := st.arena.Close()
	st.arena = nil
	return err
}

// Stats tell how the memory is used.
type Stats struct {
	MappedBytes int   // 0 as long as nobody needed any
	EagerBytes  int64 // lent as eager slots
	InUseBytes  int64 // lent for whatever reason
}

// Stats tell how the memory is used now.
func (st *Store) Stats() Stats {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := Stats{EagerBytes: st.eager.Load()}
	if st.arena == nil {
		return s
	}
	s.MappedBytes = len(st.arena.Bytes())
	for _, c := range st.zones.Stats().Class {
		s.InUseBytes += int64(c.InUse) * int64(c.BufBytes)
	}
	return s
}
