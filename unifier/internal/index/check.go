package index

import (
	"fmt"

	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Check looks whether the index agrees with itself, with the memory below it and with the sums of
// its data, and tells the first thing that is wrong. It reads all that is cached.
func (x *Index) Check() error {
	var cached int64
	for id, o := range x.objects {
		cached += int64(o.count) << o.shift
		if o.count == 0 && o.busy == 0 || o.busy < 0 {
			return fmt.Errorf("object %v: %d units, %d users", id, o.count, o.busy)
		}
		for u := o.units; u != nil; u = u.older {
			if err := x.checkUnit(o, u); err != nil {
				return err
			}
		}
	}
	if cached != x.stats.Bytes {
		return fmt.Errorf("%d bytes are cached, counted are %d", cached, x.stats.Bytes)
	}
	return nil
}

func (x *Index) checkUnit(o *Object, u *Unit) error {
	if u.pins < 0 || !u.indexed || x.find(o, u.index) != u || u.block.Owner() != u {
		return fmt.Errorf("unit %d of %v: %d pins, indexed %v", u.index, o.id, u.pins, u.indexed)
	}
	if u.fill != nil || u.pins > 0 {
		return nil // its bytes may be on their way
	}
	for i, sum := range u.block.Sums() {
		b := u.block.Bytes(i*memory.BlockBytes, memory.BlockBytes)
		if want := crc32c.Sum(b); sum != want {
			return fmt.Errorf("unit %d of %v: sum %08x, should be %08x", u.index, o.id, sum, want)
		}
	}
	return nil
}
