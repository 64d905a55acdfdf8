package logstore

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// logReader reads the log's ring from the device, ahead and in pieces of a MiB or more.
type logReader struct {
	m     *member
	buf   []byte
	from  int64 // place in the log that buf begins with
	valid int
}

func newLogReader(m *member) *logReader {
	if m.g.batchBytesMax() <= runBlocks*blockBytes {
		return &logReader{m: m, buf: bounceBytes(runBlocks)}
	}
	return &logReader{m: m, buf: alignedBytes(int(m.g.batchBytesMax()))}
}

func (r *logReader) close() {
	if cap(r.buf) == runBlocks*blockBytes {
		freeBounce(r.buf)
	}
}

// at returns n bytes of the log from a place on; they do not cross the ring's end. n is at most the
// size of a batch.
func (r *logReader) at(place int64, n int) ([]byte, error) {
	if place < r.from || place+int64(n) > r.from+int64(r.valid) {
		size := int(min(int64(len(r.buf)), r.m.g.logBytes-place))
		op := device.Op{Kind: device.Read, Off: logAt + place, Bufs: [][]byte{r.buf[:size]}}
		if err := device.One(r.m.dev, &op); err != nil {
			return nil, err
		}
		r.from, r.valid = place, size
		if n > size {
			return nil, errs.Newf(errs.Corrupt, "logstore.replay", r.m.dev.Name(),
				"a batch crosses the log's end")
		}
	}
	return r.buf[place-r.from:][:n], nil
}

// replayLocked applies the log from the tail to the first batch that cannot be believed.
//
// The first pass follows the headers, which name each other, and finds up to where everything was
// stable. Batches before that are whole, or the disk has lost something: a data block of theirs
// that does not verify is given up, and is an error for whoever reads it. The second pass looks at
// those behind: it ends before the first one that is torn, or that names clusters, written without
// a sync, that have not all reached the disk. Nobody was told that such a batch is stable, nor
// anything behind it. The third pass applies.
func (m *member) replayLocked() error {
	r := newLogReader(m)
	defer r.close()
	var stable uint64
	end, err := m.scanLocked(r, ^uint64(0), func(info *batchInfo, _, _ []byte) (bool, error) {
		stable = max(stable, info.stable)
		return true, nil
	})
	if err != nil {
		return err
	}
	damaged, err := m.logDamage(r, end.head)
	if err != nil {
		return err
	}
	end, err = m.scanLocked(r, end.head, func(info *batchInfo, head, data []byte) (bool, error) {
		if info.end() <= stable {
			return true, nil
		}
		if ok, err := m.verifyData(head, data); err != nil || !ok {
			return false, err
		}
		return m.looseVerify(head)
	})
	if err != nil {
		return err
	}
	m.replayEnd = end
	err = m.walkLog(r, end.head, func(_ *batchInfo, head, data []byte) (bool, error) {
		return true, m.replayBatchLocked(head, data)
	})
	if m.replayEnd.head > end.head { // a mark was written behind the end
		m.log.head, m.log.chain = m.replayEnd.head, m.replayEnd.chain
	}
	if damaged { // what lies behind is never to be taken for a part of what comes
		m.log.head += 2 * uint64(m.g.logBytes)
	}
	m.log.loose = m.log.head
	return err
}

// logDamage looks behind the place where the log ends for a batch that was written when more than
// that was stable. Then this is not the end that a crash leaves: a header was damaged, and records
// that somebody was told are durable cannot be read. That is an error, unless it is to be salvaged.
func (m *member) logDamage(r *logReader, end uint64) (bool, error) {
	if m.super.clean {
		return false, nil
	}
	size := uint64(m.g.logBytes)
	for pos := end + blockBytes; pos < m.super.tail+size; pos += blockBytes {
		place := int64(pos % size)
		b, err := r.at(place, blockBytes)
		if err != nil {
			return false, err
		}
		info, ok := decodeBatch(b, &m.storeID)
		if !ok || !m.fits(&info, pos) || info.stable <= end {
			continue
		}
		if b, err = r.at(place, info.headBytes); err != nil {
			return false, err
		}
		if !info.verify(b) {
			continue
		}
		if m.opt.salvage {
			m.opt.log.Error("the log is damaged: what was written last is lost", "device",
				m.dev.Name(), "offset", m.logOff(end))
			return true, nil
		}
		return false, errs.Newf(errs.Corrupt, "", "", "the log is damaged at offset %d, before records "+
			"that were durable: restore the store from a copy, or salvage it and lose what was "+
			"written last", m.logOff(end))
	}
	return false, nil
}

// fits tells whether a header can be that of the batch at a position.
func (m *member) fits(info *batchInfo, pos uint64) bool {
	return info.pos == pos && info.lap == pos/uint64(m.g.logBytes) &&
		info.headBytes <= m.g.batchHeadMax && info.blocks <= m.g.batchBlocksMax &&
		int64(pos%uint64(m.g.logBytes))+info.bytes() <= m.g.logBytes
}

// logEnd is a position with the checksum that the next batch must name.
type logEnd struct {
	head  uint64
	chain uint32
}

// scanLocked walks the batches before end without applying them and tells how far it came.
func (m *member) scanLocked(r *logReader, end uint64,
	fn func(info *batchInfo, head, data []byte) (bool, error)) (logEnd, error) {
	saved := m.log
	err := m.walkLog(r, end, fn)
	at := logEnd{m.log.head, m.log.chain}
	m.log = saved
	return at, err
}

// walkLog calls fn for each batch before end whose header is valid, and moves the log's head and
// chain along as fn accepts them. The data blocks are as they are.
func (m *member) walkLog(r *logReader, end uint64,
	fn func(info *batchInfo, head, data []byte) (bool, error)) error {
	l := &m.log
	for l.head < end {
		place := int64(l.head % uint64(m.g.logBytes))
		b, err := r.at(place, blockBytes)
		if err != nil {
			return err
		}
		info, ok := decodeBatch(b, &m.storeID)
		if !ok || !m.fits(&info, l.head) || info.chain != l.chain {
			return nil
		}
		all, err := r.at(place, int(info.bytes()))
		if err != nil {
			return err
		}
		head, data := all[:info.headBytes], all[info.headBytes:]
		if !info.verify(head) {
			return nil
		}
		next := l.head + uint64(info.bytes())
		if info.kind == batchWrap {
			next = (l.head/uint64(m.g.logBytes) + 1) * uint64(m.g.logBytes)
		}
		if ok, err := fn(&info, head, data); err != nil || !ok {
			return err
		}
		l.head, l.chain = next, info.crc
	}
	return nil
}

// eachRecord decodes the records of a header. Padding ends them.
func (m *member) eachRecord(head []byte, fn func(r *record) error) error {
	var r record
	for rest := head[batchHead:]; len(rest) >= m.g.recordHead && rest[4] != 0; {
		var err error
		if rest, err = decodeRecord(rest, &m.g, &r); err != nil {
			return err
		}
		if err := fn(&r); err != nil {
			return err
		}
	}
	return nil
}

// verifyData compares the data blocks of a batch with their checksums: it may be torn.
func (m *member) verifyData(head, data []byte) (bool, error) {
	ok := true
	err := m.eachRecord(head, func(r *record) error {
		for i := range r.blocks {
			x := &r.blocks[i]
			if len(data) < blockBytes || m.sum(r.id, x.block, data[:blockBytes]) != x.sum {
				ok = false
				return nil
			}
			data = data[blockBytes:]
		}
		return nil
	})
	return ok && len(data) == 0, err
}

// looseVerify tells whether all clusters that a batch names without a sync are on the disk.
func (m *member) looseVerify(head []byte) (bool, error) {
	ok := true
	err := m.eachRecord(head, func(r *record) error {
		if r.flags&flagVerify != 0 && ok {
			ok = m.clustersVerify(r)
		}
		return nil
	})
	return ok, err
}

// replayBatchLocked applies one batch.
func (m *member) replayBatchLocked(head, data []byte) error {
	return m.eachRecord(head, func(r *record) error {
		for i := range r.blocks {
			x := &r.blocks[i]
			if len(data) < blockBytes {
				return errs.Newf(errs.Corrupt, "", "", "a record names more blocks than its batch has")
			}
			if m.sum(r.id, x.block, data[:blockBytes]) != x.sum {
				m.giveUp(r.id, x)
			} else {
				b, err := m.replayBlockLocked()
				if err != nil {
					return err
				}
				copy(b.buf, data[:blockBytes])
				x.data = b
			}
			data = data[blockBytes:]
		}
		if r.slot >= m.slots.high {
			m.slots.high = r.slot + 1
		}
		m.applyLocked(r)
		m.log.number = r.number + 1
		return nil
	})
}

// giveUp is for a block that was durable and that the log has lost. Its checksum is entered, its
// content is whatever is in its place: it does not verify, until somebody writes it anew.
func (m *member) giveUp(id stripe.ObjectID, x *blockPlace) {
	m.logLost++
	m.opt.log.Error("a block of the log is damaged", "device", m.dev.Name(), "object", id, "offset",
		x.block*blockBytes, "remedy", "restore the range from a copy, or write it anew")
}

// replayBlockLocked takes a block. Where there is none, everything so far is written in place; what
// that builds upon is made stable, and marked so, before.
func (m *member) replayBlockLocked() (*block, error) {
	if m.pool.used() == m.pool.total {
		if err := m.markReplay(); err != nil {
			return nil, err
		}
		work := m.pendingLocked()
		m.mu.Unlock()
		err := m.applyPending(work)
		m.dropWork(&work)
		m.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	list, err := m.pool.take(context.Background(), nil, 1, func() {})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// markReplay syncs what a killed process may have written and writes a mark behind the log's end,
// once.
func (m *member) markReplay() error {
	if m.replayMarked {
		return nil
	}
	m.replayMarked = true
	saved := m.log
	m.log.head, m.log.chain, m.log.stable = m.replayEnd.head, m.replayEnd.chain, m.replayEnd.head
	m.mu.Unlock()
	err := m.flush()
	if err == nil {
		err = m.writeHead(batchRecords, blockBytes)
	}
	m.mu.Lock()
	m.replayEnd = logEnd{m.log.head, m.log.chain}
	m.log = saved
	return err
}

// clustersVerify reads the clusters that a record names and compares all checksums.
func (m *member) clustersVerify(r *record) bool {
	b := bounceBytes(clusterBlocks)
	defer freeBounce(b)
	for i := range r.clusters {
		x := &r.clusters[i]
		op := device.Op{Kind: device.Read, Off: m.g.blockOff(x.cluster, 0), Bufs: [][]byte{b}}
		if device.One(m.dev, &op) != nil {
			return false
		}
		for k := range int64(clusterBlocks) {
			blk := x.index*clusterBlocks + k
			if x.mask&(1<<k) != 0 &&
				m.sum(r.id, blk, b[k*blockBytes:(k+1)*blockBytes]) != x.sums[k] {
				return false
			}
		}
	}
	return true
}
