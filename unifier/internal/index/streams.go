package index

import (
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// streamsMax is how many readers of an object are told apart.
const streamsMax = 8

// streams are the readers of an object, told apart by where they go on.
type streams struct {
	list  [streamsMax]stream
	clock uint32
}

// stream is one reader whose reads follow each other.
type stream struct {
	next   int64 // where it goes on
	ahead  int64 // end of what was asked for ahead of it
	window int64
	run    int    // reads in a row
	used   uint32 // by streams.clock
}

// follow finds the stream that a read belongs to. Several requests of one reader may be under way
// and overtake each other: a few lengths ahead or behind is still in a row.
func (s *streams) follow(p seg.Piece) *stream {
	s.clock++
	oldest := &s.list[0]
	for i := range s.list {
		r := &s.list[i]
		if d := p.Off - r.next; r.run > 0 && d <= 4*p.Len && -d <= 4*p.Len {
			r.used = s.clock
			if p.End() > r.next {
				r.run++
				r.next = p.End()
			}
			return r
		}
		if r.used < oldest.used {
			oldest = r
		}
	}
	*oldest = stream{next: p.End(), ahead: p.End(), run: 1, used: s.clock}
	return oldest
}

// Ahead is a range that will perhaps be read.
type Ahead struct {
	ID       Key
	From, To int64

	policy Policy
}

// readahead is the state of all streams together.
type readahead struct {
	window                int64 // the largest at the moment
	trialGood, trialWaste uint64
	queue                 []Ahead
	fresh                 bool           // something was queued since NewAhead was called
	request               memory.Request // for one unit; empty whenever the lock is free
}
