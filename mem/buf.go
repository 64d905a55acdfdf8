package mem

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// poison fills returned buffers under the build tag invariants. A zero or an all-ones pattern
// would look like data that happens to be right.
const poison = 0xDB

// Buf is one buffer of a pool. Take gives it with one reference; each Lend adds one and each
// Return drops one; the last Return puts it back. Whoever holds a reference may read; who may
// write is agreed between the holders. A Return too many and any use after the last Return
// are programmer errors and panic. A use that comes after somebody else has taken the buffer
// cannot be told from theirs; a write before that is found by the poison check of -tags
// invariants.
type Buf struct {
	pool *Pool
	mem  []byte
	refs atomic.Int32
}

// Bytes is the whole buffer.
func (b *Buf) Bytes() []byte {
	b.live("Bytes")
	return b.mem
}

// Len is the size of the buffer in bytes; the same for all buffers of a pool.
func (b *Buf) Len() int { return len(b.mem) }

// Sge is n bytes at off as a piece for a work request, with the arena's region if it is
// attached.
func (b *Buf) Sge(off, n int) fabric.Sge {
	b.live("Sge")
	return fabric.Sge{Reg: b.pool.arena.Region(), Buf: b.mem[off : off+n : off+n]}
}

// Lend adds a reference for one more holder and returns b.
func (b *Buf) Lend() *Buf {
	refs := b.refs.Add(1)
	invariant.Check(refs > 1, "mem.Buf.Lend after the last Return")
	return b
}

// Return drops a reference. The last one gives the buffer to the longest waiting Take, or
// frees it.
func (b *Buf) Return() {
	refs := b.refs.Add(-1)
	invariant.Check(refs >= 0, "mem.Buf.Return once more than taken and lent")
	if refs > 0 {
		return
	}
	if invariant.Enabled {
		b.poison()
	}
	b.pool.put(b)
}

func (b *Buf) live(op string) {
	if b.refs.Load() <= 0 {
		invariant.Check(false, "mem.Buf.%s after the last Return", op)
	}
}

func (b *Buf) poison() {
	for i := range b.mem {
		b.mem[i] = poison
	}
}

func (b *Buf) checkPoison() {
	for i, v := range b.mem {
		if v != poison {
			invariant.Check(false, "mem.Buf written at byte %d after the last Return", i)
		}
	}
}
