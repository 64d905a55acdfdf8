package logstore

import (
	"context"
	"runtime"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// The log: requests add records to the open batch under the member's lock; one goroutine takes
// whatever has gathered and writes it in one piece. While it writes, the next batch gathers: the
// slower the disk, the larger the groups.
//
// A batch that somebody wants durable is one stable write when everything before it is stable, or
// a plain write and a sync when something is not. Volatile batches are plain writes.

// batch is one group on its way.
type batch struct {
	head    []byte // records so far, behind room for the header
	records int
	blocks  []*block
	waiters []*waiter
	durable bool  // somebody waits for stable storage
	mark    bool  // a checkpoint's: that all is stable is written down before something is built on it
	loose   bool  // names clusters that were written without a sync
	room    int64 // bytes of the log that its records have reserved
	last    uint64
	bufs    [][]byte // what the device is told
	op      device.Op
	ops     [1]*device.Op
}

// waiter is a request that waits for its batch. end and chain say where the log stood then.
type waiter struct {
	ready chan error
	end   uint64
	chain uint32
}

// logState is the part of a member that the log needs. The member's lock guards it, but for what
// only the writer uses.
type logState struct {
	open    *batch
	queue   []*batch
	spare   []*batch
	kick    chan struct{} // something is queued
	idle    bool          // nobody writes: the writer waits for kick
	ending  bool          // the writer is to stop
	room    chan struct{} // closed and replaced when space of the log was released
	head    uint64        // where the next batch goes
	tail    uint64        // where a restart begins, as the superblock says
	promise int64         // bytes reserved by records that are not written
	number  uint64        // of the next record

	// The writer's own.
	chain  uint32
	stable uint64 // everything before is stable
	loose  uint64 // end of the last batch that names clusters written without a sync
	told   uint64 // up to here the log itself says, stably, that everything is stable
	group  int    // records of the last batch
}

// newBatch finds or makes an empty batch.
func (m *member) newBatchLocked() *batch {
	l := &m.log
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b
	}
	return &batch{head: alignedBytes(m.g.batchHeadMax)[:batchHead]}
}

// logNeed is the most that a record can take of the log.
func logNeed(r *record) int64 {
	head := (batchHead + r.bytes() + blockBytes - 1) / blockBytes * blockBytes
	return int64(head) + int64(len(r.blocks))*blockBytes
}

// reserveLog waits until the log has room for need bytes. What is kept back is for a wrap: the end
// of the ring that a batch does not fit into.
func (m *member) reserveLog(ctx context.Context, need int64) error {
	l := &m.log
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if err := m.writableLocked(); err != nil {
			return err
		}
		usable := m.g.logBytes - 2*m.g.batchBytesMax()
		if int64(l.head-l.tail)+l.promise+need <= usable {
			l.promise += need
			if int64(l.head-l.tail)+l.promise > usable/2 && !m.opt.late {
				m.wantCheckpointLocked()
			}
			return nil
		}
		m.wantCheckpointLocked()
		room := l.room
		m.mu.Unlock()
		select {
		case <-room:
		case <-m.stopped:
		case <-ctx.Done():
			m.mu.Lock()
			return ctx.Err()
		}
		m.mu.Lock()
	}
}

func (m *member) unreserveLog(need int64) {
	m.mu.Lock()
	m.log.promise -= need
	m.mu.Unlock()
}

// appendLocked adds a record to the log, numbers it, and applies it to memory. The log's room was
// reserved by reserveLog.
func (m *member) appendLocked(r *record, need int64, w *waiter, d stripe.Durability) {
	l := &m.log
	r.number = l.number
	if r.st.Life == 0 && m.opt.life != nil {
		r.st.Life = m.opt.life.Load()
	}
	l.number++
	b := l.open
	if b.records > 0 && (len(b.head)+r.bytes() > m.g.batchHeadMax ||
		len(b.blocks)+len(r.blocks) > m.g.batchBlocksMax) {
		l.queue = append(l.queue, b)
		l.open = m.newBatchLocked()
		b = l.open
	}
	b.head = r.append(b.head)
	for i := range r.blocks {
		data := r.blocks[i].data
		data.refs++
		b.blocks = append(b.blocks, data)
	}
	b.records++
	b.room += need
	b.last = r.number
	b.durable = b.durable || d != stripe.Volatile
	b.loose = b.loose || r.flags&flagVerify != 0
	b.waiters = append(b.waiters, w)
	m.applyLocked(r)
	early := 2*len(m.pending) > m.pool.total || m.alloc.crowded()
	if early && !m.opt.late || m.pool.short() || len(m.table.dirty) > m.table.max {
		m.wantCheckpointLocked()
	}
}

// kickLocked wakes the writer.
func (m *member) kickLocked() {
	if m.log.idle {
		m.log.idle = false
		m.log.kick <- struct{}{}
	}
}

// barrier waits until everything that was appended before is written; with durable, until it is
// stable.
func (m *member) barrier(durable bool) (end uint64, chain uint32, err error) {
	m.mu.Lock()
	if err := m.writableLocked(); err != nil {
		m.mu.Unlock()
		return 0, 0, err
	}
	w := m.barrierLocked(durable, false)
	m.mu.Unlock()
	return m.await(w)
}

func (m *member) barrierLocked(durable, mark bool) *waiter {
	w := m.waiter()
	l := &m.log
	b := l.open
	b.waiters = append(b.waiters, w)
	b.durable = b.durable || durable
	b.mark = mark
	l.queue = append(l.queue, b) // what comes later is in another batch
	l.open = m.newBatchLocked()
	return w
}

// wait waits for what the caller has appended, which nobody may have begun to write.
func (m *member) wait(w *waiter) error {
	m.drive()
	return <-w.ready
}

// drive sees to it that what was appended is written. The writer does that; but who finds it asleep
// and was alone lately writes himself, which saves two changes of threads.
func (m *member) drive() {
	l := &m.log
	m.mu.Lock()
	if !l.idle || l.group > 1 {
		m.kickLocked()
		m.mu.Unlock()
		return
	}
	l.idle = false // from here on this is the writer
	b := m.takeBatchLocked()
	m.mu.Unlock()
	if b != nil {
		m.finishBatch(b, m.writeBatch(b))
	}
	m.mu.Lock()
	l.idle = true
	if len(l.queue) > 0 || l.open.records > 0 || l.ending {
		m.kickLocked()
	}
	m.mu.Unlock()
}

// takeBatchLocked takes the next batch to write, nil if there is none.
func (m *member) takeBatchLocked() *batch {
	l := &m.log
	if len(l.queue) > 0 {
		b := l.queue[0]
		n := copy(l.queue, l.queue[1:])
		l.queue = l.queue[:n]
		return b
	}
	if l.open.records == 0 {
		return nil
	}
	b := l.open
	l.open, l.group = m.newBatchLocked(), b.records
	return b
}

// await waits for a barrier and tells where the log stood.
func (m *member) await(w *waiter) (end uint64, chain uint32, err error) {
	err = m.wait(w)
	end, chain = w.end, w.chain
	m.free(w)
	return end, chain, err
}

// runLog is the writer.
func (m *member) runLog() {
	for {
		b := m.nextBatch()
		if b == nil {
			return
		}
		err := m.writeBatch(b)
		m.finishBatch(b, err)
	}
}

// nextBatch waits for something to write; nil at the end.
func (m *member) nextBatch() *batch {
	l := &m.log
	tries := 0
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		// Those who were just told of the last batch come back in a moment: without a pause the
		// first of them would have the next sync for itself, and the others the one after.
		if n := l.open.records; len(l.queue) == 0 && n > 0 && n < l.group && tries < 4 {
			tries++
			m.mu.Unlock()
			runtime.Gosched()
			m.mu.Lock()
			continue
		}
		if b := m.takeBatchLocked(); b != nil {
			return b
		}
		if l.ending {
			return nil
		}
		l.idle = true
		m.mu.Unlock()
		<-l.kick
		m.mu.Lock()
	}
}

// writeBatch puts the batch on the device. The head moves only here.
func (m *member) writeBatch(b *batch) error {
	l := &m.log
	if m.broken.Load() != nil {
		return m.brokenError()
	}
	loose := b.loose || l.stable != l.head
	if b.records == 0 {
		if b.durable && loose {
			if err := m.syncLog(l.head); err != nil {
				return err
			}
		}
		return m.markIf(b)
	}
	if err := m.wrapFor(b); err != nil {
		return err
	}
	info := batchInfo{blocks: len(b.blocks), pos: l.head, stable: l.stable, chain: l.chain,
		kind: batchRecords, lap: l.head / uint64(m.g.logBytes)}
	b.head = sealBatch(b.head, &info, &m.storeID)
	b.bufs = append(b.bufs[:0], b.head)
	for _, data := range b.blocks {
		b.bufs = append(b.bufs, data.buf)
	}
	stable := b.durable && !loose
	b.op.Kind, b.op.Off, b.op.Bufs, b.op.Stable = device.Write, m.logOff(l.head), b.bufs, stable
	b.op.Here = true // the log has a thread of its own: a second one would only cost time
	b.ops[0] = &b.op
	if err := m.do(b.ops[:]); err != nil {
		return err
	}
	end := l.head + uint64(info.bytes())
	l.chain = info.crc
	m.setHead(end)
	if b.loose {
		l.loose = end
	}
	if stable {
		l.stable, l.told = end, info.stable
	}
	if b.durable && loose {
		if err := m.syncLog(end); err != nil {
			return err
		}
	}
	return m.markIf(b)
}

// syncLog makes everything up to end stable, and with it all data that was written before.
func (m *member) syncLog(end uint64) error {
	if err := m.flush(); err != nil {
		return err
	}
	m.log.stable = end
	return nil
}

// markIf writes a mark where a checkpoint asks for one and the log does not say yet that clusters
// written without a sync are stable.
func (m *member) markIf(b *batch) error {
	if !b.mark || m.log.loose <= m.log.told {
		return nil
	}
	return m.writeHead(batchRecords, blockBytes)
}

// writeHead writes a batch without records, which moves the log's head by step: a mark, or a wrap.
// A restart does not verify clusters that were stable at a mark: by then blocks in place may have
// changed them. The room for it is what reserveLog keeps back.
func (m *member) writeHead(kind uint32, step int64) error {
	l := &m.log
	info := batchInfo{pos: l.head, stable: l.stable, chain: l.chain, kind: kind,
		lap: l.head / uint64(m.g.logBytes)}
	clear(m.wrapBuf)
	head := sealBatch(m.wrapBuf[:batchHead], &info, &m.storeID)
	w := &m.wrap
	w.bufs[0], w.ops[0] = head, &w.op
	w.op = device.Op{Kind: device.Write, Off: m.logOff(l.head), Bufs: w.bufs[:], Stable: true}
	stable := l.stable == l.head
	if err := m.do(w.ops[:]); err != nil {
		return err
	}
	l.chain, l.told = info.crc, info.stable
	m.setHead(l.head + uint64(step))
	if stable {
		l.stable = l.head
	}
	return nil
}

func (m *member) logOff(pos uint64) int64 { return logAt + int64(pos%uint64(m.g.logBytes)) }

func (m *member) setHead(end uint64) {
	m.mu.Lock()
	m.log.head = end
	m.mu.Unlock()
}

// wrapFor goes to the ring's start when the batch does not fit before its end.
func (m *member) wrapFor(b *batch) error {
	l := &m.log
	need := (int64(len(b.head))+blockBytes-1)/blockBytes*blockBytes +
		int64(len(b.blocks))*blockBytes
	left := m.g.logBytes - int64(l.head%uint64(m.g.logBytes))
	if need <= left {
		return nil
	}
	return m.writeHead(batchWrap, left)
}

// finishBatch tells everybody and makes the batch ready for its next use.
func (m *member) finishBatch(b *batch, err error) {
	m.mu.Lock()
	l := &m.log
	l.promise -= b.room
	if b.records > 0 {
		m.count.groups.Add(1)
	}
	for i, data := range b.blocks {
		m.unrefLocked(data)
		b.blocks[i] = nil
	}
	if err == nil && b.last > 0 {
		m.logged = b.last
	}
	end, chain := l.head, l.chain
	m.mu.Unlock()
	for i, w := range b.waiters {
		w.end, w.chain = end, chain
		w.ready <- err
		b.waiters[i] = nil
	}
	clear(b.bufs)
	b.head, b.blocks, b.waiters = b.head[:batchHead], b.blocks[:0], b.waiters[:0]
	clear(b.head)
	b.records, b.durable, b.mark, b.loose, b.room, b.last = 0, false, false, false, 0, 0
	m.mu.Lock()
	l.spare = append(l.spare, b)
	m.mu.Unlock()
}

// brokenError is what changes are refused with after a failure.
func (m *member) brokenError() error {
	first := m.broken.Load()
	return errs.Newf(errs.IO, "logstore", m.dev.Name(), "the member refuses changes since an "+
		"earlier failure, check the disk and restart: %w", *first)
}
