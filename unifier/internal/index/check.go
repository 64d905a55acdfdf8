package index

import (
	"fmt"

	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Check looks whether the index agrees with itself and with the memory below it, and, if it is told
// to read all that is cached, with the sums of its data. It tells the first thing that is wrong.
func (x *Index) Check(sums bool) error {
	var cached int64
	for id, o := range x.objects {
		cached += int64(o.count) << o.shift
		if o.count == 0 && o.busy == 0 || o.busy < 0 {
			return fmt.Errorf("object %v: %d units, %d users", id, o.count, o.busy)
		}
		for u := o.units.First(); u != nil; u = u.inObject.Next() {
			if err := x.checkUnit(o, u); err != nil {
				return err
			}
			if !sums {
				continue
			}
			if err := u.checkSums(); err != nil {
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
	return nil
}

// checkSums compares the bytes of a unit with their sums, unless they may be on their way.
func (u *Unit) checkSums() error {
	if u.fill != nil || u.pins > 0 {
		return nil
	}
	for i, sum := range u.block.Sums() {
		b := u.block.Bytes(i*memory.BlockBytes, memory.BlockBytes)
		if want := crc32c.Sum(b); sum != want {
			return fmt.Errorf("unit %d of %v: sum %08x, should be %08x", u.index, u.obj.id, sum, want)
		}
	}
	return nil
}
