package layout

import (
	"math"

	"github.com/sluice-storage/sluice/seg"
)

// Walk cuts an access to a file at the borders of stripe units: it calls fn for each part, in
// stream order, with the stripe and the part's place in the stripe's object. Pieces of one stripe
// that follow each other in the file's units follow each other in its object, too: who joins them
// (seg.Packer) has one piece for a contiguous access of many units.
func (l *Layout) Walk(a seg.Access, fn func(stripe int, object seg.Piece)) {
	for c := a.Cursor(); ; {
		p, ok := c.Next(math.MaxInt64)
		if !ok {
			return
		}
		for p.Len > 0 {
			stripe, off, run := l.Locate(p.Off)
			n := min(p.Len, run)
			fn(stripe, seg.Piece{Off: off, Len: n})
			p.Off, p.Len = p.Off+n, p.Len-n
		}
	}
}
