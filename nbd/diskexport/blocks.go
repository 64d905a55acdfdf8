package diskexport

import (
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/stripe/device"
)

// piecesMax is how many pieces of memory one operation has, at most: the kernel takes 1024.
const piecesMax = 512

// bounceBytes is how much is moved at a time where blocks or memory do not fit direct I/O.
const bounceBytes = 256 << 10

var bounces = sync.Pool{New: func() any { b := newAligned(bounceBytes); return &b }}

// cursor walks over a list of buffers.
type cursor struct {
	bufs [][]byte
	used int // of the first
}

// take appends the next n bytes to dst, as they lie.
func (c *cursor) take(dst [][]byte, n int64) [][]byte {
	for n > 0 {
		b := c.next(n)
		dst = append(dst, b)
		n -= int64(len(b))
	}
	return dst
}

// next returns the next bytes that lie together, at most n.
func (c *cursor) next(n int64) []byte {
	for len(c.bufs[0]) == c.used {
		c.bufs, c.used = c.bufs[1:], 0
	}
	b := c.bufs[0][c.used:]
	if int64(len(b)) > n {
		b = b[:n:n]
	}
	c.used += len(b)
	return b
}

// fill copies the next bytes into p.
func (c *cursor) fill(p []byte) {
	for len(p) > 0 {
		n := mem.Copy(p, c.next(int64(len(p))))
		p = p[n:]
	}
}

func lengthOf(bufs [][]byte) (n int64) {
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n
}

// transfer is one request's operations on all members, reused.
type transfer struct {
	ops  []*device.Op
	by   []int // the member of each
	used int
}

var transfers = sync.Pool{New: func() any { return new(transfer) }}

// add gives a member n bytes at its offset at, in one operation with those that they continue.
func (t *transfer) add(kind device.Kind, member int, at, n int64, stable bool, cur *cursor) {
	for i := t.used - 1; i >= 0; i-- {
		op := t.ops[i]
		if t.by[i] != member {
			continue
		}
		if op.Off+lengthOf(op.Bufs) == at && len(op.Bufs) < piecesMax {
			op.Bufs = cur.take(op.Bufs, n)
			return
		}
		break
	}
	if t.used == len(t.ops) {
		t.ops = append(t.ops, new(device.Op))
		t.by = append(t.by, 0)
	}
	op := t.ops[t.used]
	op.Kind, op.Off, op.Stable = kind, at, stable
	op.Bufs = cur.take(op.Bufs[:0], n)
	t.by[t.used] = member
	t.used++
}

func (t *transfer) end() {
	for _, op := range t.ops[:t.used] {
		clear(op.Bufs)
	}
	t.used = 0
	transfers.Put(t)
}

// move reads or writes whole blocks below d.whole, on all members at the same time.
func (d *disk) move(kind device.Kind, bufs [][]byte, off, length int64, stable bool) error {
	t := transfers.Get().(*transfer)
	defer t.end()
	d.plan(t, kind, bufs, off, length, stable)
	d.carryOut(t)
	at, err := d.outcome(t)
	if err == nil {
		return nil
	}
	return &nbd.OffsetError{Off: max(at, off), Err: err}
}

// plan adds the operations that move a range to a transfer.
func (d *disk) plan(t *transfer, kind device.Kind, bufs [][]byte, off, length int64, stable bool) {
	cur := cursor{bufs: bufs}
	for at, end := off, off+length; at < end; {
		member, where, run := d.place(at)
		n := min(run, end-at)
		t.add(kind, member, where, n, stable, &cur)
		at += n
	}
}

// outcome is the first error of a transfer, by its place.
func (d *disk) outcome(t *transfer) (first int64, failed error) {
	first = -1
	for i, op := range t.ops[:t.used] {
		if op.Err == nil {
			continue
		}
		at := d.where(t.by[i], op.Off+int64(op.N))
		if first < 0 || at < first {
			first, failed = at, d.failed(t.by[i], op)
		}
	}
	return first, failed
}

func (d *disk) failed(member int, op *device.Op) error {
	dev := d.parts[member].dev
	if errors.Is(op.Err, io.ErrUnexpectedEOF) {
		return errs.Newf(errs.IO, "diskexport.Read", dev.Name(), "it ends at %d: it has shrunk",
			op.Off+int64(op.N))
	}
	return device.Failed(dev, op)
}

// carryOut has all members work at once.
func (d *disk) carryOut(t *transfer) {
	if t.used == 1 || len(d.parts) == 1 {
		d.parts[t.by[0]].dev.Do(t.ops[:t.used])
		return
	}
	for i := range t.used {
		if s, ok := d.parts[t.by[i]].dev.(device.Starter); ok {
			s.Begin(t.ops[i : i+1])
		} else {
			d.parts[t.by[i]].dev.Do(t.ops[i : i+1])
		}
	}
	for i := range t.used {
		if s, ok := d.parts[t.by[i]].dev.(device.Starter); ok {
			s.Wait(t.ops[i])
		}
	}
}

// readBlocks fills the list with what the disk has from off on. off and all lengths are whole
// blocks and the memory is aligned. Behind the disk's end everything is zero.
func (d *disk) readBlocks(bufs [][]byte, off int64) error {
	length := lengthOf(bufs)
	direct := max(min(off+length, d.whole)-off, 0)
	if direct > 0 {
		if err := d.move(device.Read, bufs, off, direct, false); err != nil || direct == length {
			return err
		}
	}
	cur := cursor{bufs: bufs}
	for skip := direct; skip > 0; {
		skip -= int64(len(cur.next(skip)))
	}
	for at, left := off+direct, length-direct; left > 0; {
		b := cur.next(left)
		n := min(max(d.size-at, 0), int64(len(b)))
		if err := d.pread(b[:n], at); err != nil {
			return err
		}
		clear(b[n:])
		at, left = at+int64(len(b)), left-int64(len(b))
	}
	return nil
}

// readDirect fills p past all caches, through aligned memory where p or its place is not.
func (d *disk) readDirect(p []byte, off int64) error {
	list := [1][]byte{p}
	if (off|int64(len(p)))&(d.grain-1) == 0 && aligned(list[:], d.grain) {
		return d.readBlocks(list[:], off)
	}
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	for len(p) > 0 {
		from := off &^ (d.grain - 1)
		to := min((off+int64(len(p))+d.grain-1)&^(d.grain-1), from+bounceBytes)
		b := (*bounce)[:to-from]
		if err := d.readBlocks([][]byte{b}, from); err != nil {
			return err
		}
		n := mem.Copy(p, b[off-from:])
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeDirect writes any list to any place, past all caches.
func (d *disk) writeDirect(bufs [][]byte, off, length int64, stable bool) error {
	var h heldRange
	if (off|length)&(d.grain-1) == 0 && off+length <= d.whole && aligned(bufs, d.grain) {
		d.ranges.lock(&h, off, length, directly)
		defer d.ranges.unlock(&h)
		return d.put(bufs, off, length, stable)
	}
	d.ranges.lock(&h, off, length, alone)
	defer d.ranges.unlock(&h)
	return d.writeOdd(bufs, off, length, stable)
}

// writeOdd writes what does not consist of whole blocks: their other bytes are read before. Nobody
// else writes there meanwhile. The disk's end, where it is no whole block, goes by the page cache.
func (d *disk) writeOdd(bufs [][]byte, off, length int64, stable bool) error {
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	cur := cursor{bufs: bufs}
	for end := off + length; off < end; {
		if off >= d.whole {
			b := (*bounce)[:end-off]
			cur.fill(b)
			if err := d.pwrite(b, off); err != nil || !stable {
				return errs.Wrap("diskexport.Write", d.name, err)
			}
			return d.sync()
		}
		from := off &^ (d.grain - 1)
		to := min((end+d.grain-1)&^(d.grain-1), from+bounceBytes, d.whole)
		b := (*bounce)[:to-from]
		if err := d.readEdges(b, from, off, min(end, to)); err != nil {
			return err
		}
		n := min(end, to) - off
		cur.fill(b[off-from:][:n])
		if err := d.put([][]byte{b}, from, to-from, stable); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// readEdges reads the first and the last block of b, which begins at from, where [lo, hi) does not
// cover them.
func (d *disk) readEdges(b []byte, from, lo, hi int64) error {
	last := int64(len(b)) - d.grain
	if lo > from {
		if err := d.readBlocks([][]byte{b[:d.grain]}, from); err != nil {
			return err
		}
		if last == 0 {
			return nil
		}
	}
	if hi < from+int64(len(b)) {
		return d.readBlocks([][]byte{b[last:]}, from+last)
	}
	return nil
}

// put writes whole blocks. Whether a stable write failed to write or to become stable is found
// out by writing again: the second may have lost earlier writes as well, see sync.go.
func (d *disk) put(bufs [][]byte, off, length int64, stable bool) error {
	if !stable {
		return d.move(device.Write, bufs, off, length, false)
	}
	if err := d.failure(); err != nil {
		return err
	}
	if !d.noSync.Load() {
		cause := d.move(device.Write, bufs, off, length, true)
		if cause == nil {
			return d.failure()
		}
		if errors.Is(cause, unix.EOPNOTSUPP) {
			d.noSync.Store(true)
		} else if err := d.move(device.Write, bufs, off, length, false); err != nil {
			return err
		} else {
			return d.breakDown(cause)
		}
	}
	if err := d.move(device.Write, bufs, off, length, false); err != nil {
		return err
	}
	return d.sync()
}
