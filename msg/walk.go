package msg

import (
	"math"
	"sort"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/seg"
)

// space is the address space of a segment: windows laid end to end. Window i covers the
// addresses from ends[i-1] (0 for the first) to ends[i].
type space struct{ ends []int64 }

func (s *space) reset() { s.ends = s.ends[:0] }

// add appends a window. It tells whether the space still fits in an int64.
func (s *space) add(length uint64) bool {
	if length > math.MaxInt64 || int64(length) > math.MaxInt64-s.size() {
		return false
	}
	s.ends = append(s.ends, s.size()+int64(length))
	return true
}

func (s *space) size() int64 {
	if len(s.ends) == 0 {
		return 0
	}
	return s.ends[len(s.ends)-1]
}

func (s *space) start(win int) int64 {
	if win == 0 {
		return 0
	}
	return s.ends[win-1]
}

// find returns the window that holds addr, trying near first: walks mostly move forward.
func (s *space) find(addr int64, near int) int {
	if near < len(s.ends) && s.start(near) <= addr && addr < s.ends[near] {
		return near
	}
	return sort.Search(len(s.ends), func(i int) bool { return addr < s.ends[i] })
}

// run is a stretch of bytes inside one window that follow each other in the stream too.
type run struct {
	win    int
	off, n int64
}

// walker turns the stream of a segment into runs. Pieces that touch are melted into one run,
// so that a list of neighbours costs as few work requests as their union. The access must
// have been validated against the space.
type walker struct {
	sp    *space
	cur   seg.Cursor
	piece seg.Piece // what is left of the piece last taken from cur
	run   run       // what is left of the run last built; n is 0 for none
}

// walk starts at byte pos of the stream.
func walk(sp *space, a seg.Access, pos int64) walker {
	w := walker{sp: sp, cur: a.Cursor()}
	w.cur.Skip(pos)
	return w
}

// peek returns the run at the front; ok is false at the end of the stream.
func (w *walker) peek() (r run, ok bool) {
	if w.run.n > 0 {
		return w.run, true
	}
	if !w.fill() {
		return run{}, false
	}
	win := w.sp.find(w.piece.Off, w.run.win)
	start, end := w.sp.start(win), w.sp.ends[win]
	w.run = run{win: win, off: w.piece.Off - start}
	for w.fill() && w.piece.Off == start+w.run.off+w.run.n && w.piece.Off < end {
		n := min(w.piece.Len, end-w.piece.Off)
		w.run.n += n
		w.piece.Off += n
		w.piece.Len -= n
	}
	return w.run, true
}

// take consumes n bytes of the run that peek returned.
func (w *walker) take(n int64) {
	w.run.off += n
	w.run.n -= n
}

// fill makes sure that piece holds bytes, if there are any.
func (w *walker) fill() bool {
	if w.piece.Len > 0 {
		return true
	}
	var ok bool
	w.piece, ok = w.cur.Next(math.MaxInt64)
	return ok
}

// pieces walks over local memory.
type pieces struct {
	list []fabric.Sge
	off  int // bytes of list[0] already taken
}

// total is the number of bytes in list.
func total(list []fabric.Sge) int64 {
	var n int64
	for i := range list {
		n += int64(len(list[i].Buf))
	}
	return n
}

// take appends up to limit bytes in at most maxSge pieces to dst and returns dst and their
// number.
func (p *pieces) take(dst []fabric.Sge, limit int64, maxSge int) ([]fabric.Sge, int64) {
	var got int64
	for got < limit && maxSge > 0 && len(p.list) > 0 {
		s := p.list[0]
		rest := s.Buf[p.off:]
		if len(rest) == 0 {
			p.list, p.off = p.list[1:], 0
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
