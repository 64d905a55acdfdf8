package msg

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
)

// store is the memory that a node moves data through itself: eager slots and the units of
// Call.PullUnits and Call.PushUnits. It is one arena, mapped when first needed, never larger than
// Options.Memory, and apart from all caches. Connections share it fairly, see mem.Zones. At most
// half of it is lent as eager slots, so that units, which are waited for, come back for certain.
type store struct {
	node  *Node
	eager atomic.Int64 // bytes lent as slots

	mu     sync.Mutex
	arena  *mem.Arena
	zones  *mem.Zones
	users  int // those who may hold buffers
	closed bool
}

// unitShare: a staging unit is at most one of so many parts of the memory, so that a few fit.
const unitShare = 16

// open joins the users of the memory, and maps it for the first of them.
func (st *store) open(name string) (*mem.User, error) {
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
func (st *store) mapLocked() error {
	o := &st.node.opts
	counts := storeCounts(o.Memory)
	arena, err := mem.OpenArena(mem.ArenaOptions{
		Bytes: max(mem.ZonesBytes(counts), 1), Source: o.Source, Populate: mem.No, Lock: mem.No,
	})
	if err != nil {
		return err
	}
	zones, err := mem.NewZones(arena, mem.ZonesOptions{Counts: counts})
	if err == nil {
		err = st.node.Attach(arena)
	}
	if err != nil {
		_ = arena.Close()
		return err
	}
	st.arena, st.zones = arena, zones
	return nil
}

// storeCounts divides the memory: half for slots, half for units.
func storeCounts(bytes int) [mem.Classes]int {
	var counts [mem.Classes]int
	k := 0
	for k+1 < mem.Classes && mem.ClassBytes(k+1) <= bytes/unitShare {
		k++
	}
	counts[k] = bytes / 2 / mem.ClassBytes(k)
	counts[0] += (bytes - bytes/2) / mem.ClassBytes(0)
	return counts
}

// unitBytes is the size of a staging unit for a provider's limit.
func (st *store) unitBytes(limit int) int {
	return max(min(limit, mem.ClassMax, st.node.opts.Memory/unitShare), mem.ClassMin)
}

// lend counts a slot, unless slots have their half.
func (st *store) lend(bytes int) bool {
	if st.eager.Add(int64(bytes)) <= int64(st.node.opts.Memory/2) {
		return true
	}
	st.eager.Add(-int64(bytes))
	return false
}

// leave ends a user that holds no buffers any more.
func (st *store) leave(u *mem.User) {
	u.Close()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.users--
	st.closeLocked()
}

// close gives the memory back, when its last user has left.
func (st *store) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	st.closeLocked()
}

func (st *store) closeLocked() {
	if !st.closed || st.users > 0 || st.arena == nil {
		return
	}
	st.node.Detach(st.arena)
	if err := st.arena.Close(); err != nil {
		st.node.opts.Logger.Error("memory was not released", "err", err)
	}
	st.arena = nil
}

// MemoryStats tell how a node's own memory is used.
type MemoryStats struct {
	MappedBytes int   // 0 as long as nobody needed any
	EagerBytes  int64 // lent as eager slots
	InUseBytes  int64 // lent for whatever reason
}

func (st *store) stats() MemoryStats {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := MemoryStats{EagerBytes: st.eager.Load()}
	if st.arena == nil {
		return s
	}
	s.MappedBytes = len(st.arena.Bytes())
	for _, c := range st.zones.Stats().Class {
		s.InUseBytes += int64(c.InUse) * int64(c.BufBytes)
	}
	return s
}
