package segment

import (
	"math"
	"sort"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/seg"
)

// Space is the address space of a segment: windows laid end to end. Window i covers the
// addresses from ends[i-1] (0 for the first) to ends[i].
type Space struct{ ends []int64 }

func (s *Space) reset() { s.ends = s.ends[:0] }

// add appends a window. It tells whether the space still fits in an int64.
func (s *Space) add(length uint64) bool {
	if length > math.MaxInt64 || int64(length) > math.MaxInt64-s.size() {
		return false
	}
	s.ends = append(s.ends, s.size()+int64(length))
	return true
}

func (s *Space) size() int64 {
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

func (s *Space) start(win int) int64 {
	if win == 0 {
		return 0
	}
	return s.ends[win-1]
}

// find returns the window that holds addr, trying near first: walks mostly move forward.
func (s *Space) find(addr int64, near int) int {
	if near < len(s.ends) && s.start(near) <= addr && addr < s.ends[near] {
		return near
	}
	return sort.Search(len(s.ends), func(i int) bool { return addr < s.ends[i] })
}

// Run is a stretch of bytes inside one window that follow each other in the stream too.
type Run struct {
	Win    int // which window
	Off, N int64
}

// Walker turns the stream of a segment into runs. Adjacent pieces are merged into one run, so that
// a list of neighbours costs as few work requests as their union. The access must have been
// validated against the space.
type Walker struct {
	sp    *Space
	cur   seg.Cursor
	piece seg.Piece // what is left of the piece last taken from cur
	run   Run       // what is left of the run last built; N is 0 for none
}

// Walk starts at byte pos of the stream.
func Walk(sp *Space, a seg.Access, pos int64) Walker {
	w := Walker{sp: sp, cur: a.Cursor()}
	w.cur.Skip(pos)
	return w
}

// Peek returns the run at the front; ok is false at the end of the stream.
func (w *Walker) Peek() (r Run, ok bool) {
	if w.run.N > 0 {
		return w.run, true
	}
	if !w.fill() {
		return Run{}, false
	}
	win := w.sp.find(w.piece.Off, w.run.Win)
	start, end := w.sp.start(win), w.sp.ends[win]
	w.run = Run{Win: win, Off: w.piece.Off - start}
	for w.fill() && w.piece.Off == start+w.run.Off+w.run.N && w.piece.Off < end {
		n := min(w.piece.Len, end-w.piece.Off)
		w.run.N += n
		w.piece.Off += n
		w.piece.Len -= n
	}
	return w.run, true
}

// Take consumes n bytes of the run that Peek returned.
func (w *Walker) Take(n int64) {
	w.run.Off += n
	w.run.N -= n
}

// fill makes sure that piece holds bytes, if there are any.
func (w *Walker) fill() bool {
	if w.piece.Len > 0 {
		return true
	}
	var ok bool
	w.piece, ok = w.cur.Next(math.MaxInt64)
	return ok
}

// Pieces walks over local memory.
type Pieces struct {
	List []fabric.Sge // what is left
	off  int          // bytes of List[0] already taken
}

// Total is the number of bytes in list.
func Total(list []fabric.Sge) int64 {
	var n int64
	for i := range list {
		n += int64(len(list[i].Buf))
	}
	return n
}

// Take appends up to limit bytes in at most maxSge pieces to dst and returns dst and their
// number.
func (p *Pieces) Take(dst []fabric.Sge, limit int64, maxSge int) ([]fabric.Sge, int64) {
	var got int64
	for got < limit && maxSge > 0 && len(p.List) > 0 {
		s := p.List[0]
		rest := s.Buf[p.off:]
		if len(rest) == 0 {
			p.List, p.off = p.List[1:], 0
			continue
		}
		n := int(min(int64(len(rest)), limit-got))
		dst = append(dst, fabric.Sge{Reg: s.Reg, Buf: rest[:n:n]})
		p.off += n
		got += int64(n)
		maxSge--
	}
	return dst, got
}
