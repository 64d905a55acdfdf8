package server

import (
	"context"
	"math"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/seg"
)

// span is a piece of a request that goes past the cache.
type span struct {
	off, n int64
	at     int64 // in the request's stream
}

// direct is the memory of a request that goes past the cache; it is reused. It is the relay's
// sender or receiver: it knows where in the stream the present span lies.
type direct struct {
	call   *msg.Call
	sums   []uint32 // of the request's stream: from the client, or for it
	total  int64    // bytes of that stream
	at     int64    // of the span in it
	far    []span
	near   []seg.Piece // the rest: by way of the cache
	places []int64     // of the rest, in the stream
	part   []fabric.Sge
	blocks []uint32
	read   relay.ReadJob
	write  relay.WriteJob
}

// plan cuts a request: pieces of a chunk and more go past the cache, the rest through it. Sums are
// of the stream, so a piece that goes past the cache must begin at a block of the stream. A piece
// of a write, which is verified before it is stored, must begin and end at a sum of the stream.
func (d *direct) plan(a *iod.Args, h *iod.How, chunk int64, write bool) {
	d.far, d.near, d.places = d.far[:0], d.near[:0], d.places[:0]
	d.total = a.Access.Len()
	grain := int64(crc32c.BlockBytes)
	switch {
	case h.NoSums:
		grain = 1
	case write:
		grain = iod.SumChunk
	}
	at := int64(0)
	for cur := a.Access.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return
		}
		n := p.Len
		if at%grain != 0 || n < chunk {
			n = 0
		} else if at+n < d.total {
			n -= n % grain // so that the next piece begins at a sum, too
		}
		if n > 0 {
			d.far = append(d.far, span{off: p.Off, n: n, at: at})
		}
		if n < p.Len {
			d.near = append(d.near, seg.Piece{Off: p.Off + n, Len: p.Len - n})
			d.places = append(d.places, at+n)
		}
		at += p.Len
	}
}

// disjoint tells whether no two pieces of the access overlap, as far as one pass over it can tell.
// Overlapping pieces must be carried out in order, which is lost where some go past the cache and
// some through it.
func disjoint(a seg.Access) bool {
	end := int64(0)
	for cur := a.Cursor(); ; {
		p, ok := cur.Next(math.MaxInt64)
		if !ok {
			return true
		}
		if p.Off < end {
			return false
		}
		end = p.End()
	}
}

// release drops the references to the request.
func (d *direct) release() {
	d.call, d.sums = nil, nil
	clear(d.part)
	d.read, d.write = relay.ReadJob{}, relay.WriteJob{}
}

// chunkBytes is the least piece that goes past the cache.
func (s *Server) chunkBytes(h *iod.How) int64 {
	if h.ChunkBytes != 0 {
		return int64(h.ChunkBytes)
	}
	return int64(s.cfg.Direct.ChunkBytes)
}

// enterDirect passes the memory gate for one window. The disk gate is passed later and held during
// the whole transfer, since disk and network alternate with every chunk.
func (s *Server) enterDirect(ctx context.Context, c *msg.Call, w *work) error {
	cost := min(w.direct.total, s.cfg.Direct.WindowBytes)
	return s.manage.direct.Enter(ctx, &w.memory, w.asks(c, cost))
}

func (s *Server) leaveDirect(w *work) { s.manage.direct.Leave(&w.memory) }

// enterDisk passes the disk gate. To avoid deadlock a request that is past it must not wait for
// what a request before it holds: so a loan is taken after this gate, a draft before it.
func (s *Server) enterDisk(ctx context.Context, c *msg.Call, w *work, bytes int64) error {
	w.time.enter(stateDisk)
	c.Waits()
	return s.manage.disk.Enter(ctx, &w.disk, w.asks(c, bytes))
}

func (s *Server) leaveDisk(w *work) { s.manage.disk.Leave(&w.disk) }

// tape is a list of pieces of memory that is consumed from the front.
type tape struct {
	list []fabric.Sge
	used int // bytes of the first piece
}

// cut appends the next n bytes to dst.
func (t *tape) cut(dst []fabric.Sge, n int64) []fabric.Sge {
	for n > 0 {
		first := t.list[0]
		b := first.Buf[t.used:]
		if int64(len(b)) > n {
			b = b[:n]
			t.used += int(n)
		} else {
			t.list, t.used = t.list[1:], 0
		}
		dst = append(dst, fabric.Sge{Reg: first.Reg, Buf: b})
		n -= int64(len(b))
	}
	return dst
}

func relayHow(h *iod.How) relay.How {
	return relay.How{ChunkBytes: h.ChunkBytes, Streams: relay.Streams(h.Streams)}
}

// joinBlocks is the sum of n bytes in blocks, of which the last may be short.
func joinBlocks(blocks []uint32, n int64) uint32 {
	last := n % crc32c.BlockBytes
	if last == 0 {
		return crc32c.JoinBlocks(blocks)
	}
	k := len(blocks) - 1
	if k == 0 {
		return blocks[0]
	}
	return crc32c.Join(crc32c.JoinBlocks(blocks[:k]), blocks[k], last)
}
