package logstore

import "math/bits"

// allocator hands out clusters. The member's lock guards it.
//
// A cluster is free, or in use, or in quarantine: freed by a record, but kept until the checkpoint
// that makes this record unnecessary, and until the last reader that may have found it before is
// done. Reusing it earlier would destroy what a restart, or that reader, still needs.
//
// A cluster is handed out only when the device has given it its space, so that a write to it cannot
// fail for lack of space. What is in use has its space.
type allocator struct {
	used       []uint64 // a bit for each cluster in use or in quarantine
	backed     []uint64 // a bit for each cluster that has its space on the device
	clusters   uint32
	next       uint32 // where to look first
	free       uint32 // backed and not in use
	bare       uint32 // not backed
	low        uint32 // the fewest that were free since the last look, see giveBack
	limit      uint32 // clusters below have the space of their entries in the table
	quarantine []freed
	high       uint32 // one past the highest that was ever in use
}

type freed struct {
	cluster uint32
	record  uint64 // that freed it
	reads   uint64 // generation of readers that may have seen it
}

func newAllocator(clusters uint32) *allocator {
	words := (clusters + 63) / 64
	return &allocator{used: make([]uint64, words), backed: make([]uint64, words),
		clusters: clusters, bare: clusters}
}

func (a *allocator) inUse(c uint32) bool { return a.used[c/64]&(1<<(c%64)) != 0 }

func (a *allocator) isBacked(c uint32) bool { return a.backed[c/64]&(1<<(c%64)) != 0 }

// mark says that a cluster is in use.
func (a *allocator) mark(c uint32) {
	if a.inUse(c) {
		return
	}
	a.used[c/64] |= 1 << (c % 64)
	a.high = max(a.high, c+1)
	if a.isBacked(c) {
		a.free--
		a.low = min(a.low, a.free)
	}
}

// release makes a cluster free at once: nobody has ever been told of it, or everything is over.
func (a *allocator) release(c uint32) {
	if !a.inUse(c) {
		return
	}
	a.used[c/64] &^= 1 << (c % 64)
	if a.isBacked(c) {
		a.free++
	}
}

// retire puts a cluster into quarantine.
func (a *allocator) retire(c uint32, record, reads uint64) {
	a.quarantine = append(a.quarantine, freed{c, record, reads})
}

// crowded tells whether so much waits to be free that a checkpoint is worth its cost: large writes
// take little of the log, and would spread over space that was never written, which a file system
// gives more slowly than what it has given before.
func (a *allocator) crowded() bool {
	return len(a.quarantine) > int(min(quarantineMax, a.clusters/8))
}

// quarantineMax is in clusters: 256 MiB.
const quarantineMax = 4096

// settle frees what was retired before the record and is not read any more.
func (a *allocator) settle(record, reads uint64) {
	kept := a.quarantine[:0]
	for _, f := range a.quarantine {
		if f.record < record && f.reads < reads {
			a.release(f.cluster)
		} else {
			kept = append(kept, f)
		}
	}
	a.quarantine = kept
}

// back says that the device has the space of clusters [from, to).
func (a *allocator) back(from, to uint32) {
	for c := from; c < to; c++ {
		if a.isBacked(c) {
			continue
		}
		a.backed[c/64] |= 1 << (c % 64)
		a.bare--
		if !a.inUse(c) {
			a.free++
		}
	}
}

// findBare finds the first run of clusters below the limit that have no space, at most n of them.
func (a *allocator) findBare(n uint32) (from, to uint32) {
	for from < a.limit && a.isBacked(from) {
		if from%64 == 0 && a.backed[from/64] == ^uint64(0) {
			from += 64
		} else {
			from++
		}
	}
	from = min(from, a.limit)
	for to = from; to < a.limit && to-from < n && !a.isBacked(to); {
		to++
	}
	return from, to
}

// unback takes the space from a run of at most n clusters that are free, from the end of the device
// towards its beginning, and says where; none when below is reached. The clusters count as used
// until release, so that nobody takes them while their space goes.
func (a *allocator) unback(below, n uint32) (from, to uint32) {
	isFree := func(c uint32) bool { return a.isBacked(c) && !a.inUse(c) }
	to = below
	for to > 0 && !isFree(to-1) {
		if to%64 == 0 && a.backed[to/64-1]&^a.used[to/64-1] == 0 {
			to -= 64
		} else {
			to--
		}
	}
	for from = to; from > 0 && to-from < n && isFree(from-1); {
		from--
		a.mark(from)
		a.backed[from/64] &^= 1 << (from % 64)
		a.bare++
	}
	return from, to
}

// take finds n clusters, in runs as long as possible behind the last ones taken, and appends them
// to dst; false, and nothing taken, when there are not that many.
func (a *allocator) take(dst []uint32, n int) ([]uint32, bool) {
	if int(a.free) < n {
		return dst, false
	}
	at := a.next
	if run := a.findRun(at, uint32(n)); run != noCluster {
		at = run
	}
	for n > 0 {
		c := a.findFree(at)
		if c == noCluster {
			c = a.findFree(0)
		}
		a.mark(c)
		dst = append(dst, c)
		at = c + 1
		n--
	}
	a.next = at
	if a.next >= a.limit {
		a.next = 0
	}
	return dst, true
}

const noCluster = ^uint32(0)

// findFree finds the first free cluster from at on.
func (a *allocator) findFree(at uint32) uint32 {
	for at < a.limit {
		word := (a.backed[at/64] &^ a.used[at/64]) >> (at % 64)
		if word != 0 {
			return at + uint32(bits.TrailingZeros64(word))
		}
		at = (at/64 + 1) * 64
	}
	return noCluster
}

// findRun looks for n free neighbours, at a few places only: a long search would cost more than
// the split that it saves.
func (a *allocator) findRun(at, n uint32) uint32 {
	if n <= 1 {
		return noCluster
	}
	for range 16 {
		c := a.findFree(at)
		if c == noCluster {
			if at == 0 {
				return noCluster
			}
			at = 0
			continue
		}
		end := c
		for end < a.limit && end-c < n && a.isBacked(end) && !a.inUse(end) {
			end++
		}
		if end-c == n {
			return c
		}
		at = end
	}
	return noCluster
}
