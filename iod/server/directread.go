package server

import (
	"context"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier"
)

// readDirect moves data from the store to the client past the cache, chunk by chunk. Dirty data of
// the cache is written back first. done is false where the cache serves the request better: it has
// all of the data, or no piece is large enough.
func (s *Server) readDirect(ctx context.Context, c *msg.Call, w *work) (done bool, err error) {
	t, a, d := &w.req.Target, &w.req.Args, &w.direct
	d.plan(a, &t.How, s.chunkBytes(&t.How), false)
	if len(d.far) == 0 || s.cfg.Cache.Query(t.Object, a.Access) == d.total {
		return false, nil
	}
	if err := s.enterDirect(ctx, c, w); err != nil {
		return true, err
	}
	defer s.leaveDirect(w)
	if err := s.enterDisk(ctx, c, w, d.total); err != nil {
		return true, err
	}
	defer s.leaveDisk(w)
	defer d.release()
	d.call = c
	if !t.How.NoSums {
		w.sums = append(w.sums, make([]uint32, iod.Sums(d.total))...)
		d.sums = w.sums
	}
	loan, err := s.readNear(ctx, w)
	if loan != nil {
		defer loan.Release()
	}
	if err != nil {
		return true, err
	}
	for _, p := range d.far {
		if err := s.readSpan(ctx, w, p); err != nil {
			return true, err
		}
	}
	if err := s.fences.check(t.Object); err != nil {
		return true, err // removed while it was read
	}
	s.count.readBytes.Add(uint64(d.total))
	w.read = d.total
	iod.AppendData(&w.reply, s.mark(), w.sums)
	w.time.enter(stateSend)
	err = ignoreDead(c.Reply(w.reply.B, d.total))
	w.time.enter(stateFin)
	return true, err
}

// readNear pushes the pieces that go through the cache.
func (s *Server) readNear(ctx context.Context, w *work) (*unifier.Loan, error) {
	d, t := &w.direct, &w.req.Target
	if len(d.near) == 0 {
		return nil, nil
	}
	loan, err := s.cfg.Cache.Read(ctx, t.Object, seg.List(d.near), hint(&t.How))
	if err != nil {
		return nil, err
	}
	rest := tape{list: loan.Sges()}
	for i, p := range d.near {
		d.part = rest.cut(d.part[:0], p.Len)
		at := d.places[i]
		for _, part := range d.part {
			d.addBytes(at, part.Buf)
			at += int64(len(part.Buf))
		}
		if err := d.call.Push(ctx, d.places[i], d.part); err != nil {
			return loan, err
		}
	}
	return loan, nil
}

// readSpan moves one large piece.
func (s *Server) readSpan(ctx context.Context, w *work, p span) error {
	d, t := &w.direct, &w.req.Target
	if err := s.cfg.Cache.Settle(ctx, t.Object, p.off, p.n); err != nil {
		return err
	}
	d.at = p.at
	d.read = relay.ReadJob{Object: t.Object, Off: p.off, Bytes: p.n, How: relayHow(&t.How), To: d}
	if d.sums != nil {
		count := relay.SumCount(p.n)
		d.blocks = append(d.blocks[:0], make([]uint32, count)...)
		d.read.Sums = d.blocks
	}
	e, err := s.relay()
	if err != nil {
		return err
	}
	if err := e.Read(ctx, &d.read); err != nil {
		return err
	}
	s.count.directReads.Add(uint64(p.n))
	if d.sums != nil {
		d.addBlocks(p.at, p.n, d.blocks)
	}
	return nil
}

// Deliver implements relay.Receiver.
func (d *direct) Deliver(ctx context.Context, at int64, data []fabric.Sge, _ []uint32) error {
	return d.call.PushWait(ctx, d.at+at, data)
}

// add adds a part of the stream that lies within one sum. CRCs are linear: the sum of the stream is
// the exclusive or of those of its parts, each continued with zeroes to the end. So the parts may
// come in any order.
func (d *direct) add(at int64, crc uint32, n int64) {
	i := at / iod.SumChunk
	behind := min((i+1)*iod.SumChunk, d.total) - (at + n)
	d.sums[i] ^= crc32c.Join(crc, 0, behind)
}

// addBytes adds bytes of the stream.
func (d *direct) addBytes(at int64, b []byte) {
	if d.sums == nil {
		return
	}
	for len(b) > 0 {
		n := min(int64(len(b)), iod.SumChunk-at%iod.SumChunk)
		d.add(at, crc32c.Sum(b[:n]), n)
		b, at = b[n:], at+n
	}
}

// addBlocks adds blocks of the stream, n bytes in all, of which only the last may be short. They
// begin at a block of the stream.
func (d *direct) addBlocks(at, n int64, blocks []uint32) {
	for n > 0 {
		part := min(n, iod.SumChunk-at%iod.SumChunk)
		k := relay.SumCount(part)
		d.add(at, joinBlocks(blocks[:k], part), part)
		blocks, at, n = blocks[k:], at+part, n-part
	}
}
