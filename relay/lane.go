package relay

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
)

// lane does one chunk after the other, in memory of its own. It belongs to a goroutine, and its
// lists are reused.
type lane struct {
	piece Piece
	sges  []fabric.Sge // of the piece: what the peer is given
	bufs  [][]byte     // of the piece: what the disk is given
	sums  []uint32
}

// run does chunks of the flow until there are none. Memory is taken before a member: otherwise a
// lane that holds a member could wait for memory held by a lane that waits for the member.
func (l *lane) run(f *flow) {
	for f.more() {
		if l.piece == nil {
			// Unaligned streams touch one more block.
			piece, err := f.e.opt.Room.Take(f.ctx, int(f.chunk+f.spill()))
			if err != nil {
				f.fail(err)
				break
			}
			l.piece = piece
		}
		c, ok := f.take()
		if !ok {
			break
		}
		f.invite()
		var err error
		if f.to != nil {
			err = l.deliver(f, c)
		} else {
			err = l.store(f, c)
		}
		if err != nil {
			f.fail(err)
			break
		}
		f.e.count.chunks.Add(1)
		f.e.count.bytes.Add(uint64(c.n))
	}
	l.end()
}

// end frees the memory.
func (l *lane) end() {
	if l.piece != nil {
		l.piece.Return()
		l.piece = nil
	}
	clear(l.sges)
	clear(l.bufs)
}

// spill is the extra memory of a chunk.
func (f *flow) spill() int64 {
	if f.to != nil && f.off%BlockBytes != 0 {
		return BlockBytes
	}
	return 0
}

// deliver reads a chunk and sends it.
func (l *lane) deliver(f *flow, c chunk) error {
	from := f.off + c.at
	first := from / BlockBytes * BlockBytes
	end := (from + c.n + BlockBytes - 1) / BlockBytes * BlockBytes
	l.cut(from-first, c.n, end-first)
	blocks := l.room(int((end - first) / BlockBytes))
	err := f.e.opt.Disk.ReadSums(f.ctx, f.id, l.bufs, first, blocks)
	f.giveBack(c)
	if err != nil {
		return err
	}
	if f.noSums {
		return f.to.Deliver(f.ctx, c.at, l.sges, nil)
	}
	sums := blocks
	if f.sums != nil {
		sums = f.sums[c.at/BlockBytes:][:SumCount(c.n)]
		copy(sums, blocks)
	}
	switch {
	case from != first:
		sums = sums[:SumCount(c.n)]
		l.sum(sums, 0)
	case c.n%BlockBytes != 0: // the disk's sum is of the whole block
		l.sum(sums, len(sums)-1)
	}
	return f.to.Deliver(f.ctx, c.at, l.sges, sums)
}

// store fetches a chunk, has it checked, and writes it.
func (l *lane) store(f *flow, c chunk) error {
	l.cut(0, c.n, c.n)
	if err := f.from.Fetch(f.ctx, c.at, l.sges); err != nil {
		f.giveBack(c)
		return err
	}
	var given []uint32
	if !f.unchecked {
		sums := l.room(SumCount(c.n))
		l.sum(sums, 0)
		if err := f.from.Check(c.at, sums); err != nil {
			f.giveBack(c)
			return err
		}
		if (f.off+c.at)%BlockBytes == 0 && c.n%BlockBytes == 0 {
			given = sums // else the store sums the blocks that it completes
		}
	}
	if !f.beginStore(c) {
		f.giveBack(c)
		return nil // the flow has the error already
	}
	err := f.e.opt.Disk.WriteSums(f.ctx, f.id, l.bufs, f.off+c.at, given, f.stamp[:],
		stripe.Volatile)
	f.endStore(c)
	return err
}

// cut makes the lists of a chunk: the first whole bytes of the piece for the disk, and n of them
// from skip on for the peer.
func (l *lane) cut(skip, n, whole int64) {
	l.sges, l.bufs = l.sges[:0], l.bufs[:0]
	at := int64(0) // in the piece
	for _, s := range l.piece.Sges() {
		if at >= whole {
			break
		}
		b := s.Buf[:min(int64(len(s.Buf)), whole-at)]
		l.bufs = append(l.bufs, b)
		lo, hi := max(skip-at, 0), min(skip+n-at, int64(len(b)))
		if lo < hi {
			l.sges = append(l.sges, fabric.Sge{Reg: s.Reg, Buf: b[lo:hi]})
		}
		at += int64(len(b))
	}
}

// room returns memory for n sums.
func (l *lane) room(n int) []uint32 {
	if cap(l.sums) < n {
		l.sums = make([]uint32, n)
	}
	return l.sums[:n]
}

// sum computes sums of what the peer is given, block by block of the stream, from the k-th on.
func (l *lane) sum(sums []uint32, k int) {
	skip, left, crc := int64(k)*BlockBytes, BlockBytes, uint32(0)
	for _, s := range l.sges {
		b := s.Buf
		gone := min(skip, int64(len(b)))
		b, skip = b[gone:], skip-gone
		for len(b) > 0 {
			n := min(left, len(b))
			crc = crc32c.Update(crc, b[:n])
			b, left = b[n:], left-n
			if left == 0 {
				sums[k], crc, left = crc, 0, BlockBytes
				k++
			}
		}
	}
	if k < len(sums) {
		sums[k] = crc
	}
}
