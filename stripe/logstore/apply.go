package logstore

import (
	"github.com/sluice-storage/sluice/stripe"
)

// applyLocked brings memory into the state that the record names. The live path calls it when the
// record is appended, a restart when it is replayed; so both end in the same state.
//
// It must not depend on what was there before, because a restart may start from pages that know
// this record, and later ones, already.
func (m *member) applyLocked(r *record) {
	if r.kind == kindFence {
		m.applyFenceLocked(r)
		return
	}
	if stripe.Numbered(r.st) {
		m.sessions.Note(r.st)
	}
	for _, st := range r.requests {
		m.sessions.Note(st)
	}
	if r.kind == kindRemove {
		if o := m.objects[r.id]; o != nil {
			m.dropObjectLocked(o, r.number)
		}
		return
	}
	o := m.objects[r.id]
	if o == nil {
		if o = m.newborn[r.id]; o == nil {
			o = newObject(r.id)
		}
		m.objects[r.id] = o
	}
	if o.slot != r.slot {
		if o.slot != noSlot { // a restart that began with pages from a later life of the object
			m.table.changeSlot(o.slot).reset(typeFree, stripe.ObjectID{}, r.number)
		}
		o.slot = r.slot
	}
	if r.kind == kindTruncate {
		m.clearLocked(o, r.size, stripe.MaxObjectBytes, r.number)
	}
	switch {
	case r.flags&flagKeep != 0:
		m.blankLocked(o, r.off, r.off+r.len, r.number)
	case r.flags&flagClear != 0:
		m.clearLocked(o, r.off, r.off+r.len, r.number)
	}
	for i := range r.clusters {
		switch x := &r.clusters[i]; {
		case r.kind != kindReserve:
			m.mapClusterLocked(o, x, r.number)
		case r.flags&flagFree != 0:
			m.freeLocked(o, x, r.number)
		default:
			m.holdLocked(o, x, r.number)
		}
	}
	for i := range r.blocks {
		m.mapBlockLocked(o, &r.blocks[i], r.number)
	}
	o.size, o.truncSeq, o.epoch = r.size, r.st.TruncSeq, r.st.Epoch
	o.lives.Note(r.st.Life)
	o.version++
	m.table.changeSlot(o.slot).setObject(o, r.number)
}

func (m *member) applyFenceLocked(r *record) {
	f := m.fences[r.id.File]
	logged := bar{r.id.Gen, r.st.Epoch}
	m.fences[r.id.File] = fence{bar: f.raised(logged), logged: logged, slot: r.slot, slotted: true}
	m.table.changeSlot(r.slot).setFence(r.id.File, logged, r.number)
}

func (m *member) dropObjectLocked(o *object, number uint64) {
	m.clearLocked(o, 0, stripe.MaxObjectBytes, number)
	if o.slot != noSlot {
		m.table.changeSlot(o.slot).reset(typeFree, stripe.ObjectID{}, number)
		m.slots.put(o.slot)
	}
	o.gone = true
	o.version++
	delete(m.objects, o.id)
}

// clearLocked forgets all blocks that lie inside [off, end) as a whole, or from off on when end is
// the limit of objects. Parts of blocks were written as blocks of their own.
func (m *member) clearLocked(o *object, off, end int64, number uint64) {
	m.inRangeLocked(o, off, end, func(index int64, c uint32, gone uint16) {
		e := m.table.changeCluster(c)
		m.setBlocksLocked(o, index, c, e.mask()&^gone, e.held()&^gone, number)
	})
}

// blankLocked is clearLocked that leaves the space to the blocks.
func (m *member) blankLocked(o *object, off, end int64, number uint64) {
	m.inRangeLocked(o, off, end, func(index int64, c uint32, gone uint16) {
		e := m.table.changeCluster(c)
		m.setBlocksLocked(o, index, c, e.mask()&^gone, e.held()|e.mask()&gone, number)
	})
}

// inRangeLocked calls fn for the clusters that have blocks inside [off, end), with a bit for each.
func (m *member) inRangeLocked(o *object, off, end int64,
	fn func(index int64, c uint32, blocks uint16)) {
	first := (off + blockBytes - 1) / blockBytes
	last := end / blockBytes // one past
	if first >= last {
		return
	}
	o.each(first/clusterBlocks, (last+clusterBlocks-1)/clusterBlocks, func(index int64, c uint32) {
		fn(index, c, blocksOf(index, first, last))
	})
}

// blocksOf is the part of a cluster that lies in blocks [first, last) of the object.
func blocksOf(index, first, last int64) uint16 {
	lo, hi := max(first-index*clusterBlocks, 0), min(last-index*clusterBlocks, clusterBlocks)
	return uint16(uint32(1)<<hi - uint32(1)<<lo)
}

// setBlocksLocked says which blocks of a cluster are data from now on, among those that were, and
// which are held. A cluster with neither is free.
func (m *member) setBlocksLocked(o *object, index int64, c uint32, mask, held uint16,
	number uint64) {
	e := m.table.changeCluster(c)
	o.blocks.sub(e.counts())
	m.dropPendingLocked(c, ^mask)
	if mask|held == 0 {
		m.retireLocked(c, number)
		o.dropCluster(index)
		return
	}
	e.setMask(mask)
	e.setHeld(held)
	e.setRecord(number)
	o.blocks.add(e.counts())
}

// holdLocked reserves blocks of a cluster.
func (m *member) holdLocked(o *object, x *clusterPlace, number uint64) {
	old, had := o.setCluster(x.index, x.cluster)
	if had && old != x.cluster { // replay only: the pages know a later place
		m.dropPendingLocked(old, 0xffff)
		m.retireLocked(old, number)
	}
	m.alloc.mark(x.cluster)
	e := m.table.changeCluster(x.cluster)
	if x.fresh {
		m.dropPendingLocked(x.cluster, 0xffff) // replay: of an earlier owner
		e.reset(typeCluster, o.id, number)
	} else {
		o.blocks.sub(e.counts())
	}
	e[0] = typeCluster
	e.setOwner(o.id)
	e.setIndex(x.index)
	e.setHeld(e.held() | x.mask)
	e.setRecord(number)
	o.blocks.add(e.counts())
}

// freeLocked undoes holdLocked.
func (m *member) freeLocked(o *object, x *clusterPlace, number uint64) {
	if c, ok := o.cluster(x.index); ok && c == x.cluster { // else the pages know a later place
		e := m.table.changeCluster(c)
		m.setBlocksLocked(o, x.index, c, e.mask(), e.held()&^x.mask, number)
	}
}

// retireLocked frees a cluster's entry and puts it into quarantine.
func (m *member) retireLocked(c uint32, number uint64) {
	m.table.changeCluster(c).reset(typeFree, stripe.ObjectID{}, number)
	m.alloc.retire(c, number, m.reads.now)
}

func (m *member) dropPendingLocked(c uint32, mask uint16) {
	if len(m.pending) == 0 {
		return
	}
	for b := range uint64(clusterBlocks) {
		if mask&(1<<b) == 0 {
			continue
		}
		key := uint64(c)*clusterBlocks + b
		if data := m.pending[key]; data != nil {
			delete(m.pending, key)
			m.unrefLocked(data)
		}
	}
}

// mapClusterLocked switches a cluster of the object to a new place.
func (m *member) mapClusterLocked(o *object, x *clusterPlace, number uint64) {
	old, had := o.setCluster(x.index, x.cluster)
	if had {
		o.blocks.sub(m.table.clusterEntry(old).counts())
	}
	if had && old != x.cluster {
		m.dropPendingLocked(old, 0xffff)
		m.retireLocked(old, number)
	}
	m.dropPendingLocked(x.cluster, 0xffff) // replay: of an earlier owner
	m.alloc.mark(x.cluster)
	e := m.table.changeCluster(x.cluster)
	e.reset(typeCluster, o.id, number)
	e.setIndex(x.index)
	e.setMask(x.mask)
	for k, v := range x.sums {
		e.setSum(k, v)
	}
	o.blocks.add(e.counts())
}

// mapBlockLocked gives a block of the object new content, which waits to be written in place.
func (m *member) mapBlockLocked(o *object, x *blockPlace, number uint64) {
	index, b := x.block/clusterBlocks, int(x.block%clusterBlocks)
	e := m.table.changeCluster(x.cluster)
	old, had := o.setCluster(index, x.cluster)
	if had && old != x.cluster { // replay only: the pages know a later place
		m.dropPendingLocked(old, 0xffff)
		m.retireLocked(old, number)
	}
	if x.fresh { // the first block of a cluster that was free
		e.reset(typeCluster, o.id, number)
	}
	o.blocks.sub(e.counts())
	e[0] = typeCluster
	e.setOwner(o.id)
	e.setIndex(index)
	e.setMask(e.mask() | 1<<b)
	e.setSum(b, x.sum)
	e.setRecord(number)
	o.blocks.add(e.counts())
	m.alloc.mark(x.cluster)
	key := uint64(x.cluster)*clusterBlocks + uint64(b)
	if was := m.pending[key]; was != nil {
		delete(m.pending, key)
		m.unrefLocked(was)
	}
	if x.data != nil { // replay: nil for a block that the log has lost
		m.pending[key] = x.data // takes over the record's reference
	}
}
