package regcache

import "weak"

// sightings remember memory that came to be transferred lately. Each has one place, which is taken
// from another one: what is forgotten is copied once more.
type sightings [256]sighting

// sighting is memory that Go has allocated. It keeps nothing alive; as long as object is there,
// the address means the same memory.
type sighting struct {
	extent
	object weak.Pointer[byte]
}

// again tells whether the memory came before, and remembers it.
func (t *sightings) again(s *span) bool {
	if !s.heap {
		return false
	}
	at := &t[s.lo/pageBytes%uintptr(len(t))]
	if at.covers(s.extent) && at.object.Value() != nil {
		return true
	}
	*at = sighting{s.extent, weak.Make(&s.mem[0])}
	return false
}
