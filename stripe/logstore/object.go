package logstore

import (
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/stripe"
)

// object is one that exists. Everything but order is guarded by the member's lock.
type object struct {
	id stripe.ObjectID

	// order keeps changes of the object in order where they need to read before they write: a part
	// of a block, a truncate, a punch hold it exclusively, writes of whole blocks share it. It is
	// held while waiting for the disk.
	order sync.RWMutex

	slot     uint32 // in the table; noSlot while only clusters are known
	size     int64
	truncSeq uint64
	epoch    uint32
	lives    stripe.Lives
	version  uint64 // grows with every change; a reader compares it when a block does not verify
	clusters int64  // how many it has
	blocks   blockCounts
	leaves   map[int64]*leaf
	users    int  // changes under way
	gone     bool // removed; whoever finds it looks again
}

// blockCounts says how many blocks of an object have their space, and how many of these only
// because they were reserved.
type blockCounts struct{ taken, reserved int64 }

func (b *blockCounts) add(x blockCounts) {
	b.taken += x.taken
	b.reserved += x.reserved
}

func (b *blockCounts) sub(x blockCounts) {
	b.taken -= x.taken
	b.reserved -= x.reserved
}

const (
	noSlot     = ^uint32(0)
	leafShift  = 4
	leafLength = 1 << leafShift // clusters: 1 MiB of the object
)

// leaf is a piece of an object's map: for each cluster the place plus one, 0 for none.
type leaf [leafLength]uint32

func newObject(id stripe.ObjectID) *object {
	return &object{id: id, slot: noSlot, leaves: map[int64]*leaf{}}
}

// cluster is where cluster index of the object lives.
func (o *object) cluster(index int64) (uint32, bool) {
	l := o.leaves[index>>leafShift]
	if l == nil {
		return 0, false
	}
	c := l[index%leafLength]
	return c - 1, c != 0
}

// setCluster says where it lives from now on and returns where it lived.
func (o *object) setCluster(index int64, c uint32) (old uint32, had bool) {
	l := o.leaves[index>>leafShift]
	if l == nil {
		l = new(leaf)
		o.leaves[index>>leafShift] = l
	}
	was := l[index%leafLength]
	l[index%leafLength] = c + 1
	if was == 0 {
		o.clusters++
	}
	return was - 1, was != 0
}

// dropCluster forgets it.
func (o *object) dropCluster(index int64) {
	l := o.leaves[index>>leafShift]
	l[index%leafLength] = 0
	o.clusters--
	if *l == (leaf{}) {
		delete(o.leaves, index>>leafShift)
	}
}

// each calls fn for every cluster from index first to before end, in no order, while fn may drop
// it.
func (o *object) each(first, end int64, fn func(index int64, c uint32)) {
	visit := func(key int64, l *leaf) {
		for i, c := range l {
			index := key<<leafShift + int64(i)
			if c != 0 && index >= first && index < end {
				fn(index, c-1)
			}
		}
	}
	lo, hi := first>>leafShift, (end+leafLength-1)>>leafShift
	if hi-lo <= int64(len(o.leaves)) {
		for key := lo; key < hi; key++ {
			if l := o.leaves[key]; l != nil {
				visit(key, l)
			}
		}
		return
	}
	for key, l := range o.leaves {
		if key >= lo && key < hi {
			visit(key, l)
		}
	}
}

func (o *object) info() stripe.Info {
	return stripe.Info{
		ID: o.id, Size: o.size, Allocated: o.blocks.taken * blockBytes, TruncSeq: o.truncSeq,
		Epoch: o.epoch, Lives: o.lives,
	}
}

// leavesIn lists the keys of the leaves that hold clusters from first to before end, in order.
func (o *object) leavesIn(first, end int64) []int64 {
	lo, hi := first>>leafShift, (end+leafLength-1)>>leafShift
	var keys []int64
	if hi-lo <= int64(len(o.leaves)) {
		for key := lo; key < hi; key++ {
			if o.leaves[key] != nil {
				keys = append(keys, key)
			}
		}
		return keys
	}
	for key := range o.leaves {
		if key >= lo && key < hi {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
