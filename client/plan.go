package client

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// Limits of one request, besides iod.TransferMax. What the two accesses and the windows take on
// the wire must fit the body of a message (12216 bytes by default) together with the request's
// fixed part.
const (
	descriptionMax = 11 << 10
	pieceBytes     = 16 // a listed piece on the wire
	windowBytes    = 24 // a fabric.Remote on the wire
	listPiecesMax  = descriptionMax / (2 * pieceBytes)
)

// request is one message to one server: bytes of a stripe object and the memory they belong to.
type request struct {
	object seg.Access
	memory msg.Memory
}

// share is the part of an operation that one server does. Nearly always it is one request.
type share struct {
	stripe   int
	requests []request
}

// plan cuts an access to a file into the shares of its servers. The bytes of bufs, laid end to end,
// are the access' stream; both have the same length.
func plan(l *layout.Layout, bufs [][]byte, a seg.Access) []share {
	cut := l.Split(a)
	shares := make([]share, len(cut))
	op := &mem.Operation{Bufs: bufs}
	for i := range cut {
		shares[i] = share{stripe: cut[i].Stripe, requests: describe(&cut[i], op)}
	}
	return shares
}

// single is plan for the access that most programs make: one piece, one buffer, one stripe unit.
func single(l *layout.Layout, buf []byte, off int64) (stripe int, r request, ok bool) {
	s, objOff, run := l.Locate(off)
	n := int64(len(buf))
	if n > run && l.Width() > 1 || n > iod.TransferMax {
		return 0, request{}, false
	}
	return s, request{
		object: seg.Contig(objOff, n),
		memory: msg.Memory{Windows: []fabric.Sge{{Buf: buf}}, Access: seg.Contig(0, n)},
	}, true
}

// describe turns a share into requests. Positions in the stream only grow along a share, so each
// buffer becomes at most one window, narrowed to what the request touches of it.
func describe(s *layout.Share, op *mem.Operation) []request {
	var out []request
	b := builder{op: op, bufs: op.Bufs}
	seg.Zip(seg.List(s.Object), seg.List(s.Stream), func(obj, str seg.Piece) bool {
		for str.Len > 0 {
			took := b.add(obj, str)
			if took == 0 {
				out = append(out, b.flush())
				continue
			}
			obj.Off, obj.Len = obj.Off+took, obj.Len-took
			str.Off, str.Len = str.Off+took, str.Len-took
		}
		return true
	})
	if b.bytes > 0 {
		out = append(out, b.flush())
	}
	return out
}

// builder collects the pieces of one request.
type builder struct {
	op    *mem.Operation
	bufs  [][]byte
	index int   // of the buffer that holds the stream position reached so far
	base  int64 // stream position of that buffer's first byte

	object  []seg.Piece
	memory  []seg.Piece
	windows []fabric.Sge
	last    int   // index of the buffer behind the last window
	from    int64 // where in that buffer the window begins
	before  int64 // bytes in the windows before the last one
	bytes   int64
}

// add takes as much as fits of a piece: up to the end of the buffer that holds it, or nothing
// when the request is full.
func (b *builder) add(obj, str seg.Piece) int64 {
	for str.Off >= b.base+int64(len(b.bufs[b.index])) {
		b.base += int64(len(b.bufs[b.index]))
		b.index++
	}
	in := str.Off - b.base
	n := min(str.Len, int64(len(b.bufs[b.index]))-in, iod.TransferMax-b.bytes)
	if b.full(seg.Piece{Off: obj.Off, Len: n}, seg.Piece{Off: b.place(in), Len: n}) {
		return 0
	}
	b.object = seg.Join(b.object, seg.Piece{Off: obj.Off, Len: n})
	b.memory = seg.Join(b.memory, seg.Piece{Off: b.window(in, n), Len: n})
	b.bytes += n
	return n
}

// window makes the last window cover [in, in+n) of the current buffer and returns where that lies
// in the concatenation of the windows.
func (b *builder) window(in, n int64) int64 {
	buf := b.bufs[b.index]
	if k := len(b.windows); k > 0 && b.last == b.index {
		b.windows[k-1].Buf = buf[b.from : in+n : in+n]
		return b.before + in - b.from
	}
	if k := len(b.windows); k > 0 {
		b.before += int64(len(b.windows[k-1].Buf))
	}
	b.windows = append(b.windows, fabric.Sge{Buf: buf[in : in+n : in+n]})
	b.last, b.from = b.index, in
	return b.before
}

// place is where window would say that in lies.
func (b *builder) place(in int64) int64 {
	k := len(b.windows)
	if k > 0 && b.last != b.index {
		return b.before + int64(len(b.windows[k-1].Buf))
	}
	if k == 0 {
		return b.before
	}
	return b.before + in - b.from
}

// full tells whether one more piece would break a limit. Regular lists shrink to vectors later; a
// list that stays regular is let through up to the limit on pieces.
func (b *builder) full(object, memory seg.Piece) bool {
	if b.bytes >= iod.TransferMax || len(b.object) >= iod.PiecesMax || len(b.memory) >= iod.PiecesMax {
		return true
	}
	room := descriptionMax - windowBytes*(len(b.windows)+1)
	return room < listBytes(b.object, object)+listBytes(b.memory, memory)
}

// listBytes is what a list takes on the wire with one more piece. Lists too long to be sent as such
// are asked whether they stay regular; shorter ones are not worth the question while they grow.
func listBytes(p []seg.Piece, next seg.Piece) int {
	n := len(p)
	if n > 0 && p[n-1].End() == next.Off && n <= listPiecesMax/2 {
		return pieceBytes * n
	}
	if n > listPiecesMax/2 && goesOn(p, next) {
		return 4 * pieceBytes
	}
	return pieceBytes * (n + 1)
}

// goesOn tells whether a list is regular with one more piece. One that is too long to be sent as it
// is has been regular all along.
func goesOn(p []seg.Piece, next seg.Piece) bool {
	n := len(p)
	return next.Len == p[n-1].Len && next.Off-p[n-1].Off == p[n-1].Off-p[n-2].Off &&
		p[n-1].End() != next.Off && (n > descriptionMax/pieceBytes || regular(p))
}

func (b *builder) flush() request {
	r := request{
		object: compact(b.object),
		memory: msg.Memory{Windows: b.windows, Access: compact(b.memory), Operation: b.op},
	}
	*b = builder{op: b.op, bufs: b.bufs, index: b.index, base: b.base}
	return r
}

// regular tells whether pieces have one length and one distance.
func regular(p []seg.Piece) bool {
	if len(p) < 2 {
		return true
	}
	stride := p[1].Off - p[0].Off
	if stride < 0 {
		return false
	}
	for i := 1; i < len(p); i++ {
		if p[i].Len != p[0].Len || p[i].Off-p[i-1].Off != stride {
			return false
		}
	}
	return true
}

// compact writes pieces in their shortest form.
func compact(p []seg.Piece) seg.Access {
	switch {
	case len(p) == 1:
		return seg.Contig(p[0].Off, p[0].Len)
	case len(p) > 2 && regular(p):
		return seg.Strided(seg.Vector{Off: p[0].Off, Block: p[0].Len,
			Dims: []seg.Dim{{Count: int64(len(p)), Stride: p[1].Off - p[0].Off}}})
	}
	return seg.List(p)
}
