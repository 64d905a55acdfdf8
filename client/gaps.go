package client

import "github.com/sluice-storage/sluice/seg"

// gapsMax is how many gaps of a file are told apart. A writer that has left more has holes enough.
const gapsMax = 16

// gaps are the parts of a file that this client has left out: it wrote behind the end, or punched.
// They are holes once the metadata service is told of them. Before that they may be filled: writes
// that are under way together are acknowledged in any order, and do not make holes by that.
type gaps struct {
	list []seg.Piece // below the file's end; they do not overlap
	many bool        // there were more than gapsMax
	told bool        // the service knows of holes: nothing is noted any more
}

// wrote notes that [from, end) of a file of so many bytes was written.
func (g *gaps) wrote(size, from, end int64) {
	if g.told || g.many || from <= size && len(g.list) == 0 {
		return
	}
	var left []seg.Piece
	for _, p := range g.list {
		if n := min(p.End(), from) - p.Off; n > 0 {
			left = append(left, seg.Piece{Off: p.Off, Len: n})
		}
		if off := max(p.Off, end); off < p.End() {
			left = append(left, seg.Piece{Off: off, Len: p.End() - off})
		}
	}
	g.list = left
	if from > size {
		g.add(size, from)
	}
}

func (g *gaps) add(off, end int64) {
	if g.told || g.many {
		return
	}
	g.list = append(g.list, seg.Piece{Off: off, Len: end - off})
	if len(g.list) > gapsMax {
		g.list, g.many = nil, true
	}
}

// cut follows a truncation. The service knows by itself what extended the file, and has forgotten
// all holes of one that was truncated to nothing, perhaps before it grew to size again.
func (g *gaps) cut(size int64) {
	list, many := g.list, g.many && size > 0
	*g = gaps{many: many}
	for _, p := range list {
		if p.Off < size {
			g.add(p.Off, min(p.End(), size))
		}
	}
}

// untold tells whether there are holes that the service does not know of.
func (g *gaps) untold() bool { return !g.told && (g.many || len(g.list) > 0) }
