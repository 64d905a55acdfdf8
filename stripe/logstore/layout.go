package logstore

import (
	"hash/crc32"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// A member is one device, cut once and for all when it is made:
//
//	0         4K        8K          64K       576K    576K+log
//	|super A  |super B  |reserved   |sessions |log    |table A |table B |pad |data ...
//	|         |         |           |4 x 128K |       |        |        |64K |
//
// Data is clusters of 64 KiB, 16 blocks of 4 KiB each. The table has one entry of 128 bytes for
// each cluster, saying whose it is and the checksums of its blocks, and behind those one slot of
// 128 bytes for each object or fence. Everything is little-endian.
const (
	blockBytes    = device.BlockBytes
	clusterBytes  = 64 << 10
	clusterBlocks = clusterBytes / blockBytes
	sessionsBytes = 128 << 10
	sessionsAt    = 64 << 10
	logAt         = sessionsAt + 4*sessionsBytes

	clustersMax  = 1 << 31 // 128 TiB a member: the top bit of a cluster's number is a mark
	logBytesMin  = 512 << 10
	segmentCount = 1024 // clusters whose space is reserved together: 64 MiB
	slotsMin     = 1024
)

// geometry is where everything lies.
type geometry struct {
	logBytes       int64
	clusters       uint32
	slots          uint32
	tableAt        [2]int64
	dataAt         int64
	tableBytes     int64
	batchBlocksMax int // blocks of data in one batch of the log
	batchHeadMax   int // bytes of its header
	recordHead     int // bytes of a record without what it names, in the log that is there
}

// layOut cuts a device of that size. Each cluster costs itself, its entry and its slot, twice.
func layOut(size, logBytes int64) (geometry, error) {
	logBytes = logBytes / clusterBytes * clusterBytes
	g := geometry{logBytes: logBytes}
	room := size - logAt - logBytes - 2*blockBytes - clusterBytes
	n := room / (clusterBytes + 4*entryBytes)
	if logBytes < logBytesMin || n < 8 {
		return g, errs.Newf(errs.Invalid, "logstore.layout", "",
			"%d bytes with a log of %d are too few: the log needs %d, and data at least 1 MiB more",
			size, logBytes, logBytesMin)
	}
	g.clusters = uint32(min(n, clustersMax-1)) &^ (tableEntries - 1)
	if g.clusters == 0 {
		g.clusters = uint32(n)
	}
	g.slots = max(g.clusters, slotsMin)
	g.fit()
	for g.dataAt+int64(g.clusters)*clusterBytes > size {
		g.clusters--
	}
	return g, nil
}

// fit computes what follows from the three sizes.
func (g *geometry) fit() {
	g.tableBytes = (int64(g.clusters) + int64(g.slots) + tableEntries - 1) / tableEntries * blockBytes
	g.tableAt[0] = logAt + g.logBytes
	g.recordHead = recordHead
	g.tableAt[1] = g.tableAt[0] + g.tableBytes
	g.dataAt = (g.tableAt[1] + g.tableBytes + clusterBytes - 1) / clusterBytes * clusterBytes
	// A batch must hold the largest record: a large write with a head and a tail, 32 blocks, and
	// three blocks of header, one of them for the requests that it includes. Batches of a quarter of
	// a MiB and more gain nothing.
	g.batchBlocksMax = int(min(max(g.logBytes/blockBytes/16, 36), 256))
	g.batchHeadMax = int(min(max(g.logBytes/16/blockBytes, 4), 16)) * blockBytes
}

// batchBytesMax is the most that one batch takes in the log.
func (g *geometry) batchBytesMax() int64 {
	return int64(g.batchHeadMax) + int64(g.batchBlocksMax)*blockBytes
}

func (g *geometry) blockOff(cluster uint32, block int) int64 {
	return g.dataAt + int64(cluster)*clusterBytes + int64(block)*blockBytes
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// foldSeed is what makes a block's checksum its own: of the object and of the place in it. The sum
// at rest is the plain CRC32C of the bytes, as the wire has it, with this folded in; so a block
// that was written to, or read from, the wrong place does not verify.
func foldSeed(id stripe.ObjectID, block int64) uint32 {
	return foldBlock(objectSeed(id), block)
}

// objectSeed is what the seeds of all blocks of an object begin with, and foldBlock ends one: for
// those who have many blocks.
func objectSeed(id stripe.ObjectID) uint32 {
	return addWord(addWord(^uint32(0), id.File), uint64(id.Gen)|uint64(id.Stripe)<<32)
}

func foldBlock(seed uint32, block int64) uint32 { return ^addWord(seed, uint64(block)) }

// addWord continues a CRC32C with the eight bytes of v, lowest first. The library's function would
// make its argument escape: an allocation for every block.
func addWord(crc uint32, v uint64) uint32 {
	for range 8 {
		crc = castagnoli[byte(crc)^byte(v)] ^ crc>>8
		v >>= 8
	}
	return crc
}
