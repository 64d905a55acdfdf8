package logstore

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
)

// Life of a write. Whole clusters (the middle of a large write) go straight from the caller's
// memory into free clusters, and the record switches the map to them. The rest, less than a cluster
// at each end, is copied into blocks, which travel in the log and are written in place later. One
// record says all of it, so that the write is there as a whole or not at all.
//
//	1. blocks are taken, parts of blocks are completed with what is there
//	2. the middle is written
//	3. the log's room is reserved
//	4. under the member's lock: stamps are checked again, places are found, the record is appended
//	   and applied to memory
//	5. the caller waits for the record's batch

const (
	largeBytes = clusterBytes // from here on clusters are switched
	chunkBytes = 4 << 20      // longer writes are several
)

// job is one write under way, kept for the next.
type job struct {
	rec      record
	blocks   []*block
	used     int      // how many of them the record names
	clusters []uint32 // taken for the middle
	fresh    []uint32 // taken for blocks that have no cluster yet
	ops      []*device.Op
	opList   []device.Op
	pieces   [][]byte
	bounced  [][]byte
	written  bool // the record was appended: blocks and clusters are the member's

	given     []uint32 // plain sums from the caller, of whole blocks; nil: none
	givenFrom int64    // block that they begin with
}

var jobs = sync.Pool{New: func() any { return new(job) }}

// input is what a write is given. It belongs to the caller again when the write returns.
type input struct {
	bufs   [][]byte
	off, n int64
	sums   []uint32 // plain ones of whole blocks; nil: the member sums
	st     wire.Stamp
	more   []wire.Stamp // further requests that the write includes
	d      stripe.Durability
}

// write stores the input in one record: at most chunkBytes.
func (m *member) write(ctx context.Context, id stripe.ObjectID, in *input) error {
	partial := in.off%blockBytes != 0 || (in.off+in.n)%blockBytes != 0
	mode := changeMode{exclusive: partial, create: true, writes: true, epoch: in.st.Epoch}
	return m.change("logstore.WriteAt", id, mode, func(o *object) (*waiter, error) {
		if w, done, err := m.admit(o, in.st, in.d); done || err != nil {
			return w, err
		}
		return m.writeOrdered(ctx, o, in)
	})
}

// writeOrdered runs under the object's order lock.
func (m *member) writeOrdered(ctx context.Context, o *object, in *input) (*waiter, error) {
	off, n := in.off, in.n
	j := jobs.Get().(*job)
	defer m.done(j)
	j.rec = record{kind: kindWrite, id: o.id, st: in.st, requests: in.more,
		blocks: j.rec.blocks[:0], clusters: j.rec.clusters[:0]}
	j.given, j.givenFrom = in.sums, off/blockBytes
	first, last := int64(0), int64(0) // clusters of the middle
	if n >= largeBytes {
		first, last = (off+clusterBytes-1)/clusterBytes, (off+n)/clusterBytes
		if last > first && !m.takeClusters(j, int(last-first)) {
			first, last = 0, 0 // no room for a second copy: through the log, in place
		}
	}
	src := gather{bufs: in.bufs}
	if last <= first {
		return m.writeBlocks(ctx, o, j, &src, in)
	}
	// Both ends in one step: whoever held one and waited for the other could wait for ever.
	ends := blocksIn(off, first*clusterBytes) + blocksIn(last*clusterBytes, off+n)
	if err := m.takeBlocks(ctx, j, ends); err != nil {
		return nil, err
	}
	if err := m.fillBlocks(ctx, o, j, &src, off, first*clusterBytes); err != nil {
		return nil, err
	}
	if err := m.writeMiddle(o, j, &src, first); err != nil {
		return nil, err
	}
	if err := m.fillBlocks(ctx, o, j, &src, last*clusterBytes, off+n); err != nil {
		return nil, err
	}
	return m.commit(ctx, o, j, off+n, in.d)
}

// writeBlocks writes all of a range through the log. What is more than a batch takes several
// records.
func (m *member) writeBlocks(ctx context.Context, o *object, j *job, src *gather,
	in *input) (*waiter, error) {
	off := in.off
	for end := off + in.n; ; {
		step := min(end, (off/blockBytes+int64(min(m.g.batchBlocksMax, 128)))*blockBytes)
		j.rec.st, j.rec.requests = in.st, in.more
		if step < end {
			j.rec.st.Seq, j.rec.requests = 0, nil // the last one carries the numbers
		}
		if err := m.fillBlocks(ctx, o, j, src, off, step); err != nil {
			return nil, err
		}
		w, err := m.commit(ctx, o, j, step, in.d)
		if err != nil || step == end {
			return w, err
		}
		err = m.wait(w)
		m.free(w)
		if err != nil {
			return nil, err
		}
		off = step
		m.reset(j)
	}
}

// takeClusters takes free clusters for the middle; false when there are not enough.
func (m *member) takeClusters(j *job, n int) bool {
	var ok bool
	m.mu.Lock()
	j.clusters, ok = m.alloc.take(j.clusters, n)
	m.mu.Unlock()
	if !ok && m.makeRoom(uint32(n)) {
		m.mu.Lock()
		j.clusters, ok = m.alloc.take(j.clusters, n)
		m.mu.Unlock()
	}
	return ok
}

// blocksIn is how many blocks [off, end) touches.
func blocksIn(off, end int64) int {
	if off >= end {
		return 0
	}
	return int((end-1)/blockBytes - off/blockBytes + 1)
}

// takeBlocks makes sure that the job has n blocks beside those that it uses.
func (m *member) takeBlocks(ctx context.Context, j *job, n int) (err error) {
	need := n - (len(j.blocks) - j.used)
	j.blocks, err = m.pool.take(ctx, j.blocks, need, m.wantCheckpoint)
	if err != nil && m.broken.Load() != nil {
		return m.brokenError()
	}
	return err
}

// fillBlocks appends blocks that hold [off, end) to the job: the bytes of src, completed at the
// ends with what is there.
func (m *member) fillBlocks(ctx context.Context, o *object, j *job, src *gather, off,
	end int64) error {
	if off >= end {
		return nil
	}
	firstBlock, lastBlock := off/blockBytes, (end-1)/blockBytes
	if err := m.takeBlocks(ctx, j, blocksIn(off, end)); err != nil {
		return err
	}
	for blk := firstBlock; blk <= lastBlock; blk++ {
		data := j.blocks[j.used]
		lo, hi := max(off-blk*blockBytes, 0), min(end-blk*blockBytes, blockBytes)
		if lo > 0 || hi < blockBytes {
			if err := m.readBlock(o, blk, data.buf); err != nil {
				return err
			}
		}
		src.copyTo(data.buf[lo:hi])
		j.rec.blocks = append(j.rec.blocks, blockPlace{block: blk, data: data,
			sum: m.blockSum(o.id, blk, j, data.buf)})
		j.used++
	}
	m.count.copied.Add(uint64(end - off))
	return nil
}

// sum is the checksum at rest.
func (m *member) sum(id stripe.ObjectID, blk int64, data []byte) uint32 {
	if m.opt.unsummed {
		return 0
	}
	return crc32c.Sum(data) ^ foldSeed(id, blk)
}

// blockSum is the checksum at rest of a block of the job. Given sums are of whole blocks, and a
// CRC is linear: the seed is folded in without another look at the data.
func (m *member) blockSum(id stripe.ObjectID, blk int64, j *job, data []byte) uint32 {
	if j.given == nil || m.opt.unsummed {
		return m.sum(id, blk, data)
	}
	return j.given[blk-j.givenFrom] ^ foldSeed(id, blk)
}

// readBlock reads one block of the object into buf.
func (m *member) readBlock(o *object, blk int64, buf []byte) error {
	bufs := [1][]byte{buf}
	return m.read(o, bufs[:], blk*blockBytes, blockBytes)
}

// writeMiddle writes whole clusters of the object, from index first on, into those of the job, and
// notes them in the record. They are not synced here: the record says that they are to be verified
// by a restart, and the sync that makes the record stable makes them stable too. So a durable write
// costs one sync, not two.
func (m *member) writeMiddle(o *object, j *job, src *gather, first int64) error {
	sums := *src
	m.prepareMiddle(j, src)
	begun := m.starter != nil
	if begun { // the disk works while we sum
		m.starter.Begin(j.ops)
	}
	for i, c := range j.clusters {
		x := clusterPlace{index: first + int64(i), cluster: c, mask: 0xffff}
		m.sumCluster(&x, o.id, &sums, j)
		j.rec.clusters = append(j.rec.clusters, x)
	}
	j.rec.flags |= flagVerify
	if !begun {
		return m.do(j.ops)
	}
	for _, op := range j.ops {
		m.starter.Wait(op)
	}
	return m.finished(j.ops)
}

// sumCluster computes the checksums of a cluster, whose bytes it takes from src.
func (m *member) sumCluster(x *clusterPlace, id stripe.ObjectID, src *gather, j *job) {
	if m.opt.unsummed {
		return
	}
	seed := objectSeed(id)
	for k := range x.sums {
		blk := x.index*clusterBlocks + int64(k)
		if j.given != nil {
			x.sums[k] = j.given[blk-j.givenFrom]
		} else {
			x.sums[k] = src.plainSum()
		}
		x.sums[k] ^= foldBlock(seed, blk)
	}
}

// prepareMiddle makes one write for each run of neighbouring clusters.
func (m *member) prepareMiddle(j *job, src *gather) {
	if cap(j.opList) < len(j.clusters) {
		j.opList = make([]device.Op, len(j.clusters))
	}
	j.opList = j.opList[:len(j.clusters)]
	for i := 0; i < len(j.clusters); {
		k := i + 1
		for k < len(j.clusters) && j.clusters[k] == j.clusters[k-1]+1 && k-i < runBlocks/clusterBlocks {
			k++
		}
		had, n := len(j.pieces), (k-i)*clusterBytes
		var ok bool
		if j.pieces, ok = src.direct(j.pieces, n); !ok {
			b := bounceBytes(n / blockBytes)
			src.copyTo(b)
			m.count.copied.Add(uint64(n))
			j.bounced = append(j.bounced, b)
			j.pieces = append(j.pieces, b)
		}
		op := &j.opList[len(j.ops)]
		op.Kind, op.Stable = device.Write, false
		op.Off, op.Bufs = m.g.blockOff(j.clusters[i], 0), j.pieces[had:len(j.pieces):len(j.pieces)]
		j.ops = append(j.ops, op)
		i = k
	}
}

// commit appends the job's record. end is how far the object reaches at least.
func (m *member) commit(ctx context.Context, o *object, j *job, end int64,
	d stripe.Durability) (*waiter, error) {
	return m.commitWith(ctx, o, j, d, func() {
		j.rec.size, j.rec.st.TruncSeq = max(o.size, end), o.truncSeq
	})
}

// commitWith finds the places of the record's blocks and appends it. last completes the record
// under the member's lock.
func (m *member) commitWith(ctx context.Context, o *object, j *job, d stripe.Durability,
	last func()) (*waiter, error) {
	need := logNeed(&j.rec)
	if err := m.reserveLog(ctx, need); err != nil {
		return nil, err
	}
	for {
		m.mu.Lock()
		missing, err := m.placeLocked(o, j)
		repeat := m.sessions.Repeated(j.rec.st)
		if err == nil && missing == 0 && !repeat {
			last()
			w := m.waiter()
			m.appendLocked(&j.rec, need, w, d)
			j.written = true
			m.mu.Unlock()
			return w, nil
		}
		m.mu.Unlock()
		if err == nil && !repeat {
			if missing == needSlots && m.growSlots() == nil ||
				missing != needSlots && m.makeRoom(uint32(missing)) {
				continue
			}
			err = errs.Newf(errs.NoSpace, "logstore", m.dev.Name(),
				"no free cluster: remove files, or make a larger store")
		}
		m.unreserveLog(need)
		if err != nil {
			return nil, err
		}
		return m.repeated(d)
	}
}

// needSlots says that the table needs space for more objects.
const needSlots = -1

// placeLocked finds the place of every block of the record; blocks whose cluster does not exist get
// a free one. It returns how many clusters are missing, or needSlots.
func (m *member) placeLocked(o *object, j *job) (missing int, err error) {
	if err := m.writableLocked(); err != nil {
		return 0, err
	}
	if o.slot == noSlot {
		slot, ok := m.slots.take()
		if !ok && m.slots.limit < m.g.slots {
			return needSlots, nil
		}
		if !ok {
			return 0, errs.Newf(errs.NoSpace, "logstore", m.dev.Name(),
				"all %d slots for objects are taken", m.g.slots)
		}
		o.slot = slot
	}
	j.rec.slot = o.slot
	taken := int64(-1) // index of the object's cluster that was taken last
	need := 0
	for i := range j.rec.blocks {
		index := j.rec.blocks[i].block / clusterBlocks
		if _, ok := o.cluster(index); !ok && index != taken {
			taken = index
			need++
		}
	}
	if n := need - len(j.fresh); n > 0 {
		var ok bool
		if j.fresh, ok = m.alloc.take(j.fresh, n); !ok {
			return n, nil
		}
	}
	taken = -1
	next := 0
	for i := range j.rec.blocks {
		x := &j.rec.blocks[i]
		index := x.block / clusterBlocks
		c, ok := o.cluster(index)
		if !ok && index != taken {
			c = j.fresh[next]
			next++
			x.fresh, taken = true, index
		} else if !ok {
			c = j.fresh[next-1]
		}
		x.cluster = c
	}
	j.fresh = append(j.fresh[:0], j.fresh[next:]...) // none, but for a race that took too many
	return 0, nil
}

// reset gives back what a job holds and nobody has taken over.
func (m *member) reset(j *job) {
	m.mu.Lock()
	left := j.blocks
	if j.written {
		left = left[j.used:]
	}
	for _, b := range left {
		m.unrefLocked(b)
	}
	if !j.written {
		for _, c := range j.clusters {
			m.alloc.release(c)
		}
	}
	for _, c := range j.fresh {
		m.alloc.release(c)
	}
	m.mu.Unlock()
	for _, b := range j.bounced {
		freeBounce(b)
	}
	clear(j.blocks)
	clear(j.pieces)
	clear(j.rec.blocks)
	for i := range j.opList {
		j.opList[i].Bufs = nil
	}
	*j = job{
		rec: record{kind: j.rec.kind, id: j.rec.id, st: j.rec.st, blocks: j.rec.blocks[:0],
			clusters: j.rec.clusters[:0]},
		given: j.given, givenFrom: j.givenFrom,
		blocks: j.blocks[:0], clusters: j.clusters[:0], fresh: j.fresh[:0], ops: j.ops[:0],
		opList: j.opList, pieces: j.pieces[:0], bounced: j.bounced[:0],
	}
}

func (m *member) done(j *job) {
	m.reset(j)
	j.given = nil // no memory of the caller's is kept
	jobs.Put(j)
}
