package logstore

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// createMember makes an empty member on the device: the log is written with zeroes once, so that
// later writes to it change no metadata of a file system below, and the superblock comes last.
func createMember(dev device.Device, s super) error {
	g, err := layOut(dev.Size(), s.logBytes)
	if err != nil {
		return errs.Wrap("logstore.Create", dev.Name(), err)
	}
	s.logBytes, s.clusters, s.slots, s.clean, s.record = g.logBytes, g.clusters, g.slots, true, 1
	if err := dev.Reserve(0, g.tableAt[0]); err != nil {
		return err
	}
	zeroes := alignedBytes(1 << 20)
	for off := int64(0); off < g.tableAt[0]; off += int64(len(zeroes)) {
		n := min(int64(len(zeroes)), g.tableAt[0]-off)
		op := device.Op{Kind: device.Write, Off: off, Bufs: [][]byte{zeroes[:n]}}
		if err := device.One(dev, &op); err != nil {
			return err
		}
	}
	if f, ok := dev.(interface{ Fresh() bool }); !ok || !f.Fresh() {
		if err := clearTables(dev, &g, zeroes); err != nil {
			return err
		}
	}
	if err := device.One(dev, &device.Op{Kind: device.Sync}); err != nil {
		return err
	}
	b := alignedBytes(blockBytes)
	s.encode(b)
	for i := range int64(2) {
		op := device.Op{Kind: device.Write, Off: i * blockBytes, Bufs: [][]byte{b}, Stable: true}
		if err := device.One(dev, &op); err != nil {
			return err
		}
	}
	return nil
}

// clearTables makes all entries free where the device may hold something else: a fresh file reads
// as zeroes and stays sparse.
func clearTables(dev device.Device, g *geometry, zeroes []byte) error {
	buf := alignedBytes(len(zeroes))
	for off := g.tableAt[0]; off < g.tableAt[1]+g.tableBytes; off += int64(len(buf)) {
		n := min(int64(len(buf)), g.tableAt[1]+g.tableBytes-off)
		op := device.Op{Kind: device.Read, Off: off, Bufs: [][]byte{buf[:n]}}
		if err := device.One(dev, &op); err != nil {
			return err
		}
		if allZero(buf[:n]) {
			continue
		}
		op = device.Op{Kind: device.Write, Off: off, Bufs: [][]byte{zeroes[:n]}}
		if err := device.One(dev, &op); err != nil {
			return err
		}
	}
	return nil
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// openMember loads a member and brings it into the state that its log ends with.
func openMember(dev device.Device, opt memberOptions) (*member, error) {
	m, err := loadMember(dev, opt)
	if err != nil {
		return nil, err
	}
	m.g.recordHead = recordHead // from here on
	m.writer.Go(m.runLog)
	m.checkpointer.Go(m.runCheckpoints)
	// The first checkpoint puts what was replayed in place, and says that the store is open.
	if err := m.checkpoint(false); err != nil {
		m.abandon()
		return nil, err
	}
	m.releaseUnused()
	return m, nil
}

// loadMember is openMember without a change to the device's content but for blocks in place.
func loadMember(dev device.Device, opt memberOptions) (*member, error) {
	s, err := readSuper(dev)
	if err != nil {
		return nil, err
	}
	m := &member{
		dev: dev, opt: opt, g: s.geometry(), super: *s, storeID: s.storeID,
		stopped: make(chan struct{}),
		objects: map[stripe.ObjectID]*object{}, newborn: map[stripe.ObjectID]*object{},
		fences: map[uint64]fence{}, pending: map[uint64]*block{},
		ask:     make(chan struct{}, 1),
		wrapBuf: alignedBytes(blockBytes), superBuf: alignedBytes(blockBytes),
	}
	m.pageBuf = alignedBytes(int(min(m.g.tableBytes, pagesAtOne*blockBytes)))
	m.starter, _ = dev.(device.Starter)
	m.room.measure(dev, opt.reserve)
	// The pool must hold two of the largest jobs, or one could wait for itself.
	if m.pool, err = newPool(max(opt.pendingBlocks, 2*m.g.batchBlocksMax)); err != nil {
		return nil, err
	}
	m.table = newTable(dev, &m.g, opt.indexPages)
	m.alloc = newAllocator(m.g.clusters)
	m.slots.high, m.slots.limit = s.slotHigh, s.slotHigh
	m.log = logState{kick: make(chan struct{}, 1), room: make(chan struct{}), head: s.tail,
		tail: s.tail, chain: s.chain, number: s.record, stable: s.tail}
	m.log.open = m.newBatchLocked()
	if err := m.load(); err != nil {
		m.pool.close()
		return nil, err
	}
	return m, nil
}

// load reads the table and replays the log. Nobody else knows the member yet, so that the lock is
// not needed; it is held all the same, because what is called demands it.
func (m *member) load() error {
	if err := m.readSessions(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loadTableLocked()
	err := m.replayLocked()
	if err == nil {
		err = m.table.failed
	}
	if err != nil {
		return errs.Wrap("logstore.Open", m.dev.Name(), err)
	}
	m.rebuildLocked()
	if m.table.lost > 0 || m.table.repaired > 0 {
		m.opt.log.Error("the index is damaged", "device", m.dev.Name(), "repaired",
			m.table.repaired, "lost", m.table.lost, "remedy", "run sluice store check")
	}
	return nil
}

// loadTableLocked reads every entry that may be in use and builds the maps from them.
func (m *member) loadTableLocked() {
	for _, r := range [2]pageRange{
		pagesOf(0, int64(m.super.clusterHigh)), pagesOf(int64(m.g.clusters), int64(m.super.slotHigh)),
	} {
		m.loadPagesLocked(r.first, r.end)
	}
}

// loadPagesLocked reads pages in large pieces, both copies at once.
func (m *member) loadPagesLocked(first, last int64) {
	second := alignedBytes(len(m.pageBuf))
	for first < last && m.table.failed == nil {
		n := min(last-first, int64(len(m.pageBuf))/blockBytes)
		one, two := m.pageBuf[:n*blockBytes], second[:n*blockBytes]
		a := device.Op{Kind: device.Read, Off: m.g.tableAt[0] + first*blockBytes, Bufs: [][]byte{one}}
		b := device.Op{Kind: device.Read, Off: m.g.tableAt[1] + first*blockBytes, Bufs: [][]byte{two}}
		m.dev.Do([]*device.Op{&a, &b})
		for i := range n {
			p := &page{number: uint32(first + i)}
			p.buf = append(make([]byte, 0, blockBytes), one[i*blockBytes:(i+1)*blockBytes]...)
			var res merged
			if a.Err != nil || b.Err != nil { // page by page: one may be readable
				if res, m.table.failed = loadPage(m.dev, &m.g, p); m.table.failed != nil {
					return
				}
			} else {
				res = mergePage(p, two[i*blockBytes:(i+1)*blockBytes])
			}
			m.table.repaired += res.repaired // what is lost is counted by loadEntriesLocked
			if m.table.pages[p.number] != nil {
				continue
			}
			if res.differ { // both copies are to be whole again
				p.dirty = true
				m.table.dirty[p.number] = p
			}
			m.table.insert(p)
			m.loadEntriesLocked(p)
		}
		first += n
	}
}

func (m *member) loadEntriesLocked(p *page) {
	for i := range tableEntries {
		e := entry(p.buf[i*entryBytes : (i+1)*entryBytes])
		index := p.index(i)
		if !e.plausible(index < int64(m.g.clusters)) { // it verifies, and is nonsense
			clear(e)
			e[0] = typeLost
		}
		switch e.kind() {
		case typeCluster:
			m.loadClusterLocked(e, uint32(index))
		case typeObject:
			o := m.loadObjectLocked(e.id())
			if o.slot == noSlot || m.table.slotEntry(o.slot).record() < e.record() {
				o.slot = uint32(index - int64(m.g.clusters))
				e.getObject(o)
				m.slots.high = max(m.slots.high, o.slot+1)
			}
		case typeFence:
			f := fence{bar: e.bar(), logged: e.bar(), slot: uint32(index - int64(m.g.clusters)),
				slotted: true}
			if old := m.fences[e.id().File]; !old.covers(f.bar) { // of two the later one has both
				m.fences[e.id().File] = f
				m.slots.high = max(m.slots.high, f.slot+1)
			}
		case typeLost:
			if m.opt.salvage {
				m.table.change(index).reset(typeFree, stripe.ObjectID{}, 0)
			} else {
				m.table.lost++
			}
		}
	}
}

// loadClusterLocked enters a cluster into its object's map. Of two that claim one place the
// younger counts; the log, which is replayed, knows of both.
func (m *member) loadClusterLocked(e entry, c uint32) {
	o := m.loadObjectLocked(e.id())
	if old, ok := o.cluster(e.index()); ok && m.table.clusterEntry(old).record() > e.record() {
		return
	}
	o.setCluster(e.index(), c)
	m.alloc.mark(c)
}

func (m *member) loadObjectLocked(id stripe.ObjectID) *object {
	o := m.objects[id]
	if o == nil {
		o = newObject(id)
		m.objects[id] = o
	}
	return o
}

// rebuildLocked derives what is free from what is in use, and frees entries that nobody refers to.
func (m *member) rebuildLocked() {
	high, slotHigh := max(m.alloc.high, m.super.clusterHigh), m.slots.high
	m.alloc = newAllocator(m.g.clusters)
	taken := make([]bool, slotHigh)
	for _, o := range m.objects {
		o.blocks = blockCounts{}
		if o.slot == noSlot {
			m.orphanLocked(o)
			continue
		}
		taken[o.slot] = true
		m.markLocked(o)
	}
	for _, f := range m.fences {
		taken[f.slot] = true
	}
	m.alloc.high = max(high, m.alloc.high)
	for c := range m.alloc.high {
		switch e := m.table.clusterEntry(c); {
		case e.kind() == typeCluster && m.alloc.inUse(c):
			m.countLocked(e, c)
		case e.kind() == typeCluster:
			m.table.changeCluster(c).reset(typeFree, stripe.ObjectID{}, m.log.number)
		case e.kind() == typeLost:
			m.alloc.mark(c) // whose it is nobody knows: it is left alone
		}
	}
	m.slots.free = m.slots.free[:0]
	for s := range slotHigh {
		switch k := m.table.slotEntry(s).kind(); {
		case k == typeLost || taken[s]:
		case k != typeFree:
			m.table.changeSlot(s).reset(typeFree, stripe.ObjectID{}, m.log.number)
			fallthrough
		default:
			m.slots.free = append(m.slots.free, s)
		}
	}
	// Tables grow by segments. What is free has no space as far as anybody knows: the device is asked
	// again, which costs nothing where it is there.
	m.alloc.limit = min((m.alloc.high+segmentCount-1)/segmentCount*segmentCount, m.g.clusters)
	for c := range m.alloc.high {
		if m.alloc.inUse(c) {
			m.alloc.back(c, c+1)
		}
	}
	m.slots.limit = m.slots.high
}

// countLocked adds a cluster to what its object takes.
func (m *member) countLocked(e entry, c uint32) {
	if o := m.objects[e.id()]; o != nil {
		if at, ok := o.cluster(e.index()); ok && at == c {
			o.blocks.add(e.counts())
		}
	}
}

func (m *member) markLocked(o *object) {
	o.each(0, stripe.MaxObjectBytes/clusterBytes, func(_ int64, c uint32) { m.alloc.mark(c) })
}

// orphanLocked is for clusters without an object, which only damage explains: its size and truncate
// sequence are not known. They are left as they are, for whoever tries to rescue them.
func (m *member) orphanLocked(o *object) {
	m.opt.log.Error("clusters of an object that the index does not know", "device", m.dev.Name(),
		"object", o.id, "clusters", o.clusters)
	delete(m.objects, o.id)
	if !m.opt.salvage {
		m.markLocked(o)
		m.table.lost += uint64(o.clusters)
	}
}

// lostObject is the error for an object that the index does not know, when that means nothing.
func (m *member) lostObject(op string, id stripe.ObjectID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table.lost == 0 {
		return nil
	}
	return errs.Newf(errs.Corrupt, op, "object "+id.String(), "the index of %s has lost %d entries, "+
		"of which one may be the object's: restore the store from a copy", m.dev.Name(), m.table.lost)
}

// abandon lets go of a member as death does.
func (m *member) abandon() {
	if m.refuse() {
		m.stop()
	}
}

// refuse lets requests end and no other begin. It tells whether it was the first to do so.
func (m *member) refuse() bool {
	m.life.Lock()
	defer m.life.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.closing
	m.closing = true
	return !was
}

// stop ends the checkpointer, then the log's writer, which it may need.
func (m *member) stop() {
	close(m.ask)
	m.checkpointer.Wait()
	m.mu.Lock()
	m.log.ending = true
	m.kickLocked()
	m.mu.Unlock()
	m.writer.Wait()
	m.pool.close()
}

// close makes a last checkpoint and stops.
func (m *member) close() error {
	if !m.refuse() {
		return nil
	}
	err := errs.Wrap("logstore.Close", m.dev.Name(), m.checkpoint(true))
	m.stop()
	return err
}
