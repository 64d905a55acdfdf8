package logstore

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// The log is a ring that positions run through without end: a batch at position p lies at p modulo
// the log's size, and never crosses its end. A batch is one group commit: a header of whole blocks
// that holds the records, then the data blocks that they name, in their order.
//
//	0      4        8         12      16        24      32      36     40    48        56
//	|magic |crc     |bytes of |blocks |position |stable |chain  |kind  |lap  |store id |records ...
//	|      |        |header   |       |         |upto   |       |      |     |(8)      |
//
// Crc covers the header from byte 8 to its end. Chain is the crc of the batch before: what an
// earlier life of the log has left behind does not continue this one. Stable says up to where
// everything was on stable storage when the batch was made. Lap counts the wraps. A batch of kind
// wrap says that the next one lies at the ring's start. Data blocks verify against the checksums
// in their records, so that a batch is believed whole or not at all.
//
// A record, a multiple of 8 bytes:
//
//	0     4     5      6       8         10      12     16      24    32   36      40
//	|len  |kind |flags |blocks |clusters |slot # |epoch |number |file |gen |stripe |
//	40          48       56      60      64     72     80     88
//	|truncseq   |session |seq    |slot   |size  |off   |len   |
//	88     96
//	|life  |
//	blocks:   16 bytes each |block of the object 8 |cluster, top bit: new 4 |checksum 4 |
//	clusters: 80 bytes each |index 8 |cluster 4 |mask 2 |fresh 2 |16 checksums of 4     |
//	requests: 16 bytes each |session 8 |slot # 2 |zero 2 |seq 4 |
//
// Requests are further ones that the record includes, as many as its length has room for (none in
// format 1). They are in the record of the data, or in the last one where the data has several: so
// who sees the numbers sees all of the data. Who sees data without them sees a write that nobody
// was told of, at the log's end, and behind it none but writes that were under way at the same
// time: when it is sent again, nothing newer is overwritten.
//
// In a record that reserves, or that releases what was reserved, the mask says which blocks, and
// there are no checksums; fresh is 1 where the cluster was free before, and 0 in all other records.
//
// Life is the one that the change was made in, or acknowledged in first, see stripe.Keeper. Records
// of the formats before 3 end before it.
//
// Every record says what holds after it (size, truncate sequence, places and checksums), never how
// to get there from what was before. So replaying records on top of pages that know some of them
// already ends in the same state.
const (
	batchMagic = 0x48435442 // "BTCH"
	batchHead  = 56

	batchRecords = 0
	batchWrap    = 1

	recordHead   = 96
	recordHead2  = 88 // up to format 2
	blockDesc    = 16
	clusterDesc  = 80
	requestDesc  = 16
	newCluster   = 1 << 31 // mark in a block's cluster: it was free before
	recordBlocks = 1 << 12 // more than any batch holds

	kindWrite    = 1 // also zero: off and len are cleared, then blocks and clusters set
	kindTruncate = 2
	kindRemove   = 3
	kindFence    = 4
	kindReserve  = 5 // with flagFree: releases
	kindEnd      = 6

	flagClear  = 1 // the range off, len is cleared first
	flagVerify = 2 // clusters were written without a sync: believe them only when they verify
	flagKeep   = 4 // what is cleared keeps its space
	flagFree   = 8 // what is named is not reserved any more
)

// record is one change.
type record struct {
	kind     uint8
	flags    uint8
	slot     uint32 // of the table: the object's, or the fence's
	number   uint64
	id       stripe.ObjectID
	st       wire.Stamp // TruncSeq is the object's after the record
	size     int64
	off, len int64
	blocks   []blockPlace
	clusters []clusterPlace
	requests []wire.Stamp // Session, Slot and Seq only; the caller's memory
}

// blockPlace says where a block of an object lives and what its checksum is.
type blockPlace struct {
	block   int64
	cluster uint32
	fresh   bool // the cluster was free before, and this is the first block of it
	sum     uint32
	data    *block // live: what waits to be written in place
}

// clusterPlace says the same of a whole cluster.
type clusterPlace struct {
	index   int64
	cluster uint32
	mask    uint16
	fresh   bool // see kindReserve
	sums    [clusterBlocks]uint32
}

func (r *record) bytes() int {
	return recordHead + len(r.blocks)*blockDesc + len(r.clusters)*clusterDesc +
		len(r.requests)*requestDesc
}

// append encodes the record.
func (r *record) append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, r.bytes())...)
	p := b[at:]
	le := binary.LittleEndian
	le.PutUint32(p, uint32(len(p)))
	p[4], p[5] = r.kind, r.flags
	le.PutUint16(p[6:], uint16(len(r.blocks)))
	le.PutUint16(p[8:], uint16(len(r.clusters)))
	le.PutUint16(p[10:], r.st.Slot)
	le.PutUint32(p[12:], r.st.Epoch)
	le.PutUint64(p[16:], r.number)
	le.PutUint64(p[24:], r.id.File)
	le.PutUint32(p[32:], r.id.Gen)
	le.PutUint32(p[36:], r.id.Stripe)
	le.PutUint64(p[40:], r.st.TruncSeq)
	le.PutUint64(p[48:], r.st.Session)
	le.PutUint32(p[56:], r.st.Seq)
	le.PutUint32(p[60:], r.slot)
	le.PutUint64(p[64:], uint64(r.size))
	le.PutUint64(p[72:], uint64(r.off))
	le.PutUint64(p[80:], uint64(r.len))
	le.PutUint64(p[88:], r.st.Life)
	p = p[recordHead:]
	for i := range r.blocks {
		x := &r.blocks[i]
		le.PutUint64(p, uint64(x.block))
		c := x.cluster
		if x.fresh {
			c |= newCluster
		}
		le.PutUint32(p[8:], c)
		le.PutUint32(p[12:], x.sum)
		p = p[blockDesc:]
	}
	for i := range r.clusters {
		x := &r.clusters[i]
		le.PutUint64(p, uint64(x.index))
		le.PutUint32(p[8:], x.cluster)
		le.PutUint16(p[12:], x.mask)
		if x.fresh {
			le.PutUint16(p[14:], 1)
		}
		for k, v := range x.sums {
			le.PutUint32(p[16+4*k:], v)
		}
		p = p[clusterDesc:]
	}
	for i := range r.requests {
		x := &r.requests[i]
		le.PutUint64(p, x.Session)
		le.PutUint16(p[8:], x.Slot)
		le.PutUint32(p[12:], x.Seq)
		p = p[requestDesc:]
	}
	return b
}

// decodeRecord takes one record off the front of b. Clusters must be below the limits.
func decodeRecord(b []byte, g *geometry, r *record) (rest []byte, err error) {
	bad := func(what string) error {
		return errs.Newf(errs.Corrupt, "logstore.replay", "", "a record's %s makes no sense", what)
	}
	le := binary.LittleEndian
	if len(b) < g.recordHead {
		return nil, bad("header")
	}
	n := int(le.Uint32(b))
	blocks, clusters := int(le.Uint16(b[6:])), int(le.Uint16(b[8:]))
	more := n - (g.recordHead + blocks*blockDesc + clusters*clusterDesc)
	if blocks > recordBlocks || n > len(b) || more < 0 || more%requestDesc != 0 ||
		more > stripe.StampsMax*requestDesc {
		return nil, bad("length")
	}
	r.kind, r.flags, r.number, r.slot = b[4], b[5], le.Uint64(b[16:]), le.Uint32(b[60:])
	r.id = stripe.ObjectID{File: le.Uint64(b[24:]), Gen: le.Uint32(b[32:]), Stripe: le.Uint32(b[36:])}
	r.st = wire.Stamp{Session: le.Uint64(b[48:]), Slot: le.Uint16(b[10:]), Seq: le.Uint32(b[56:]),
		Epoch: le.Uint32(b[12:]), Gen: r.id.Gen, TruncSeq: le.Uint64(b[40:])}
	if g.recordHead > recordHead2 {
		r.st.Life = le.Uint64(b[88:])
	}
	r.size, r.off, r.len = int64(le.Uint64(b[64:])), int64(le.Uint64(b[72:])), int64(le.Uint64(b[80:]))
	switch {
	case r.kind == 0 || r.kind >= kindEnd:
		return nil, bad("kind")
	case r.slot >= g.slots:
		return nil, bad("slot")
	case r.size < 0 || r.size > stripe.MaxObjectBytes || r.off < 0 || r.len < 0 ||
		r.off > stripe.MaxObjectBytes || r.len > stripe.MaxObjectBytes-r.off:
		return nil, bad("range")
	}
	if err := r.decodePlaces(b[g.recordHead:n-more], g, blocks, clusters); err != nil {
		return nil, err
	}
	r.decodeRequests(b[n-more : n])
	return b[n:], nil
}

func (r *record) decodePlaces(p []byte, g *geometry, blocks, clusters int) error {
	const indexMax = stripe.MaxObjectBytes / blockBytes
	le := binary.LittleEndian
	r.blocks, r.clusters = r.blocks[:0], r.clusters[:0]
	for range blocks {
		c := le.Uint32(p[8:])
		x := blockPlace{block: int64(le.Uint64(p)), cluster: c &^ newCluster, fresh: c&newCluster != 0,
			sum: le.Uint32(p[12:])}
		if x.block < 0 || x.block >= indexMax || x.cluster >= g.clusters {
			return errs.Newf(errs.Corrupt, "logstore.replay", "", "a block's place makes no sense")
		}
		r.blocks = append(r.blocks, x)
		p = p[blockDesc:]
	}
	for range clusters {
		x := clusterPlace{index: int64(le.Uint64(p)), cluster: le.Uint32(p[8:]),
			mask: le.Uint16(p[12:]), fresh: le.Uint16(p[14:]) == 1}
		if x.index < 0 || x.index >= indexMax/clusterBlocks || x.cluster >= g.clusters ||
			le.Uint16(p[14:]) > 1 {
			return errs.Newf(errs.Corrupt, "logstore.replay", "", "a cluster's place makes no sense")
		}
		for k := range x.sums {
			x.sums[k] = le.Uint32(p[16+4*k:])
		}
		r.clusters = append(r.clusters, x)
		p = p[clusterDesc:]
	}
	return nil
}

func (r *record) decodeRequests(p []byte) {
	le := binary.LittleEndian
	r.requests = r.requests[:0]
	for ; len(p) > 0; p = p[requestDesc:] {
		r.requests = append(r.requests, wire.Stamp{Session: le.Uint64(p), Slot: le.Uint16(p[8:]),
			Seq: le.Uint32(p[12:])})
	}
}

// batchInfo is a batch's header without the records.
type batchInfo struct {
	headBytes int
	blocks    int
	pos       uint64
	stable    uint64
	chain     uint32
	kind      uint32
	lap       uint64
	crc       uint32
}

// sealBatch completes a header whose records are in place; it pads to whole blocks.
func sealBatch(b []byte, info *batchInfo, storeID *[16]byte) []byte {
	for len(b)%blockBytes != 0 {
		b = append(b, make([]byte, blockBytes-len(b)%blockBytes)...)
	}
	info.headBytes = len(b)
	le := binary.LittleEndian
	le.PutUint32(b, batchMagic)
	le.PutUint32(b[8:], uint32(len(b)))
	le.PutUint32(b[12:], uint32(info.blocks))
	le.PutUint64(b[16:], info.pos)
	le.PutUint64(b[24:], info.stable)
	le.PutUint32(b[32:], info.chain)
	le.PutUint32(b[36:], info.kind)
	le.PutUint64(b[40:], info.lap)
	copy(b[48:56], storeID[:8])
	info.crc = crc32c.Sum(b[8:])
	le.PutUint32(b[4:], info.crc)
	return b
}

// decodeBatch reads the first block of a header; the checksum needs all of it, see verifyBatch.
func decodeBatch(b []byte, storeID *[16]byte) (batchInfo, bool) {
	le := binary.LittleEndian
	info := batchInfo{
		headBytes: int(le.Uint32(b[8:])), blocks: int(le.Uint32(b[12:])), pos: le.Uint64(b[16:]),
		stable: le.Uint64(b[24:]), chain: le.Uint32(b[32:]), kind: le.Uint32(b[36:]),
		lap: le.Uint64(b[40:]), crc: le.Uint32(b[4:]),
	}
	ok := le.Uint32(b) == batchMagic && info.headBytes >= blockBytes &&
		info.headBytes%blockBytes == 0 && info.headBytes <= 1<<20 && info.blocks >= 0 &&
		info.blocks <= recordBlocks && string(b[48:56]) == string(storeID[:8])
	return info, ok
}

func (info *batchInfo) verify(head []byte) bool {
	return crc32c.Sum(head[8:info.headBytes]) == info.crc
}

// end is the position behind the batch; behind a wrap there may be more that is not used.
func (info *batchInfo) end() uint64 { return info.pos + uint64(info.bytes()) }

func (info *batchInfo) bytes() int64 {
	return int64(info.headBytes) + int64(info.blocks)*blockBytes
}
