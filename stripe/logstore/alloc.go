package logstore

import "math/bits"

// allocator hands out clusters. The member's lock guards it.
//
// A cluster is free, or in use, or in quarantine: freed by a record, but kept until the checkpoint
// that makes this record unnecessary, and until the last reader that may have found it before is
// done. Reusing it earlier would destroy what a restart, or that reader, still needs.
type allocator struct {
	used       []uint64 // a bit for each cluster in use or in quarantine
	clusters   uint32
	next       uint32 // where to look first
	free       uint32 // free ones among the reserved
	reserved   uint32 // clusters below have their space on the device
	quarantine []freed
	high       uint32 // one past the highest that was ever in use
}

type freed struct {
	cluster uint32
	record  uint64 // that freed it
	reads   uint64 // generation of readers that may have seen it
}

func newAllocator(clusters uint32) *allocator {
	return &allocator{used: make([]uint64, (clusters+63)/64), clusters: clusters}
}

func (a *allocator) inUse(c uint32) bool { return a.used[c/64]&(1<<(c%64)) != 0 }

// mark says that a cluster is in use.
func (a *allocator) mark(c uint32) {
	if a.inUse(c) {
		return
	}
	a.used[c/64] |= 1 << (c % 64)
	a.high = max(a.high, c+1)
	if c < a.reserved {
		a.free--
	}
}

// release makes a cluster free at once: nobody has ever been told of it, or everything is over.
func (a *allocator) release(c uint32) {
	if !a.inUse(c) {
		return
	}
	a.used[c/64] &^= 1 << (c % 64)
	if c < a.reserved {
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

// grow says that the space of clusters up to n is reserved.
func (a *allocator) grow(n uint32) {
	for c := a.reserved; c < n; c++ {
		if !a.inUse(c) {
			a.free++
		}
	}
	a.reserved = max(a.reserved, n)
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
	if a.next >= a.reserved {
		a.next = 0
	}
	return dst, true
}

const noCluster = ^uint32(0)

// findFree finds the first free cluster from at on.
func (a *allocator) findFree(at uint32) uint32 {
	for at < a.reserved {
		word := ^a.used[at/64] >> (at % 64)
		if word != 0 {
			at += uint32(bits.TrailingZeros64(word))
			if at < a.reserved {
				return at
			}
			return noCluster
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
		for end < a.reserved && end-c < n && !a.inUse(end) {
			end++
		}
		if end-c == n {
			return c
		}
		at = end
	}
	return noCluster
}
