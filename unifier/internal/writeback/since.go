package writeback

import (
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/unifier/internal/index"
)

// A client that was acknowledged a volatile change before the cache began, or before it lost
// something, sends the change again. By then others may have written to the same bytes, and their
// changes are the later ones: what is sent again (Draft.Again) must not lie over them, least of all
// over durable ones. Three memories tell what is later:
//
//   - The cache remembers which bytes were changed in the present life, that is since it began or
//     has lost something. A draft that comes again takes those bytes over from the backing, and
//     goes through to it with its number, durably if it took anything over: so that it is
//     recognised for good and never comes a third time.
//   - The backing remembers the requests' numbers. What was written before the life ended, over
//     something that was pending, has brought that to the backing first, with its number: so what
//     is not recognised lies below nothing of the life that it was acknowledged in.
//   - The backing remembers in which lives an object was changed (stripe.Keeper). A client may have
//     missed lives. If the object was changed in one of them, what comes again is refused: nobody
//     knows where. Without a number it is refused if the object was changed in the life that it was
//     acknowledged in, too.
//
// What came again counts as a change of the life that it was acknowledged in first: it is in the
// way of what is older, and of nothing else that the same crash has taken.

// since is the bytes that were changed since the cache began, or lost something. Guarded by
// Writer.mu.
type since struct {
	objects map[index.Key]*changed
	lives   map[index.Key]uint64 // before this one, in which the object was changed last; see begin
	count   int                  // of chunks, pieces and lives
	over    bool                 // there were more than sinceMax
}

// sinceMax is how much is remembered, of all objects: at most 10 MiB, if each is a chunk. Small
// changes at random places of 256 GiB fit; what is sent again after more than that is refused.
const sinceMax = 64 << 10

// add remembers a change.
func (s *since) add(id index.Key, p seg.Piece) {
	if s.over || p.Len <= 0 {
		return
	}
	o := s.objects[id]
	if o == nil {
		if s.objects == nil {
			s.objects = map[index.Key]*changed{}
		}
		o = &changed{}
		s.objects[id] = o
	}
	s.count += o.add(p)
	s.limit()
}

func (s *since) limit() {
	if s.count > sinceMax {
		*s = since{over: true}
	}
}

// within appends the parts of p that were changed, ascending and apart from each other.
func (s *since) within(dst []seg.Piece, id index.Key, p seg.Piece) []seg.Piece {
	if o := s.objects[id]; o != nil {
		return o.within(dst, p)
	}
	return dst
}

// begin remembers in which life an object was changed last before anything of it came again, which
// may change that. Who asks later gets the same.
func (s *since) begin(id index.Key, life uint64) uint64 {
	if first, ok := s.lives[id]; ok {
		return first
	}
	if s.lives == nil {
		s.lives = map[index.Key]uint64{}
	}
	s.lives[id] = life
	s.count++
	s.limit()
	return life
}
