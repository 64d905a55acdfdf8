package mem

import (
	"bytes"
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// poison fills returned buffers under the build tag invariants. A zero or an all-ones pattern
// would look like data that happens to be right.
const poison = 0xDB

// home is the pool or zone of a buffer.
type home interface {
	// put frees a buffer whose last reference is gone.
	put(b *Buf)

	// all are its buffers, in use or not.
	all() []Buf
}

// Buf is one buffer of a pool or a zone. Take gives it with one reference; each Lend adds one and
// each Return drops one; the last Return puts it back. Every holder of a reference may read; the
// holders agree on who may write. A Return too many and any use after the last Return are
// programmer errors and panic. A use after the buffer was taken again is not detected; a write
// before that is found by the poison check of -tags invariants.
type Buf struct {
	home  home
	arena *Arena
	mem   []byte
	nth   int   // in home
	user  *User // whose share it counts against while it is out; zones only
	refs  atomic.Int32
	taken Place
}

// Bytes is the whole buffer.
func (b *Buf) Bytes() []byte {
	b.live("Bytes")
	return b.mem
}

// Len is the size of the buffer in bytes; the same for all buffers of a pool or a zone.
func (b *Buf) Len() int { return len(b.mem) }

// Sge is n bytes at off as a piece for a work request, with the arena's region if it is
// attached.
func (b *Buf) Sge(off, n int) fabric.Sge {
	b.live("Sge")
	return fabric.Sge{Reg: b.arena.Region(), Buf: b.mem[off : off+n : off+n]}
}

// SgeOf is Sge for a work request of domain d, where the arena is attached to several.
func (b *Buf) SgeOf(d fabric.Domain, off, n int) fabric.Sge {
	b.live("SgeOf")
	return fabric.Sge{Reg: b.arena.RegionOf(d), Buf: b.mem[off : off+n : off+n]}
}

// Lend adds a reference for one more holder and returns b.
func (b *Buf) Lend() *Buf {
	if b.refs.Add(1) <= 1 {
		b.misused("lent after the last Return")
	}
	return b
}

// Return drops a reference. The last one gives the buffer to the Take that has waited longest, or
// frees it.
func (b *Buf) Return() {
	refs := b.refs.Add(-1)
	if refs < 0 {
		b.misused("returned once more than taken and lent")
	}
	if refs > 0 {
		return
	}
	if invariant.Enabled {
		b.checkHome()
		b.poison()
	}
	b.home.put(b)
}

// handOut makes b its taker's.
func (b *Buf) handOut() *Buf {
	if invariant.Enabled {
		b.checkPoison()
		b.taken.Mark()
	}
	if b.refs.Swap(1) != 0 {
		b.misused("handed out while it is in use")
	}
	return b
}

func (b *Buf) live(op string) {
	if b.refs.Load() <= 0 {
		b.misused(op + " after the last Return")
	}
}

// misused panics. It is a function of its own so that its callers can be inlined.
func (b *Buf) misused(how string) {
	invariant.Check(false, "mem.Buf, taken at %s: %s", b.taken.String(), how)
}

// checkHome panics for a copy of a Buf.
func (b *Buf) checkHome() {
	if all := b.home.all(); b.nth >= len(all) || &all[b.nth] != b {
		b.misused("returned to a place where it does not live")
	}
}

// poison fills the buffer by doubling what is written.
func (b *Buf) poison() {
	b.mem[0] = poison
	for n := 1; n < len(b.mem); n *= 2 {
		copy(b.mem[n:], b.mem[:n])
	}
}

// checkPoison compares the buffer with itself, shifted by one byte.
func (b *Buf) checkPoison() {
	last := len(b.mem) - 1
	if b.mem[0] == poison && bytes.Equal(b.mem[1:], b.mem[:last]) {
		return
	}
	for i, v := range b.mem {
		if v != poison {
			invariant.Check(false, "mem.Buf, last taken at %s: written at byte %d after its Return",
				b.taken.String(), i)
		}
	}
}

// checkLeaks panics for the first buffer that is out.
func checkLeaks(h home) {
	all := h.all()
	for i := range all {
		if all[i].refs.Load() > 0 {
			all[i].misused("not returned when its memory was closed")
		}
	}
}
