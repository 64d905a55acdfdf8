package regcache

import (
	"weak"

	"github.com/sluice-storage/sluice/mem"
)

// sightings remember memory that was transferred recently, in a table with one place for each hash:
// a new sighting overwrites an older one, whose memory is then copied once more.
type sightings [256]sighting

// sighting is memory that Go has allocated. It does not keep it alive; while object lives, the
// address means the same memory.
type sighting struct {
	extent
	object weak.Pointer[byte]
	op     weak.Pointer[mem.Operation] // that used it
}

// again tells whether the memory came before, with another operation, and remembers it.
func (t *sightings) again(s *span, op *mem.Operation) bool {
	if !s.heap {
		return false
	}
	at := &t[s.lo/pageBytes%uintptr(len(t))]
	if at.covers(s.extent) && at.object.Value() != nil {
		return op == nil || at.op.Value() != op
	}
	*at = sighting{s.extent, weak.Make(&s.mem[0]), weak.Make(op)}
	return false
}
