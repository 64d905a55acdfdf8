package logstore

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// Life of a read: under the member's lock it is found out where each block is (plan), then the
// device is asked for all of it at once, then every block is verified. Nothing is locked while the
// disk works. A block that does not verify although nobody has changed the object since is corrupt;
// otherwise the read has met a write in place, and begins again.

// run is a piece of a read that comes from one place.
type run struct {
	from    source
	block   int64 // of the object
	blocks  int
	off     int64    // on the device
	skip    int      // bytes of the first block that are not wanted
	bytes   int      // wanted
	data    *block   // fromPending
	bounce  []byte   // fromDevice, when the caller's memory does not fit
	pieces  [][]byte // fromDevice, when it does
	firstAt int      // of the run's sums in plan.sums; of holes there are none
}

type source uint8

const (
	fromNowhere source = iota // a hole
	fromPending
	fromDevice
	fromLost // the index has lost an entry: this hole may not be one
)

// plan is one read, kept for the next.
type plan struct {
	runs    []run
	sums    []uint32
	ops     []*device.Op
	opList  []device.Op
	pieces  [][]byte
	held    int // runs from memory
	longest int // blocks of a run
	begun   int // operations that were begun, and not done at once
	done    int // operations that were looked at
	version uint64
	gen     uint64

	out   []uint32 // where the reader wants the plain sums; nil: it does not
	first int64    // block that they begin with
}

var plans = sync.Pool{New: func() any { return new(plan) }}

// runBlocks is the longest run: longer ones are several operations, which the device does at once.
// A large read is cut into pieces of which two are under way, so that one is verified while the
// disk works on others. (With more under way a disk may serve all of them at the same pace, and
// they come at the same time.)
const (
	runBlocks   = 1 << 20 / blockBytes
	pieceBlocks = 256 << 10 / blockBytes
	piecesAhead = 2
	piecesFrom  = 512 << 10 // bytes of a read
)

// read fills the buffers from off on.
func (m *member) read(o *object, bufs [][]byte, off, n int64) error {
	p := plans.Get().(*plan)
	defer plans.Put(p)
	m.mu.Lock()
	m.lookUpLocked(o, p, off, n)
	m.mu.Unlock()
	return m.readPlanned(o, p, bufs, off, n)
}

// readPlanned is read after the first look.
func (m *member) readPlanned(o *object, p *plan, bufs [][]byte, off, n int64) error {
	const tries = 1000 // each but the last has met a change of the object
	for try := 0; ; try++ {
		bad, err := m.fetch(o, p, bufs)
		m.release(p)
		if err != nil || bad < 0 {
			return err
		}
		m.mu.Lock()
		changed := o.version != p.version
		if again := changed && try < tries || try == 0; !again {
			m.mu.Unlock()
			m.count.badSums.Add(1)
			return m.corrupt(o, p, bad)
		}
		m.lookUpLocked(o, p, off, n) // it may have met a write in place, or the bus a spark
		m.mu.Unlock()
	}
}

// corrupt is the error of a block that does not verify.
func (m *member) corrupt(o *object, p *plan, bad int64) error {
	return errs.Newf(errs.Corrupt, "logstore.ReadAt", "object "+o.id.String(),
		"block at offset %d does not verify on %s: restore the range from a copy, or write it anew",
		bad*blockBytes, m.dev.Name())
}

// lookUpLocked finds where everything is. Blocks that are taken from memory are held.
func (m *member) lookUpLocked(o *object, p *plan, off, n int64) {
	p.runs, p.sums, p.held, p.longest = p.runs[:0], p.sums[:0], 0, runBlocks
	if n >= piecesFrom && m.starter != nil && !m.opt.unsummed {
		p.longest = pieceBlocks
	}
	p.version = o.version
	p.gen = m.reads.enter()
	for end := off + n; off < end; {
		blk := off / blockBytes
		index := blk / clusterBlocks
		stop := min(end, (index+1)*clusterBytes)
		c, ok := o.cluster(index)
		if !ok {
			from := fromNowhere
			if m.table.lost > 0 && off < o.size {
				from = fromLost
			}
			p.add(run{from: from, block: blk, bytes: int(stop - off)})
			off = stop
			continue
		}
		e := m.table.clusterEntry(c)
		for off < stop {
			blk = off / blockBytes
			to := min(stop, (blk+1)*blockBytes)
			m.lookUpBlockLocked(p, e, c, blk, int(off%blockBytes), int(to-off))
			off = to
		}
	}
}

func (m *member) lookUpBlockLocked(p *plan, e entry, c uint32, blk int64, skip, bytes int) {
	b := int(blk % clusterBlocks)
	if e.mask()&(1<<b) == 0 {
		p.add(run{from: fromNowhere, block: blk, bytes: bytes})
		return
	}
	if data := m.pending[uint64(c)*clusterBlocks+uint64(b)]; data != nil {
		data.refs++
		p.held++
		p.sums = append(p.sums, e.sum(b))
		p.runs = append(p.runs, run{from: fromPending, block: blk, blocks: 1, skip: skip,
			bytes: bytes, data: data, firstAt: len(p.sums) - 1})
		return
	}
	p.sums = append(p.sums, e.sum(b))
	p.add(run{from: fromDevice, block: blk, blocks: 1, off: m.g.blockOff(c, b), skip: skip,
		bytes: bytes, firstAt: len(p.sums) - 1})
}

// add appends a run, or makes the last one longer.
func (p *plan) add(r run) {
	if k := len(p.runs) - 1; k >= 0 && p.runs[k].from == r.from {
		last := &p.runs[k]
		switch {
		case r.from == fromNowhere || r.from == fromLost:
			last.bytes += r.bytes
			return
		case last.off+int64(last.blocks)*blockBytes == r.off && last.blocks < p.longest &&
			(last.skip+last.bytes)%blockBytes == 0:
			last.blocks++
			last.bytes += r.bytes
			return
		}
	}
	p.runs = append(p.runs, r)
}

// fetch moves the bytes and verifies them. bad is the block that does not, or -1.
func (m *member) fetch(o *object, p *plan, bufs [][]byte) (bad int64, err error) {
	m.prepare(p, bufs)
	m.startReads(p)
	defer m.waitReads(p)
	to := gather{bufs: bufs}
	for i := range p.runs {
		r := &p.runs[i]
		switch r.from {
		case fromLost:
			return -1, errs.Newf(errs.Corrupt, "logstore.ReadAt", "object "+o.id.String(),
				"the index of %s has lost an entry that may belong to offset %d: run store check",
				m.dev.Name(), r.block*blockBytes)
		case fromNowhere:
			to.zero(r.bytes)
			p.tellZeroes(r)
		case fromPending:
			to.copyFrom(r.data.buf[r.skip : r.skip+r.bytes])
			p.tell(r.block, p.sums[r.firstAt]^foldSeed(o.id, r.block))
			m.count.copied.Add(uint64(r.bytes))
		case fromDevice:
			if err := m.waitRead(o, p); err != nil {
				return -1, err
			}
			if bad := m.verify(o.id, p, r); bad >= 0 {
				return bad, nil
			}
			if r.bounce == nil {
				to.skip(r.bytes)
				continue
			}
			to.copyFrom(r.bounce[r.skip : r.skip+r.bytes])
			m.count.copied.Add(uint64(r.bytes))
		}
	}
	return -1, nil
}

// startReads asks the device for all that comes from it; of a large read for the first pieces.
func (m *member) startReads(p *plan) {
	m.count.diskReads.Add(uint64(len(p.ops)))
	p.done, p.begun = 0, 0
	switch {
	case len(p.ops) == 0:
	case len(p.ops) > 1 && p.longest == pieceBlocks:
		p.begun = min(piecesAhead, len(p.ops))
		m.starter.Begin(p.ops[:p.begun])
	default:
		m.dev.Do(p.ops)
	}
}

// waitRead is for the next operation. Another one takes its place.
func (m *member) waitRead(o *object, p *plan) error {
	op := p.ops[p.done]
	if p.done < p.begun {
		m.starter.Wait(op)
		if p.begun < len(p.ops) {
			m.starter.Begin(p.ops[p.begun : p.begun+1])
			p.begun++
		}
	}
	p.done++
	if op.Err != nil {
		return errs.New(errs.IO, "logstore.ReadAt", "object "+o.id.String(),
			device.Failed(m.dev, op))
	}
	m.count.diskReadBytes.Add(uint64(op.N))
	return nil
}

// waitReads gives the caller's memory back when not all of it was looked at.
func (m *member) waitReads(p *plan) {
	for ; p.done < p.begun; p.done++ {
		m.starter.Wait(p.ops[p.done])
	}
}

// prepare makes the device operations: straight into the caller's memory where that is possible.
func (m *member) prepare(p *plan, bufs [][]byte) {
	n := 0
	for i := range p.runs {
		if p.runs[i].from == fromDevice {
			n++
		}
	}
	if cap(p.opList) < n {
		p.opList = make([]device.Op, n)
	}
	p.opList, p.ops, p.pieces = p.opList[:n], p.ops[:0], p.pieces[:0]
	to := gather{bufs: bufs}
	for i := range p.runs {
		r := &p.runs[i]
		if r.from != fromDevice {
			to.skip(r.bytes)
			continue
		}
		had, ok := len(p.pieces), false
		if r.skip == 0 && r.bytes%blockBytes == 0 {
			p.pieces, ok = to.direct(p.pieces, r.bytes)
		}
		if !ok {
			r.bounce = bounceBytes(r.blocks)
			p.pieces = append(p.pieces, r.bounce)
			to.skip(r.bytes)
		}
		r.pieces = p.pieces[had:len(p.pieces):len(p.pieces)]
		op := &p.opList[len(p.ops)]
		op.Kind, op.Off, op.Bufs, op.Stable = device.Read, r.off, r.pieces, false
		p.ops = append(p.ops, op)
	}
}

// verify compares every block of a run with its checksum.
func (m *member) verify(id stripe.ObjectID, p *plan, r *run) (bad int64) {
	if m.opt.unsummed {
		return -1
	}
	from, seed := gather{bufs: r.pieces}, objectSeed(id)
	for k := range int64(r.blocks) {
		plain := crc32c.Sum(from.next(blockBytes))
		if plain^foldBlock(seed, r.block+k) != p.sums[r.firstAt+int(k)] {
			return r.block + k
		}
		p.tell(r.block+k, plain)
	}
	return -1
}

// tell notes the plain sum of a block for the reader.
func (p *plan) tell(block int64, plain uint32) {
	if p.out != nil {
		p.out[block-p.first] = plain
	}
}

func (p *plan) tellZeroes(r *run) {
	if p.out != nil {
		for k := range int64(r.bytes / blockBytes) {
			p.out[r.block-p.first+k] = crc32c.ZeroBlock
		}
	}
}

// release gives back what lookUpLocked held.
func (m *member) release(p *plan) {
	if p.held > 0 {
		m.mu.Lock()
		for i := range p.runs {
			if data := p.runs[i].data; data != nil {
				m.unrefLocked(data)
			}
		}
		m.mu.Unlock()
	}
	m.reads.leave(p.gen)
	for i := range p.runs {
		if b := p.runs[i].bounce; b != nil {
			freeBounce(b)
		}
	}
	clear(p.runs) // no memory of the caller's is kept
	clear(p.pieces)
	for i := range p.opList {
		p.opList[i].Bufs = nil
	}
}

// Bounce buffers come in two sizes: a cluster, and the longest run.
var (
	bounceSmall = sync.Pool{New: func() any { b := alignedBytes(clusterBytes); return &b }}
	bounceLarge = sync.Pool{New: func() any {
		b := alignedBytes(runBlocks * blockBytes)
		return &b
	}}
)

func bounceBytes(blocks int) []byte {
	n := blocks * blockBytes
	if n <= clusterBytes {
		return (*bounceSmall.Get().(*[]byte))[:n]
	}
	invariant.Check(blocks <= runBlocks, "logstore: a run is too long")
	return (*bounceLarge.Get().(*[]byte))[:n]
}

func freeBounce(b []byte) {
	b = b[:cap(b)]
	if len(b) <= clusterBytes {
		bounceSmall.Put(&b)
	} else {
		bounceLarge.Put(&b)
	}
}
