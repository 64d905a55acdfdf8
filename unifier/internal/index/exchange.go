package index

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

const (
	// mergeInPlace is how many bytes may be copied into a cached unit under the lock, when nobody
	// has the unit: about as long as finding it takes. More is merged into a fresh block.
	mergeInPlace = 8 << 10

	// exchangeAtOnce is how many units of a publication are brought up to date before others may
	// have the lock: a list can have thousands.
	exchangeAtOnce = 32

	// patience is how long a writer waits for a reader before it goes on without the reader's
	// memory.
	patience = 2 * time.Millisecond
)

// Publication is one write's memory that nobody else can see, and that Exchange makes what
// everybody reads. Its blocks belong to the writer; those that become units belong to the index
// from then on.
type Publication struct {
	Object *Object
	Policy Policy
	Blocks memory.Request
	Parts  []Part    // for Exchange: by unit, within one in the order of the list
	Sums   []uint32  // of those parts that consist of whole 4 KiB
	Range  RangeLock // held during Exchange

	// Hold keeps the pin of whole units that were exchanged: they are pending, and must neither be
	// evicted nor change before the backing has them.
	Hold bool

	taken    []taken        // by block
	fresh    memory.Request // for a fresh version of a unit
	readers  chan struct{}  // gets a token when those of a unit have let go; nil until it is needed
	patience *time.Timer    // with them; the same
}

// taken tells that a block is a unit's by now, which the writer may hold.
type taken struct {
	gone bool
	held *Unit
}

// Part is what a publication has of one unit, in one block.
type Part struct {
	Unit   int64
	Lo, Hi int64 // in the unit
	Block  int   // in Publication.Blocks
	At     int64 // in the block
	Sum    int   // of its first 4 KiB in Publication.Sums; -1: it does not consist of whole ones
}

func (p *Part) whole(unit int64) bool { return p.Hi-p.Lo == unit }

// Mem is the memory of one part.
func (p *Publication) Mem(x *Part) []byte {
	return p.Blocks.Got[x.Block].Bytes(int(x.At), int(x.Hi-x.Lo))
}

// EndPublication closes the object and gives back what the publication still has: blocks that did
// not become units, and the pins of those that did.
func (x *Index) EndPublication(p *Publication) {
	for i, b := range p.Blocks.Got {
		if i >= len(p.taken) || !p.taken[i].gone {
			x.Memory.FreeBlock(b)
		} else if u := p.taken[i].held; u != nil {
			x.Unpin(u)
		}
	}
	x.Close(p.Object)
	clear(p.taken)
	p.Blocks.Reset()
	p.Range.Reset()
	p.Object, p.Hold = nil, false
	p.Parts, p.Sums, p.taken = p.Parts[:0], p.Sums[:0], p.taken[:0]
}

// Exchange brings the cache up to date, unit by unit. It may let go of the lock to copy, or to wait
// for a reader; the range lock keeps others away from the units.
func (x *Index) Exchange(p *Publication) {
	for len(p.taken) < len(p.Blocks.Got) {
		p.taken = append(p.taken, taken{})
	}
	unit, at := p.Object.UnitBytes(), 0
	for i := 0; i < len(p.Parts); {
		j, whole := i+1, -1
		for ; j < len(p.Parts) && p.Parts[j].Unit == p.Parts[i].Unit; j++ {
		}
		for k := i; k < j; k++ {
			if p.Parts[k].whole(unit) {
				whole = k
			}
		}
		if whole < 0 {
			x.merge(p, p.Parts[i:j])
		} else {
			p.overlay(&p.Parts[whole], p.Parts[whole+1:j])
			x.replace(p, &p.Parts[whole])
		}
		i = j
		if at++; at%exchangeAtOnce == 0 {
			x.Unlock()
			x.Lock()
		}
	}
}

// overlay copies the later parts of a list onto a whole unit, which nobody sees yet. What came
// before the whole unit is covered by it.
func (p *Publication) overlay(on *Part, parts []Part) {
	for i := range parts {
		part := &parts[i]
		b := p.Blocks.Got[on.Block]
		mem.CopyFor(mem.CopyMerge, b.Bytes(int(part.Lo), int(part.Hi-part.Lo)), p.Mem(part))
		for k := part.Lo / memory.BlockBytes; k*memory.BlockBytes < part.Hi; k++ {
			p.Sums[on.Sum+int(k)] = sumOf(b, int(k))
		}
	}
}

// sumOf sums the nth 4 KiB of a block.
func sumOf(b memory.Block, nth int) uint32 {
	return crc32c.Sum(b.Bytes(nth*memory.BlockBytes, memory.BlockBytes))
}

// replace makes a whole unit of the publication the current version, unless bytes of the object
// were lost meanwhile or a fill is waiting to read the unit.
func (x *Index) replace(p *Publication, part *Part) {
	o := p.Object
	old := x.find(o, part.Unit)
	if o.losses != p.Range.losses || x.closed || old != nil && old.fill != nil {
		if old != nil && old.fill == nil {
			x.drop(old)
		}
		return
	}
	b := p.Blocks.Got[part.Block]
	u := x.succeed(o, part.Unit, b, old, p.Policy)
	copy(b.Sums(), p.Sums[part.Sum:part.Sum+b.Size()/memory.BlockBytes])
	p.taken[part.Block].gone = true
	x.stats.Exchanged++
	if p.Hold {
		p.taken[part.Block].held = u // the pin that the unit was born with is the writer's
		return
	}
	x.Unpin(u)
}

// succeed enters a new version of a unit, held, and takes the old one out.
func (x *Index) succeed(o *Object, index int64, b memory.Block, old *Unit, p Policy) *Unit {
	var was Unit
	if old != nil {
		was.place, was.seen, was.was = old.place, old.seen, old.was
		x.remove(old)
	}
	u := x.add(o, index, b, p)
	if old != nil && p != Keep {
		x.policy.inherit(u, &was)
	}
	return u
}

// merge puts parts of a unit into the cached version: in place when they are small and nobody
// has the unit, else into a fresh version. A unit that is not cached stays so; one for which
// there is no memory leaves the cache.
//
// A writer that meets a reader makes a fresh version at once if memory is free: that is a copy of
// 64 KiB at most, some 10 us. Otherwise it waits, but never longer than patience, since a reader
// may be as slow as its network; then it takes memory by eviction, and where there is none the unit
// leaves the cache. So no reader can block a writer.
func (x *Index) merge(p *Publication, parts []Part) {
	o := p.Object
	var sum int64
	for i := range parts {
		sum += parts[i].Hi - parts[i].Lo
	}
	u := x.mergeable(p, parts[0].Unit)
	if u == nil {
		return
	}
	if u.pins > 0 && !x.Memory.HasFree(o.shift) {
		if u = x.waitReaders(p, u); u == nil {
			return
		}
	}
	if u.pins == 0 && sum <= mergeInPlace {
		x.copyInto(u.block, p, parts)
		x.stats.Merged++
		return
	}
	x.pin(u) // not to evict it for its own successor
	p.fresh.Ask(o.shift, 1)
	if x.Memory.TryAllocate(&p.fresh, false) {
		x.mergeFresh(p, u, p.fresh.Got[0], parts)
		p.fresh.Got = p.fresh.Got[:0]
	} else {
		x.drop(u)
	}
	x.Unpin(u)
}

// mergeable is the unit's current version; nil when there is none, or none that may be kept.
func (x *Index) mergeable(p *Publication, index int64) *Unit {
	o := p.Object
	u := x.find(o, index)
	if u == nil || u.fill != nil {
		return nil
	}
	if o.losses != p.Range.losses || x.closed {
		x.drop(u)
		return nil
	}
	return u
}

// copyInto copies the parts into memory of a unit that nobody reads, in order, and sums each 4 KiB
// that is not written as a whole.
func (x *Index) copyInto(b memory.Block, p *Publication, parts []Part) {
	var touched uint16 // 4 KiB each
	for i := range parts {
		part := &parts[i]
		mem.CopyFor(mem.CopyMerge, b.Bytes(int(part.Lo), int(part.Hi-part.Lo)), p.Mem(part))
		if part.Sum >= 0 {
			n := int(part.Hi-part.Lo) / memory.BlockBytes
			copy(b.Sums()[part.Lo/memory.BlockBytes:], p.Sums[part.Sum:part.Sum+n])
			continue
		}
		for k := part.Lo / memory.BlockBytes; k*memory.BlockBytes < part.Hi; k++ {
			touched |= 1 << k
		}
	}
	for ; touched != 0; touched &= touched - 1 {
		k := bits.TrailingZeros16(touched)
		b.Sums()[k] = sumOf(b, k)
	}
}

// mergeFresh merges into a new version of a unit that the caller holds. It copies without the lock.
func (x *Index) mergeFresh(p *Publication, old *Unit, b memory.Block, parts []Part) {
	o := p.Object
	x.Unlock()
	copy(b.Sums(), old.block.Sums())
	mem.CopyFor(mem.CopyMerge, b.All(), old.block.All())
	x.copyInto(b, p, parts)
	x.Lock()
	if o.losses != p.Range.losses || x.closed || !old.indexed {
		if old.indexed {
			x.drop(old)
		}
		x.Memory.FreeBlock(b)
		return
	}
	u := x.succeed(o, old.index, b, old, p.Policy)
	x.Unpin(u)
	x.stats.Merged++
}

// waitReaders waits for the readers of a unit, as long as patience lasts, and looks again.
func (x *Index) waitReaders(p *Publication, u *Unit) *Unit {
	index := u.index
	x.stats.ReaderWaits++
	if p.patience == nil {
		p.patience, p.readers = time.NewTimer(patience), make(chan struct{}, 1)
	} else {
		p.patience.Reset(patience)
		select {
		case <-p.readers: // of a unit that was given up on
		default:
		}
	}
	u.watch = p.readers
	x.Unlock()
	select {
	case <-p.readers:
	case <-p.patience.C:
	}
	p.patience.Stop() // and nothing is left in its channel
	x.Lock()
	again := x.mergeable(p, index)
	if again != nil {
		again.watch = nil
	}
	return again
}
