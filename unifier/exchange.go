package unifier

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/mem"
)

// mergeInPlace is how many bytes may be copied into a cached unit under the cache's lock, when
// nobody has the unit: about as long as finding it takes. More is merged into a fresh block.
const mergeInPlace = 8 << 10

// exchangeAtOnce is how many units of a draft are brought up to date before others may have the
// lock: a list can have thousands.
const exchangeAtOnce = 32

// exchangeLocked brings the cache up to date, unit by unit. It may let go of the lock to copy, or
// to wait for a reader; the claim keeps others away from the units.
func (d *Draft) exchangeLocked(inval uint64) {
	c, unit, at := d.c, d.obj.unit(), 0
	for i := 0; i < len(d.parts); {
		j, whole := i+1, -1
		for ; j < len(d.parts) && d.parts[j].unit == d.parts[i].unit; j++ {
		}
		for k := i; k < j; k++ {
			if d.parts[k].whole(unit) {
				whole = k
			}
		}
		switch {
		case whole < 0:
			d.mergeLocked(inval, d.parts[i:j])
		case d.overlay(&d.parts[whole], d.parts[whole+1:j]):
			d.replaceLocked(inval, &d.parts[whole])
		}
		i = j
		if at++; at%exchangeAtOnce == 0 { // let others have a look at the cache
			c.mu.Unlock()
			c.mu.Lock()
		}
	}
}

// overlay copies the later parts of a list onto a whole unit, which nobody sees yet. What came
// before the whole unit is covered by it.
func (d *Draft) overlay(on *part, parts []part) bool {
	for i := range parts {
		p := &parts[i]
		b := d.need.got[on.buf]
		mem.CopyFor(mem.CopyMerge, b.bytes(int(p.lo), int(p.hi-p.lo)), d.mem(p))
		for k := p.lo / blockBytes; k*blockBytes < p.hi; k++ {
			d.sums[on.sum+int(k)] = crc32c.Sum(b.bytes(int(k*blockBytes), blockBytes))
		}
	}
	return true
}

// replaceLocked makes a whole unit of the draft the current version, unless it was lost meanwhile
// or a fill is waiting to read the unit.
func (d *Draft) replaceLocked(inval uint64, p *part) {
	c, o := d.c, d.obj
	old := c.findLocked(o, p.unit)
	if o.inval != inval || c.closed || old != nil && old.fill != nil {
		if old != nil && old.fill == nil {
			c.dropLocked(old)
		}
		return
	}
	u := c.succeedLocked(o, p.unit, d.need.got[p.buf], old, d.hint.Policy)
	copy(u.blk.sums(), d.sums[p.sum:p.sum+int(o.unit()/blockBytes)])
	d.taken[p.buf].gone = true
	c.stats.Exchanged++
	if d.back {
		d.taken[p.buf].held = u // the pin that the unit was born with is the draft's
		return
	}
	c.unpinLocked(u)
}

// succeedLocked enters a new version of a unit, held, and takes the old one out.
func (c *Cache) succeedLocked(o *object, index int64, b block, old *unit, p Policy) *unit {
	var was unit
	if old != nil {
		was.place, was.seen, was.was = old.place, old.seen, old.was
		c.removeLocked(old)
	}
	u := c.addLocked(o, index, b, p)
	if old != nil && p != Keep {
		c.policy.inherit(u, &was)
	}
	return u
}

// mergeLocked puts parts of a unit into the cached version: in place when they are small and nobody
// has the unit, else into a fresh version. A unit that is not cached stays so; one for which
// there is no memory leaves the cache.
//
// A writer that meets a reader makes a fresh version at once if memory is free: that is a copy of
// 64 KiB at most, some 10 us. Otherwise it waits, but never longer than Patience, since a reader
// may be as slow as its network; then it takes memory by eviction, and where there is none the unit
// leaves the cache. So no reader can block a writer.
func (d *Draft) mergeLocked(inval uint64, parts []part) {
	c, o := d.c, d.obj
	var sum int64
	for i := range parts {
		sum += parts[i].hi - parts[i].lo
	}
	u := d.mergeableLocked(inval, parts[0].unit)
	if u == nil {
		return
	}
	if u.pins > 0 && !c.freeLockedFor(o.shift) {
		if u = d.waitReadersLocked(u, inval, parts[0].unit); u == nil {
			return
		}
	}
	if u.pins == 0 && sum <= mergeInPlace {
		d.into(u.blk, parts)
		c.stats.Merged++
		return
	}
	c.pinLocked(u) // not to evict it for its own successor
	n := &d.spare
	n.shift, n.count = o.shift, 1
	if c.tryObtainLocked(n) {
		d.freshLocked(inval, u, n.got[0], parts)
		n.got = n.got[:0]
	} else {
		c.dropLocked(u)
	}
	c.unpinLocked(u)
}

// freeLockedFor tells whether a block can be had without taking it from anybody.
func (c *Cache) freeLockedFor(shift uint8) bool {
	return c.queue.Empty() && (c.memory.partial[shift] != nil || c.memory.free > 0)
}

// mergeableLocked is the unit's current version; nil when there is none, or none that may be kept.
func (d *Draft) mergeableLocked(inval uint64, index int64) *unit {
	u := d.c.findLocked(d.obj, index)
	if u == nil || u.fill != nil {
		return nil
	}
	if d.obj.inval != inval || d.c.closed {
		d.c.dropLocked(u)
		return nil
	}
	return u
}

// into copies the parts into memory of a unit that nobody reads, in order, and sums the blocks that
// are not written as a whole.
func (d *Draft) into(b block, parts []part) {
	var touched uint16 // blocks
	for i := range parts {
		p := &parts[i]
		mem.CopyFor(mem.CopyMerge, b.bytes(int(p.lo), int(p.hi-p.lo)), d.mem(p))
		if p.sum >= 0 {
			copy(b.sums()[p.lo/blockBytes:], d.sums[p.sum:p.sum+int((p.hi-p.lo)/blockBytes)])
			continue
		}
		for k := p.lo / blockBytes; k*blockBytes < p.hi; k++ {
			touched |= 1 << k
		}
	}
	for ; touched != 0; touched &= touched - 1 {
		k := bits.TrailingZeros16(touched)
		b.sums()[k] = crc32c.Sum(b.bytes(k*blockBytes, blockBytes))
	}
}

// freshLocked merges into a new version of a unit that the caller holds. It copies without the
// lock.
func (d *Draft) freshLocked(inval uint64, old *unit, b block, parts []part) {
	c, o := d.c, d.obj
	c.mu.Unlock()
	copy(b.sums(), old.blk.sums())
	mem.CopyFor(mem.CopyMerge, b.bytes(0, b.size()), old.bytes())
	d.into(b, parts)
	c.mu.Lock()
	if o.inval != inval || c.closed || !old.indexed {
		if old.indexed {
			c.dropLocked(old)
		}
		c.memory.give(b)
		return
	}
	u := c.succeedLocked(o, old.index, b, old, d.hint.Policy)
	c.unpinLocked(u)
	c.stats.Merged++
}

// waitReadersLocked waits for the readers of a unit, as long as Patience lasts, and looks again.
func (d *Draft) waitReadersLocked(u *unit, inval uint64, index int64) *unit {
	c := d.c
	c.stats.ReaderWaits++
	d.spare.arm()
	u.watch = &d.spare
	if d.patience == nil {
		d.patience = time.NewTimer(c.cfg.Patience)
	} else {
		d.patience.Reset(c.cfg.Patience)
	}
	c.mu.Unlock()
	select {
	case <-d.spare.ready:
	case <-d.patience.C:
	}
	d.patience.Stop() // and nothing is left in its channel
	c.mu.Lock()
	if again := d.mergeableLocked(inval, index); again != nil {
		again.watch = nil
		return again
	}
	return nil
}
