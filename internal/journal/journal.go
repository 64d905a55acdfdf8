// Package journal keeps records in memory that outlives the process which writes them: a mapping
// that is shared with another process. Putting a record there costs a copy and a few stores, no
// system call.
//
// One process at a time writes, and may be killed between any two stores. A record is there from
// the store of one word on, and gone by another store of the same word, so that it is whole or not
// there at all, and a process that is killed leaves what it had put, in order. Whoever opens the
// memory believes nothing: places are checked, records have sums, and what makes no sense is left
// out and counted.
//
// It does not know what the records say, and does not save them from the death of the host.
//
// Read journal.go (the layout, and how it is written), then open.go (how it is read).
package journal

import (
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// The memory, in units of UnitBytes; words of 8 bytes are in the host's order. A record takes as
// many units as it needs, wherever they are:
//
//	unit 0     | magic | units, this one included |
//	others     0   number   of the record that begins here, in the order in which they were put; 0:
//	                        none does. Stored last when a record is put, first when it is removed
//	           8   length   in bytes, in the lower half; in the upper one the sum of number and bytes
//	           16  mark     0, until the record is marked; not in the sum
//	           24  next     the unit in which it goes on; 0: it ends here
//	           32  bytes    UnitBytes - 32 of them
//
// Units in which a record goes on have a number of 0, and only next and bytes count there.
const (
	magic = 0x53_4c_4a_52_4e_30_30_31

	// UnitBytes is the size of a unit.
	UnitBytes = 512

	atNumber = 0
	atLength = 8
	atMark   = 16
	atNext   = 24
	atBytes  = 32

	held = UnitBytes - atBytes // bytes of a record in a unit
)

// RecordMax bounds the bytes of a record.
const RecordMax = 64 << 10

// unitsMax keeps the number of a unit, and so what a damaged header may say, within reason.
const unitsMax = 1 << 24

// numberMax is what no number reaches in centuries: one above it is damaged, and those that follow
// it would come round to 0.
const numberMax = 1 << 62

// memory is where the records are. It is an interface because tests stop it between two stores.
type memory interface {
	load(at int) uint64
	store(at int, v uint64)
	read(at int, to []byte)
	write(at int, from []byte)
}

// Journal is the memory with its records. It is not safe for concurrent use.
type Journal struct {
	mem     memory
	units   int
	number  uint64   // of the record that was put last
	free    []uint32 // the next one is at the end
	damaged int
}

// Ref names a record. The zero Ref names none.
type Ref struct {
	Unit   uint32
	Number uint64
}

// Units is how many units a record of n bytes takes.
func Units(n int) int { return max(1, (n+held-1)/held) }

// Free is how many units no record takes.
func (j *Journal) Free() int { return len(j.free) }

// Put puts a record, and leaves so many units free at least; false: there is no room for that. b
// stays the caller's.
func (j *Journal) Put(b []byte, leave int) (Ref, bool) {
	n := Units(len(b))
	if len(b) > RecordMax || n+leave > len(j.free) {
		return Ref{}, false
	}
	chain := j.free[len(j.free)-n:]
	j.free = j.free[:len(j.free)-n]
	j.number++
	first := chain[n-1]
	rest := b
	for i := n - 1; i >= 0; i-- {
		unit, next := at(chain[i]), uint32(0)
		if i > 0 {
			next = chain[i-1]
		}
		part := rest[:min(held, len(rest))]
		rest = rest[len(part):]
		j.mem.write(unit+atBytes, part)
		j.mem.store(unit+atNext, uint64(next))
	}
	j.mem.store(at(first)+atLength, uint64(sum(j.number, b))<<32|uint64(len(b)))
	j.mem.store(at(first)+atMark, 0)
	j.mem.store(at(first)+atNumber, j.number)
	return Ref{first, j.number}, true
}

// Remove takes a record away. The zero Ref is allowed.
func (j *Journal) Remove(r Ref) {
	if r == (Ref{}) {
		return
	}
	j.check(r)
	j.mem.store(at(r.Unit)+atNumber, 0)
	from := len(j.free)
	for unit := r.Unit; unit != 0; unit = uint32(j.mem.load(at(unit) + atNext)) {
		j.free = append(j.free, unit)
	}
	reverse(j.free[from:]) // the first one is used again first: it is in the processor's cache
}

// Mark marks a record, by one store.
func (j *Journal) Mark(r Ref) {
	j.check(r)
	j.mem.store(at(r.Unit)+atMark, 1)
}

func (j *Journal) check(r Ref) {
	invariant.Check(r.Unit > 0 && int(r.Unit) < j.units &&
		j.mem.load(at(r.Unit)+atNumber) == r.Number, "there is no such record")
}

func at(unit uint32) int { return int(unit) * UnitBytes }

// sum covers the number, too: a unit that is used again does not make an old record valid.
func sum(number uint64, b []byte) uint32 {
	return crc32c.Update(uint32(number)^uint32(number>>32), b)
}

func reverse(list []uint32) {
	for i, k := 0, len(list)-1; i < k; i, k = i+1, k-1 {
		list[i], list[k] = list[k], list[i]
	}
}
