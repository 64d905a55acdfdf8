package journal

import (
	"cmp"
	"slices"

	"github.com/sluice-storage/sluice/errs"
)

// Record is one that is in a journal.
type Record struct {
	Ref
	Marked bool
	Bytes  []byte // the caller's
}

// Open finds the records in memory that stays mapped, and begins at a multiple of 8, until nobody
// uses the Journal any more. Memory that has never been written is an empty journal. errs.Version:
// it is of another version of this package, or of another length; Reset makes a journal of it.
func Open(mem []byte) (*Journal, error) { return open(mapped(mem), len(mem)) }

// Reset empties a journal, whatever is in the memory.
func Reset(mem []byte) (*Journal, error) {
	clear(mem)
	return Open(mem)
}

func open(mem memory, size int) (*Journal, error) {
	units := size / UnitBytes
	if units < 2 || units > unitsMax {
		return nil, errs.Newf(errs.Invalid, "journal.Open", "", "a journal of %d bytes", size)
	}
	switch m, n := mem.load(0), mem.load(8); {
	case m == 0: // whoever has begun it has put nothing before it was done
		mem.store(8, uint64(units))
		mem.store(0, magic)
	case m != magic || n != uint64(units):
		return nil, errs.Newf(errs.Version, "journal.Open", "", "written by another version")
	}
	j := &Journal{mem: mem, units: units}
	j.load()
	return j, nil
}

// load finds out what is free. What is damaged is removed.
func (j *Journal) load() {
	taken := make([]bool, j.units)
	taken[0] = true
	for _, r := range j.refs() {
		if r.Number > numberMax || !j.take(r, taken) {
			j.damaged++
			j.mem.store(at(r.Unit)+atNumber, 0)
		}
		if r.Number <= numberMax {
			j.number = max(j.number, r.Number)
		}
	}
	for unit := j.units - 1; unit > 0; unit-- {
		if !taken[unit] {
			j.free = append(j.free, uint32(unit))
		}
	}
}

// refs are the beginnings of records in the order in which they were put.
func (j *Journal) refs() (list []Ref) {
	for unit := uint32(1); int(unit) < j.units; unit++ {
		if n := j.mem.load(at(unit) + atNumber); n != 0 {
			list = append(list, Ref{unit, n})
		}
	}
	slices.SortFunc(list, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Unit, b.Unit))
	})
	return list
}

// take marks the units of a record as taken, if it is whole.
func (j *Journal) take(r Ref, taken []bool) bool {
	var units []uint32
	_, ok := j.bytes(r, func(unit uint32) bool {
		units = append(units, unit)
		again := taken[unit] || unit != r.Unit && j.mem.load(at(unit)+atNumber) != 0
		return !again && len(units) <= Units(RecordMax)
	})
	if !ok {
		return false
	}
	for _, unit := range units {
		taken[unit] = true
	}
	return true
}

// bytes reads a record. visit sees each of its units first.
func (j *Journal) bytes(r Ref, visit func(unit uint32) bool) ([]byte, bool) {
	length := j.mem.load(at(r.Unit) + atLength)
	left := int(uint32(length))
	if left > RecordMax {
		return nil, false
	}
	b := make([]byte, left)
	unit := uint64(r.Unit)
	for rest := b; ; {
		if unit == 0 || unit >= uint64(j.units) || !visit(uint32(unit)) {
			return nil, false
		}
		n := min(held, len(rest))
		j.mem.read(at(uint32(unit))+atBytes, rest[:n])
		rest = rest[n:]
		unit = j.mem.load(at(uint32(unit)) + atNext)
		if len(rest) == 0 {
			break
		}
	}
	return b, unit == 0 && sum(r.Number, b) == uint32(length>>32)
}

// Records are all that are there, in the order in which they were put.
func (j *Journal) Records() (list []Record) {
	for _, r := range j.refs() {
		if b, ok := j.bytes(r, func(uint32) bool { return true }); ok {
			list = append(list, Record{Ref: r, Marked: j.mem.load(at(r.Unit)+atMark) != 0, Bytes: b})
		}
	}
	return list
}

// Damaged is how many records Open has found that were not whole.
func (j *Journal) Damaged() int { return j.damaged }
