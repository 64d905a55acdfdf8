package logstore

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// The crash model knows the blocks of every object that hold data or are held, so that what comes
// back after a power cut has exactly the space that it had.

// crashBlocks are blocks of an object.
type crashBlocks map[int64]bool

// crashSpace is the space of an object.
type crashSpace struct{ data, held crashBlocks }

func newCrashSpace() crashSpace { return crashSpace{crashBlocks{}, crashBlocks{}} }

func (x crashSpace) clone() crashSpace {
	c := newCrashSpace()
	for b := range x.data {
		c.data[b] = true
	}
	for b := range x.held {
		c.held[b] = true
	}
	return c
}

// hash writes down what has space, and what of it is only reserved.
func (x crashSpace) hash(w io.Writer) {
	var taken, reserved []int64
	for b := range x.data {
		taken = append(taken, b)
	}
	for b := range x.held {
		if !x.data[b] {
			taken, reserved = append(taken, b), append(reserved, b)
		}
	}
	slices.Sort(taken)
	slices.Sort(reserved)
	fmt.Fprintln(w, taken, reserved)
}

func (x crashSpace) reserved() bool {
	for b := range x.held {
		if !x.data[b] {
			return true
		}
	}
	return false
}

// wrote and reserve are of all blocks that a range touches; what holds data is not reserved.
func (x crashSpace) wrote(off, n int64) {
	for b := off / blockBytes; n > 0 && b*blockBytes < off+n; b++ {
		x.data[b] = true
	}
}

func (x crashSpace) reserve(off, n int64) {
	for b := off / blockBytes; n > 0 && b*blockBytes < off+n; b++ {
		if !x.data[b] {
			x.held[b] = true
		}
	}
}

// release is of those that it touches and that hold no data.
func (x crashSpace) release(off, n int64) {
	for b := off / blockBytes; b*blockBytes < off+n; b++ {
		if !x.data[b] {
			delete(x.held, b)
		}
	}
}

// clear is of those that lie inside a range as a whole.
func (x crashSpace) clear(off, end int64, keep bool) {
	within := func(b int64) bool { return b*blockBytes >= off && (b+1)*blockBytes <= end }
	for b := range x.data {
		if within(b) {
			delete(x.data, b)
			if keep {
				x.held[b] = true
			}
		}
	}
	for b := range x.held {
		if within(b) && !keep {
			delete(x.held, b)
		}
	}
}

func (x crashSpace) cut(size int64) {
	x.clear((size+blockBytes-1)/blockBytes*blockBytes, stripe.MaxObjectBytes, false)
}

// cleared is what becomes of a range of an object that is punched or blanked.
func (o *crashObject) cleared(off, n int64, keep bool) {
	size, end := int64(len(o.data)), off+n
	if end >= size {
		end = (max(size, off) + blockBytes - 1) / blockBytes * blockBytes
	}
	if o.space.reserved() && !keep {
		end = max(end, off+n)
	}
	o.space.clear(off, end, keep)
	if off < size {
		clear(o.data[off:min(off+n, size)])
	}
}

// spaceIn is the same of an object of a store.
func spaceIn(m *member, o *object) crashSpace {
	x := newCrashSpace()
	m.mu.Lock()
	defer m.mu.Unlock()
	o.each(0, stripe.MaxObjectBytes/clusterBytes, func(index int64, c uint32) {
		e := m.table.clusterEntry(c)
		for b := range int64(clusterBlocks) {
			if e.mask()&(1<<b) != 0 {
				x.data[index*clusterBlocks+b] = true
			}
			if e.held()&(1<<b) != 0 {
				x.held[index*clusterBlocks+b] = true
			}
		}
	})
	return x
}

func stepReserve(id stripe.ObjectID, off, n int64, extend bool, seq uint64) step {
	return step{
		name: fmt.Sprintf("reserve %v [%d, +%d) extend %v", id, off, n, extend), durable: true,
		run: func(ctx context.Context, s *Store) error {
			_, _, err := s.Reserve(ctx, id, stripe.Reservation{Off: off, Len: n, Extend: extend},
				wire.Stamp{TruncSeq: seq})
			return err
		},
		model: func(m *crashModel) {
			o := m.object(id)
			o.space.reserve(off, n)
			if extend {
				o.resize(max(int64(len(o.data)), off+n))
			}
		},
	}
}

func stepUnreserve(id stripe.ObjectID, off, n int64, seq uint64) step {
	return step{
		name: fmt.Sprintf("release %v [%d, +%d)", id, off, n), durable: true,
		run: func(ctx context.Context, s *Store) error {
			return s.Release(ctx, id, off, n, wire.Stamp{TruncSeq: seq})
		},
		model: func(m *crashModel) {
			if o := m.objects[id]; o != nil {
				o.space.release(off, n)
			}
		},
	}
}

func stepBlank(id stripe.ObjectID, off, n int64, seq uint64, d stripe.Durability) step {
	return step{
		name: fmt.Sprintf("blank %v [%d, +%d)", id, off, n), durable: d != stripe.Volatile,
		run: func(ctx context.Context, s *Store) error {
			return s.Blank(ctx, id, off, n, wire.Stamp{TruncSeq: seq}, d)
		},
		model: func(m *crashModel) {
			if o := m.objects[id]; o != nil {
				o.cleared(off, n, true)
			}
		},
	}
}

// reserves is the script about reserved space: it is written in place and by whole clusters,
// blanked, punched, cut, given back, and used again by others.
func reserves() []step {
	none, trunc1 := wire.Stamp{}, wire.Stamp{TruncSeq: 1}
	return []step{
		stepReserve(crashA, 10_000, 300_000, false, 0),
		stepWrite(crashA, 12_288, 8192, 1, none, stripe.Volatile),
		stepReserve(crashB, 0, 70_000, true, 0),
		stepCheckpoint(),
		stepWrite(crashA, 65_536, 131_072, 2, none, stripe.Durable),
		stepBlank(crashA, 60_000, 80_000, 0, stripe.Durable),
		stepWrite(crashB, 1000, 70_000, 3, none, stripe.Volatile),
		stepBlank(crashB, 0, 100_000, 0, stripe.Volatile),
		stepSync(),
		stepPunch(crashA, 65_536, 65_536, 0, stripe.Durable),
		stepUnreserve(crashA, 200_000, 50_000, 0),
		stepWrite(crashB, 200_000, 140_000, 4, none, stripe.Durable),
		stepCheckpoint(),
		stepReserve(crashA, 0, 400_000, true, 0),
		stepWrite(crashA, 0, 400_000, 5, none, stripe.Volatile),
		stepTruncate(crashA, 9000, 1),
		stepReserve(crashA, 0, 200_000, false, 1),
		stepWrite(crashA, 50_000, 100_000, 6, trunc1, stripe.Durable),
		stepRemove(crashB),
		stepCheckpoint(),
		stepReserve(crashB, 0, 500_000, false, 0),
		stepWrite(crashB, 0, 131_072, 7, none, stripe.Volatile),
		stepUnreserve(crashB, 0, 500_000, 0),
		stepWrite(crashA, 0, 5000, 8, trunc1, stripe.Durable),
		stepTruncate(crashA, 300_000, 2),
	}
}
