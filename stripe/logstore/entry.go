package logstore

import (
	"encoding/binary"
	"math/bits"

	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
)

// An entry of the table, 128 bytes, 32 to a page of 4 KiB:
//
//	0     1         2     4    8        16    24   28      32
//	|type |reserved |mask |crc |record  |file |gen |stripe |
//	32             40                                  104   106       128
//	cluster: |cluster index |16 checksums of 4 bytes    |held |zero     |
//	32    40             48     52    56                         64            72  128
//	object:  |size |truncate seq |epoch |zero |last life changed in |the one before |zero |
//	fence:   |zero               |epoch |zero; generation and epoch are the minimal ones
//
// Mask has a bit for each block that holds data, held one for each that was reserved before it was
// written (see reserve.go); a cluster that has neither is nobody's. Record is the number of the
// last record that changed the entry. The checksum covers the rest of the entry and is seeded with
// its index. An entry of zeroes only is free and was never used.
const (
	entryBytes   = 128
	tableEntries = blockBytes / entryBytes

	typeFree    = 0
	typeCluster = 1
	typeObject  = 2
	typeFence   = 3
	typeLost    = 0xff // in memory only: neither copy verified
)

// entry is a view of the bytes of one.
type entry []byte

func (e entry) kind() uint8        { return e[0] }
func (e entry) mask() uint16       { return binary.LittleEndian.Uint16(e[2:]) }
func (e entry) setMask(m uint16)   { binary.LittleEndian.PutUint16(e[2:], m) }
func (e entry) held() uint16       { return binary.LittleEndian.Uint16(e[104:]) }
func (e entry) setHeld(m uint16)   { binary.LittleEndian.PutUint16(e[104:], m) }
func (e entry) record() uint64     { return binary.LittleEndian.Uint64(e[8:]) }
func (e entry) setRecord(n uint64) { binary.LittleEndian.PutUint64(e[8:], n) }
func (e entry) index() int64       { return int64(binary.LittleEndian.Uint64(e[32:])) }

func (e entry) id() stripe.ObjectID {
	le := binary.LittleEndian
	return stripe.ObjectID{File: le.Uint64(e[16:]), Gen: le.Uint32(e[24:]), Stripe: le.Uint32(e[28:])}
}

func (e entry) sum(block int) uint32 { return binary.LittleEndian.Uint32(e[40+4*block:]) }
func (e entry) setSum(block int, v uint32) {
	binary.LittleEndian.PutUint32(e[40+4*block:], v)
}

// counts is what the cluster adds to its object's.
func (e entry) counts() blockCounts {
	mask, held := e.mask(), e.held()
	return blockCounts{taken: int64(bits.OnesCount16(mask | held)),
		reserved: int64(bits.OnesCount16(held &^ mask))}
}

// reset makes the entry one of that kind without anything in it.
func (e entry) reset(kind uint8, id stripe.ObjectID, record uint64) {
	clear(e)
	e[0] = kind
	e.setRecord(record)
	e.setOwner(id)
}

func (e entry) setOwner(id stripe.ObjectID) {
	le := binary.LittleEndian
	le.PutUint64(e[16:], id.File)
	le.PutUint32(e[24:], id.Gen)
	le.PutUint32(e[28:], id.Stripe)
}

func (e entry) setIndex(i int64) { binary.LittleEndian.PutUint64(e[32:], uint64(i)) }

// setObject fills what an object's slot holds.
func (e entry) setObject(o *object, record uint64) {
	e.reset(typeObject, o.id, record)
	le := binary.LittleEndian
	le.PutUint64(e[32:], uint64(o.size))
	le.PutUint64(e[40:], o.truncSeq)
	le.PutUint32(e[48:], o.epoch)
	le.PutUint64(e[56:], o.lives.Last)
	le.PutUint64(e[64:], o.lives.Before)
}

func (e entry) getObject(o *object) {
	le := binary.LittleEndian
	o.size, o.truncSeq, o.epoch = e.index(), le.Uint64(e[40:]), le.Uint32(e[48:])
	o.lives = stripe.Lives{Last: le.Uint64(e[56:]), Before: le.Uint64(e[64:])}
}

// setFence fills what a fence's slot holds.
func (e entry) setFence(file uint64, b bar, record uint64) {
	e.reset(typeFence, stripe.ObjectID{File: file, Gen: b.gen}, record)
	binary.LittleEndian.PutUint32(e[48:], b.epoch)
}

func (e entry) bar() bar { return bar{e.id().Gen, binary.LittleEndian.Uint32(e[48:])} }

func (e entry) crc(index int64) uint32 {
	crc := crc32c.Update(^addWord(^uint32(0), uint64(index)), e[:4])
	return crc32c.Update(crc, e[8:entryBytes])
}

// seal computes the checksum, before the entry is written.
func (e entry) seal(index int64) { binary.LittleEndian.PutUint32(e[4:], e.crc(index)) }

// valid tells whether an entry from the disk can be believed.
func (e entry) valid(index int64) bool {
	if binary.LittleEndian.Uint32(e[4:]) == e.crc(index) {
		return true
	}
	for _, b := range e {
		if b != 0 {
			return false
		}
	}
	return true
}

// plausible refuses what no build has written, so that nobody computes with it: clusters has to be
// true for entries of clusters, and false for slots.
func (e entry) plausible(clusters bool) bool {
	switch e.kind() {
	case typeFree, typeLost:
		return true
	case typeCluster:
		return clusters && e.index() >= 0 && e.index() < stripe.MaxObjectBytes/clusterBytes
	case typeObject:
		return !clusters && e.index() >= 0 && e.index() <= stripe.MaxObjectBytes
	}
	return e.kind() == typeFence && !clusters
}
