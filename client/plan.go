package client

import (
	"cmp"
	"slices"

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
	windowBytes    = 24   // a fabric.Remote on the wire
	vectorMax      = 1024 // bytes of an access that is sent as the caller gave it
)

// request is one message to one server: bytes of a stripe object and the memory they belong to.
type request struct {
	object seg.Access
	memory msg.Memory
	moved  mem.Moved
}

// share is the part of an operation that one server does. Nearly always it is one request.
type share struct {
	stripe   int
	requests []request
}

// plan cuts an access to a file into the shares of its servers. The streams of both sides have the
// same length. What it takes grows with the runs of equal pieces, not with the pieces.
func plan(l *layout.Layout, s *space, file seg.Access) []share {
	if r, ok := unsplit(l, s, file); ok {
		return []share{{requests: []request{r}}}
	}
	stripes := make([]builder, l.Width())
	memory := s.access.Cursor()
	l.Walk(file, func(stripe int, obj seg.Piece) {
		b := &stripes[stripe]
		for obj.Len > 0 {
			m, _ := memory.Next(obj.Len)
			for m.Len > 0 {
				at, run := s.locate(m.Off)
				n := b.add(s, obj.Off, at, min(m.Len, run))
				obj.Off, obj.Len = obj.Off+n, obj.Len-n
				m.Off, m.Len = m.Off+n, m.Len-n
			}
		}
	})
	var shares []share
	for i := range stripes {
		if stripes[i].object.Len > 0 {
			stripes[i].flush(s)
		}
		if len(stripes[i].requests) > 0 {
			shares = append(shares, share{i, stripes[i].requests})
		}
	}
	return shares
}

// unsplit is a request that says what the caller said: vectors stay vectors, of any depth, where
// one server has the whole file and all memory is of one buffer.
func unsplit(l *layout.Layout, s *space, file seg.Access) (request, bool) {
	span := s.access.Span()
	if l.Width() > 1 || len(s.bufs) != 1 || s.places != nil ||
		file.Len() > iod.TransferMax || file.Pieces() > iod.PiecesMax ||
		s.access.Pieces() > iod.PiecesMax || file.WireBytes()+s.access.WireBytes() > vectorMax {
		return request{}, false
	}
	buf := s.bufs[0][span.Off:span.End():span.End()]
	return request{object: file, memory: msg.Memory{Windows: []fabric.Sge{{Buf: buf}},
		Access: s.access.Shift(-span.Off), Operation: s.op}}, true
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

// builder collects the pieces of one server, and makes requests of them.
type builder struct {
	requests []request

	object seg.Packer
	memory seg.Packer // offsets in areas; a run is of one area
	parts  []areaRuns // which runs are of which area
	reach  []reach    // what is touched of each area
	known  map[int]int
}

// areaRuns says that the runs from an index on are of an area.
type areaRuns struct{ run, area int }

// reach is the part of an area that a request touches.
type reach struct {
	area   int
	lo, hi int64
	shift  int64 // from an offset in the area to one in the windows
}

// add takes as much as fits of a piece of memory, which is at least one byte.
func (b *builder) add(s *space, object int64, at inArea, n int64) int64 {
	if b.full() {
		b.flush(s)
	}
	n = min(n, iod.TransferMax-b.object.Len)
	if k := len(b.parts); k == 0 || b.parts[k-1].area != at.area {
		b.memory.Cut()
		b.parts = append(b.parts, areaRuns{len(b.memory.Runs()), at.area})
	}
	r := b.reached(at.area)
	if r.hi == 0 {
		r.lo = at.off
	}
	r.lo, r.hi = min(r.lo, at.off), max(r.hi, at.off+n)
	b.memory.Add(seg.Piece{Off: at.off, Len: n})
	b.object.Add(seg.Piece{Off: object, Len: n})
	return n
}

// reached is the entry of an area. A hi of 0 says that nothing is touched yet.
func (b *builder) reached(area int) *reach {
	if n := len(b.reach); n > 0 && b.reach[n-1].area == area {
		return &b.reach[n-1]
	}
	at, ok := b.known[area]
	if !ok {
		if b.known == nil {
			b.known = map[int]int{}
		}
		at = len(b.reach)
		b.reach, b.known[area] = append(b.reach, reach{area: area}), at
	}
	return &b.reach[at]
}

// full tells whether one more piece could break a limit.
func (b *builder) full() bool {
	return b.object.Len >= iod.TransferMax || b.object.Count >= iod.PiecesMax ||
		b.memory.Count >= iod.PiecesMax ||
		b.object.WireMax()+b.memory.WireMax()+windowBytes*(len(b.reach)+1) > descriptionMax
}

// flush makes a request of what has come. Each area becomes one window, narrowed to what the
// request touches of it, in the order of the areas.
func (b *builder) flush(s *space) {
	r := request{object: b.object.Access()}
	slices.SortFunc(b.reach, func(x, y reach) int { return cmp.Compare(x.area, y.area) })
	op, base := s.op, int64(0)
	for i := range b.reach {
		x := &b.reach[i]
		area := s.areas[x.area]
		r.memory.Windows = append(r.memory.Windows, fabric.Sge{Buf: area[x.lo:x.hi:x.hi]})
		x.shift = base - x.lo
		base += x.hi - x.lo
		if s.pins != nil && (x.lo < s.pins[x.area].Off || x.hi > s.pins[x.area].End()) {
			op = s.packed
		}
	}
	r.memory.Access, r.memory.Operation = b.placed(), op
	*b = builder{requests: append(b.requests, r)}
}

// placed is the memory's access in terms of the windows.
func (b *builder) placed() seg.Access {
	var k seg.Packer
	runs := b.memory.Runs()
	for i, part := range b.parts {
		end := len(runs)
		if i+1 < len(b.parts) {
			end = b.parts[i+1].run
		}
		at, _ := slices.BinarySearchFunc(b.reach, part.area,
			func(r reach, area int) int { return cmp.Compare(r.area, area) })
		for _, run := range runs[part.run:end] {
			run.Off += b.reach[at].shift
			k.AddRun(run)
		}
	}
	return k.Access()
}
