package layout

import "github.com/sluice-storage/sluice/seg"

// Share is one server's part of an access to a file: the pieces of its stripe object, and, matched
// with them byte by byte, the pieces of the access' stream. Both are in stream order with touching
// pieces melted together, so that a contiguous access of many units is one object piece.
type Share struct {
	Stripe int
	Object []seg.Piece // offsets in the stripe object
	Stream []seg.Piece // offsets in the stream of the access
	Bytes  int64
}

// Split cuts an access into one Share per stripe that has a part in it, ordered by stripe. The
// number of servers asked is so at most the width, whatever the number of pieces.
func (l *Layout) Split(a seg.Access) []Share {
	shares := make([]Share, len(l.Servers))
	var pos int64
	for c := a.Cursor(); ; {
		off, ok := peek(&c)
		if !ok {
			break
		}
		stripe, objOff, run := l.Locate(off)
		p, _ := c.Next(run)
		s := &shares[stripe]
		s.Object = seg.Join(s.Object, seg.Piece{Off: objOff, Len: p.Len})
		s.Stream = seg.Join(s.Stream, seg.Piece{Off: pos, Len: p.Len})
		s.Bytes += p.Len
		pos += p.Len
	}
	used := shares[:0]
	for i := range shares {
		if shares[i].Bytes > 0 {
			shares[i].Stripe = i
			used = append(used, shares[i])
		}
	}
	return used
}

func peek(c *seg.Cursor) (int64, bool) {
	look := *c
	p, ok := look.Next(1)
	return p.Off, ok
}
