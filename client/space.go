package client

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
)

// space is the memory side of a transfer: buffers laid end to end, which bytes of them are meant,
// and the areas that they are parts of. An area is a parent, or a buffer that lies in none; windows
// of requests, and registrations, are of areas.
type space struct {
	bufs   [][]byte
	starts []int64 // of each buffer in the address space
	size   int64
	access seg.Access
	places []inArea // of each buffer; nil: each buffer is an area of its own
	areas  [][]byte
	pins   []seg.Piece // what may be registered of each area; nil: all of all
	near   int         // the buffer found last

	op     *mem.Operation
	packed *mem.Operation // of requests that reach memory which may not be pinned
}

// inArea is where a buffer lies.
type inArea struct {
	area int
	off  int64
}

// flat is the space of one buffer, all of which is meant.
func flat(p []byte) *space {
	bufs := [][]byte{p}
	return &space{bufs: bufs, starts: []int64{0}, size: int64(len(p)), areas: bufs,
		access: seg.Contig(0, int64(len(p))), op: &mem.Operation{Bufs: bufs}}
}

// newSpace checks the memory side of a transfer.
func newSpace(t *Transfer) (*space, error) {
	s := &space{bufs: t.Bufs, starts: make([]int64, len(t.Bufs)), access: t.Memory, areas: t.Bufs}
	for i, b := range t.Bufs {
		s.starts[i] = s.size
		s.size += int64(len(b))
	}
	if t.Memory.Pieces() == 0 {
		s.access = seg.Contig(0, s.size)
	} else if err := t.Memory.Validate(listMax, s.size); err != nil {
		return nil, err
	}
	if !t.Write && (s.access.Overlaps() || overlapping(t.Bufs)) {
		return nil, errs.Newf(errs.Invalid, "", "", "pieces of memory overlap: "+
			"which bytes a read leaves there would be unknown")
	}
	s.op = &mem.Operation{Bufs: s.areas, Method: t.Method, Why: "asked for"}
	return s, s.adopt(t.Parents)
}

// adopt makes parents the areas of the buffers that lie in them.
func (s *space) adopt(parents []Parent) error {
	if len(parents) == 0 {
		return nil
	}
	if len(parents) > parentsMax {
		return errs.Newf(errs.TooBig, "", "", "%d parents, at most %d", len(parents), parentsMax)
	}
	areaOf := make([]int, len(parents))
	for i := range areaOf {
		areaOf[i] = -1
	}
	s.areas, s.places = nil, make([]inArea, len(s.bufs))
	last := 0
	for i, b := range s.bufs {
		k, off := parentOf(parents, b, last)
		if k < 0 {
			s.places[i] = inArea{area: len(s.areas)}
			s.areas, s.pins = append(s.areas, b), append(s.pins, seg.Piece{Len: int64(len(b))})
			continue
		}
		last = k
		if areaOf[k] < 0 {
			areaOf[k] = len(s.areas)
			s.areas = append(s.areas, parents[k].Bytes)
			s.pins = append(s.pins, seg.Piece{Off: off, Len: parents[k].pinned()})
		}
		s.places[i] = inArea{area: areaOf[k], off: off}
		pin := &s.pins[areaOf[k]]
		pin.Off = min(pin.Off, off)
	}
	s.pin()
	return nil
}

// parentOf finds the parent that a buffer lies in, and where.
func parentOf(parents []Parent, b []byte, first int) (nth int, off int64) {
	if len(b) == 0 {
		return -1, 0
	}
	for i := range parents {
		k := (first + i) % len(parents)
		if off := fabric.OffsetIn(parents[k].Bytes, b); off >= 0 {
			return k, int64(off)
		}
	}
	return -1, 0
}

// pin settles what is registered of each area. One that may be pinned as a whole is: one
// registration serves this transfer and the next, whatever part they move. Else it is as much as
// may be, from the first byte that is meant on.
func (s *space) pin() {
	if len(s.bufs) == 1 { // the access is over the parent, or a part of it
		s.pins[0].Off += s.access.Span().Off
	}
	bufs := make([][]byte, 0, len(s.areas))
	for i, area := range s.areas {
		p := &s.pins[i]
		whole := int64(len(area))
		if p.Len >= whole {
			*p = seg.Piece{Len: whole}
		}
		p.Len = min(p.Len, whole-p.Off)
		bufs = append(bufs, area[p.Off:p.End():p.End()])
	}
	s.op.Bufs, s.op.Hinted = bufs, true
	s.packed = &mem.Operation{Method: mem.Pack, Why: "beyond what may be pinned"}
}

// overlapping tells whether two buffers share memory.
func overlapping(bufs [][]byte) bool {
	if len(bufs) < 2 {
		return false
	}
	inOrder := func(a, b []byte) int { return cmp.Compare(address(a), address(b)) }
	if !slices.IsSortedFunc(bufs, inOrder) {
		bufs = slices.Clone(bufs)
		slices.SortFunc(bufs, inOrder)
	}
	var end uintptr
	for _, b := range bufs {
		if len(b) > 0 && address(b) < end {
			return true
		}
		end = max(end, address(b)+uintptr(len(b)))
	}
	return false
}

// find returns the buffer that holds an address, which lies in the space.
func (s *space) find(addr int64) int {
	for near := s.near; near < min(s.near+2, len(s.bufs)); near++ {
		if at := addr - s.starts[near]; at >= 0 && at < int64(len(s.bufs[near])) {
			s.near = near
			return near
		}
	}
	// Of several that begin here all but the last are empty.
	s.near = sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > addr }) - 1
	return s.near
}

// locate finds an address: its area, where in it, and how many bytes from there on follow each
// other in it.
func (s *space) locate(addr int64) (at inArea, run int64) {
	nth := s.find(addr)
	in := addr - s.starts[nth]
	at = inArea{area: nth}
	if s.places != nil {
		at = s.places[nth]
	}
	at.off += in
	return at, int64(len(s.bufs[nth])) - in
}

// each walks over the memory and the places in the file that it belongs to, piece by piece.
func (s *space) each(file seg.Access, do func(b []byte, off int64)) {
	memory := s.access.Cursor()
	for c := file.Cursor(); ; {
		p, ok := c.Next(math.MaxInt64)
		if !ok {
			return
		}
		for p.Len > 0 {
			m, _ := memory.Next(p.Len)
			for m.Len > 0 {
				nth := s.find(m.Off)
				b := s.bufs[nth][m.Off-s.starts[nth]:]
				b = b[:min(m.Len, int64(len(b)))]
				do(b, p.Off)
				n := int64(len(b))
				m.Off, m.Len = m.Off+n, m.Len-n
				p.Off, p.Len = p.Off+n, p.Len-n
			}
		}
	}
}
