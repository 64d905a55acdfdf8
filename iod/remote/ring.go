package remote

// ring is the memory of kept writes: room is allocated front to back, in one piece each, and freed
// about in that order, because the oldest writes are synced first. Room that is freed early waits
// for the room before it. A ring that has become empty begins at its front again, where the memory
// is still in the processor's cache.
//
// Positions do not wrap; the place of position p is p modulo the size.
type ring struct {
	mem        []byte
	head, tail int64 // next to be allocated; oldest not freed
	oldest     *kept // queue of allocated room, in order
	newest     *kept
}

// grain is the unit of allocation. It also bounds the memory of records: each is smaller than it.
const grain = 1 << 10

func roomFor(n int64) int64 { return (n + grain - 1) &^ (grain - 1) }

// used is how many bytes are allocated, or wait to be freed.
func (r *ring) used() int64 { return r.head - r.tail }

// give allocates the next n bytes for k; false when they are not free.
func (r *ring) give(k *kept, n int64) bool {
	size := int64(len(r.mem))
	n = roomFor(n)
	if r.oldest == nil {
		r.head, r.tail = 0, 0
	}
	at := r.head % size
	skip := int64(0)
	if at+n > size { // the piece would wrap around the end
		skip, at = size-at, 0
	}
	if r.head+skip+n-r.tail > size {
		return false
	}
	r.head += skip + n
	k.room, k.end, k.given = r.mem[at:at+n:at+n], r.head, true
	k.younger = nil
	if r.newest == nil {
		r.oldest = k
	} else {
		r.newest.younger = k
	}
	r.newest = k
	return true
}

// takeBack frees the room of k and calls put for each record that leaves the queue.
func (r *ring) takeBack(k *kept, put func(*kept)) {
	k.given = false
	for o := r.oldest; o != nil && !o.given; o = r.oldest {
		r.tail = o.end
		r.oldest = o.younger
		if r.oldest == nil {
			r.newest = nil
		}
		put(o)
	}
}
