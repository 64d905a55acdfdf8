package logstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/stripe/device"
)

// A checkpoint makes the records before some position of the log unnecessary:
//
//	1. everything so far is in the log and stable; the position behind it is the new tail
//	2. blocks that were pending then are written in place, in the order of their places
//	3. dirty pages of the table are copied; records that they know are in the log and stable (and
//	   what 2 has written with them: one sync)
//	4. pages are written to the first copy, synced, then to the second copy, synced
//	5. the superblock names the new tail, stable; only now the log's space is released, and clusters
//	   that records before the tail have freed can be used again
//
// A crash before 5 replays from the old tail. In-place writes may be torn: their records are still
// in the log. Pages may be torn: one of the copies is whole, and each entry verifies by itself.

const (
	applyDepth = 64  // blocks in place at once
	pagesAtOne = 256 // pages of a round: one MiB
)

// writes are operations of a checkpoint, kept for the next one with their lists of buffers.
type writes struct {
	list []*device.Op
}

func (w *writes) reset() { w.list = w.list[:0] }

// add appends a write at the offset that has no buffers yet.
func (w *writes) add(off int64) *device.Op {
	n := len(w.list)
	if n == cap(w.list) || w.list[:n+1][n] == nil {
		w.list = append(w.list, new(device.Op))
	} else {
		w.list = w.list[:n+1]
	}
	op := w.list[n]
	*op = device.Op{Kind: device.Write, Off: off, Bufs: op.Bufs[:0]}
	return op
}

// writeStable is one write of a checkpoint, stable when it returns.
func (m *member) writeStable(off int64, b []byte) error {
	m.ops.reset()
	op := m.ops.add(off)
	op.Bufs, op.Stable = append(op.Bufs, b), true
	return m.do(m.ops.list)
}

// runCheckpoints is the checkpointer. Now and then it looks for space that nobody needs.
func (m *member) runCheckpoints() {
	var look <-chan time.Time
	if m.room.sparse != nil {
		ticker := time.NewTicker(giveBackEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case _, open := <-m.ask:
			if !open {
				return
			}
		case <-look:
			m.giveBack()
			continue
		}
		m.mu.Lock()
		m.asked = false
		m.mu.Unlock()
		if err := m.checkpoint(false); err != nil && m.broken.Load() == nil {
			m.opt.log.Error("checkpoint failed", "device", m.dev.Name(), "cause", err)
		}
		if m.room.short() {
			m.giveBack()
		}
	}
}

// checkpoint makes one. clean says that the store is closed after it.
func (m *member) checkpoint(clean bool) error {
	m.checkpointing.Lock()
	defer m.checkpointing.Unlock()
	m.mu.Lock()
	m.reads.turn()
	if err := m.writableLocked(); err != nil {
		m.mu.Unlock()
		return err
	}
	// In one step: what is pending now, and what is in the log before the barrier, are the same.
	work := m.pendingLocked()
	record := m.log.number
	w := m.barrierLocked(true, true)
	m.mu.Unlock()
	defer m.dropWork(&work)
	tail, chain, err := m.await(w)
	if err != nil {
		return err
	}
	if err := m.applyPending(work); err != nil {
		return err
	}
	if err := m.writePages(); err != nil {
		return err
	}
	if err := m.writeSuper(tail, chain, record, clean); err != nil {
		return err
	}
	m.count.checkpoints.Add(1)
	m.mu.Lock()
	m.alloc.settle(record, m.reads.oldest())
	m.mu.Unlock()
	m.releaseLog(tail)
	return nil
}

// pendingBlock is a block that a checkpoint writes in place.
type pendingBlock struct {
	key  uint64
	data *block
}

// pendingLocked lists and holds what is pending.
func (m *member) pendingLocked() []pendingBlock {
	list := m.work[:0]
	for key, data := range m.pending {
		data.refs++
		list = append(list, pendingBlock{key, data})
	}
	return list
}

func (m *member) dropWork(work *[]pendingBlock) {
	m.mu.Lock()
	for _, w := range *work {
		m.unrefLocked(w.data)
	}
	clear(*work)
	m.work = (*work)[:0]
	m.mu.Unlock()
}

// applyPending writes the blocks in place, neighbours together. A block that was replaced meanwhile
// is written too: its record is before the new tail.
func (m *member) applyPending(work []pendingBlock) error {
	slices.SortFunc(work, func(a, b pendingBlock) int { return cmp.Compare(a.key, b.key) })
	m.ops.reset()
	done := 0
	for i := 0; i < len(work); {
		k := i + 1
		for k < len(work) && work[k].key == work[k-1].key+1 && k-i < clusterBlocks {
			k++
		}
		op := m.ops.add(m.g.blockOff(uint32(work[i].key/clusterBlocks),
			int(work[i].key%clusterBlocks)))
		for _, w := range work[i:k] {
			op.Bufs = append(op.Bufs, w.data.buf)
		}
		i = k
		if len(m.ops.list) == applyDepth || i == len(work) {
			if err := m.do(m.ops.list); err != nil {
				return err
			}
			m.applied(work[done:i])
			done = i
			m.ops.reset()
		}
	}
	return nil
}

// applied takes blocks that are in place out of memory, unless they were replaced.
func (m *member) applied(work []pendingBlock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range work {
		if m.pending[w.key] == w.data {
			delete(m.pending, w.key)
			m.unrefLocked(w.data)
		}
	}
}

// writePages writes all pages that are dirty now, a round at a time. What becomes dirty meanwhile
// is the next checkpoint's: it knows records behind the tail only. Without a dirty page there is
// one round all the same: it syncs what was written in place.
func (m *member) writePages() error {
	m.mu.Lock()
	dirty := m.table.dirtyNumbers()
	m.mu.Unlock()
	for first := true; first || len(dirty) > 0; first = false {
		round := dirty[:min(len(dirty), pagesAtOne)]
		dirty = dirty[len(round):]
		m.mu.Lock()
		copied := m.table.copyOut(m.pageBuf, round)
		m.mu.Unlock()
		err := m.writeRound(round, copied)
		m.mu.Lock()
		m.table.written(round)
		m.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *member) writeRound(numbers []uint32, copied []byte) error {
	if _, _, err := m.barrier(false); err != nil {
		return err
	}
	// One sync for the log and for the blocks in place.
	if err := m.flush(); err != nil {
		return err
	}
	if len(numbers) == 0 {
		return nil
	}
	for side := range m.g.tableAt {
		m.ops.reset()
		for i, n := range numbers {
			op := m.ops.add(m.g.tableAt[side] + int64(n)*blockBytes)
			op.Bufs = append(op.Bufs, copied[i*blockBytes:(i+1)*blockBytes])
		}
		if err := m.do(m.ops.list); err != nil {
			return err
		}
		if err := m.flush(); err != nil {
			return err
		}
	}
	return nil
}

// releaseLog gives the log's space before tail back.
func (m *member) releaseLog(tail uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log.tail = tail
	close(m.log.room)
	m.log.room = make(chan struct{})
}

// makeRoom tries to find n free clusters: space of the device that was not needed so far, then
// clusters in quarantine. It tells whether there are that many now.
func (m *member) makeRoom(n uint32) bool {
	for tries, waits := 0, 0; ; {
		m.mu.Lock()
		free, bare := m.alloc.free, m.alloc.bare
		waiting, crowded := len(m.alloc.quarantine), m.alloc.crowded()
		m.mu.Unlock()
		switch {
		case free >= n:
			return true
		case crowded && waits < 4: // a checkpoint is cheaper than space that was never written
			waits++
			m.awaitCheckpoint()
		case bare > 0 && (m.grow() == nil || m.hasFree(n)): // another may have grown for this one too
		case waiting > 0 && tries < 3: // the second lets readers of the first go
			tries++
			if m.checkpoint(false) != nil {
				return false
			}
		default:
			return false
		}
	}
}

// hasFree tells whether there are n free clusters.
func (m *member) hasFree(n uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alloc.free >= n
}

// awaitCheckpoint waits for the next checkpoint to end, or for the member to stop.
func (m *member) awaitCheckpoint() {
	m.mu.Lock()
	m.wantCheckpointLocked()
	room := m.log.room
	closing := m.closing
	m.mu.Unlock()
	if closing {
		return // nobody makes one
	}
	select {
	case <-room:
	case <-m.stopped:
	}
}
