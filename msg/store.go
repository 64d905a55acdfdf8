package msg

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
)

// store is the memory of the eager slots that a node lends. It is one arena, mapped when first
// needed, never larger than Options.Memory, and apart from all caches. Connections share it fairly,
// see mem.Zones.
type store struct {
	node  *Node
	eager atomic.Int64 // bytes lent as slots

	mu     sync.Mutex
	arena  *mem.Arena
	zones  *mem.Zones
	users  int // those who may hold buffers
	closed bool
}

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
	var counts [mem.Classes]int
	k := st.node.slotClass()
	counts[k] = o.Memory / mem.ClassBytes(k)
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

// slotClass is the class of buffers that hold a slot of any provider.
func (n *Node) slotClass() int {
	k := 0
	for _, r := range n.rungs {
		for k+1 < mem.Classes && mem.ClassBytes(k) < r.limits.EagerMax {
			k++
		}
	}
	return k
}

// lend counts a slot, unless all memory is lent.
func (st *store) lend(bytes int) bool {
	if st.eager.Add(int64(bytes)) <= int64(st.node.opts.Memory) {
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
