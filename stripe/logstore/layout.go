package logstore

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// A member is one device, cut once and for all when it is made:
//
//	0         4K        8K          64K       192K      320K    320K+log
//	|super A  |super B  |reserved   |sessions |sessions |log    |table A |table B |pad |data ...
//	|         |         |           |A        |B        |       |        |        |64K |
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
	logAt         = sessionsAt + 2*sessionsBytes

	superMagic    = 0x45524f5453474f4c // "LOGSTORE" as it stands on the disk
	formatVersion = 1
	superBytes    = 256 // of its block; the rest is zero
	superClean    = 1   // flags
	superUnsummed = 2

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
	g.tableAt[1] = g.tableAt[0] + g.tableBytes
	g.dataAt = (g.tableAt[1] + g.tableBytes + clusterBytes - 1) / clusterBytes * clusterBytes
	// A batch must hold the largest record: a large write with a head and a tail, 32 blocks, and two
	// blocks of header. Batches of a quarter of a MiB and more gain nothing.
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

// super is what a member says of itself, and where its log begins. The two copies are written in
// turn; the valid one with the higher sequence counts.
//
//	0      8       12    16         24        40           44      48          56         64
//	|magic |format |crc  |sequence  |store id |member ix   |members|server id  |log bytes |
//	64        68      72       80        84       88            96          104
//	|clusters |slots  |tail    |chain    |flags   |next record  |boot id    |
//	104           108         112            116             120           124
//	|cluster high |slot high  |sessions crc  |sessions count |lost entries |
type super struct {
	seq         uint64
	storeID     [16]byte
	index       uint32 // of the member
	members     uint32
	serverID    uint64
	logBytes    int64
	clusters    uint32
	slots       uint32
	tail        uint64 // log position from which a restart reads
	chain       uint32 // checksum that the first batch there must name
	clean       bool   // nothing was open when this was written
	unsummed    bool   // checksums are left out, see Options.Unsummed
	record      uint64 // number of the next record
	clusterHigh uint32 // entries of the table that may be in use
	slotHigh    uint32
	sessionsCRC uint32
	sessions    uint32 // how many; the area is that of this super's copy
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s *super) encode(b []byte) {
	clear(b[:blockBytes])
	le := binary.LittleEndian
	le.PutUint64(b, superMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint64(b[16:], s.seq)
	copy(b[24:], s.storeID[:])
	le.PutUint32(b[40:], s.index)
	le.PutUint32(b[44:], s.members)
	le.PutUint64(b[48:], s.serverID)
	le.PutUint64(b[56:], uint64(s.logBytes))
	le.PutUint32(b[64:], s.clusters)
	le.PutUint32(b[68:], s.slots)
	le.PutUint64(b[72:], s.tail)
	le.PutUint32(b[80:], s.chain)
	if s.clean {
		b[84] |= superClean
	}
	if s.unsummed {
		b[84] |= superUnsummed
	}
	le.PutUint64(b[88:], s.record)
	le.PutUint32(b[104:], s.clusterHigh)
	le.PutUint32(b[108:], s.slotHigh)
	le.PutUint32(b[112:], s.sessionsCRC)
	le.PutUint32(b[116:], s.sessions)
	le.PutUint32(b[12:], superCRC(b))
}

// superCRC covers the block but for the checksum itself.
func superCRC(b []byte) uint32 {
	crc := crc32.Update(0, castagnoli, b[:12])
	return crc32.Update(crc, castagnoli, b[16:superBytes])
}

// decodeSuper checks the format before the checksum: a newer format may compute it differently.
func decodeSuper(b []byte) (*super, error) {
	le := binary.LittleEndian
	if le.Uint64(b) != superMagic {
		return nil, errs.Newf(errs.Corrupt, "", "", "not a member of a store")
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return nil, errs.Newf(errs.Version, "", "",
			"format %d is not this build's %d: use a build that knows it", v, formatVersion)
	}
	if le.Uint32(b[12:]) != superCRC(b) {
		return nil, errs.Newf(errs.Corrupt, "", "", "the superblock does not verify")
	}
	s := &super{
		seq: le.Uint64(b[16:]), index: le.Uint32(b[40:]), members: le.Uint32(b[44:]),
		serverID: le.Uint64(b[48:]), logBytes: int64(le.Uint64(b[56:])),
		clusters: le.Uint32(b[64:]), slots: le.Uint32(b[68:]), tail: le.Uint64(b[72:]),
		chain: le.Uint32(b[80:]), clean: b[84]&superClean != 0, record: le.Uint64(b[88:]),
		clusterHigh: le.Uint32(b[104:]), slotHigh: le.Uint32(b[108:]),
		sessionsCRC: le.Uint32(b[112:]), sessions: le.Uint32(b[116:]),
		unsummed: b[84]&superUnsummed != 0,
	}
	copy(s.storeID[:], b[24:])
	return s, s.validate()
}

// validate refuses numbers that no build has written, so that nobody computes with them.
func (s *super) validate() error {
	ok := s.members > 0 && s.index < s.members && s.members <= MembersMax &&
		s.logBytes >= logBytesMin && s.logBytes%clusterBytes == 0 && s.logBytes < 1<<40 &&
		s.clusters > 0 && s.clusters < clustersMax && s.slots > 0 && s.slots < clustersMax &&
		s.clusterHigh <= s.clusters && s.slotHigh <= s.slots && s.tail%blockBytes == 0 &&
		s.sessions <= sessionsMax
	if !ok {
		return errs.Newf(errs.Corrupt, "", "", "the superblock makes no sense: %+v", *s)
	}
	return nil
}

func (s *super) geometry() geometry {
	g := geometry{logBytes: s.logBytes, clusters: s.clusters, slots: s.slots}
	g.fit()
	return g
}

// foldSeed is what makes a block's checksum its own: of the object and of the place in it. The sum
// at rest is the plain CRC32C of the bytes, as the wire has it, with this folded in; so a block
// that was written to, or read from, the wrong place does not verify.
func foldSeed(id stripe.ObjectID, block int64) uint32 {
	crc := addWord(^uint32(0), id.File)
	crc = addWord(crc, uint64(id.Gen)|uint64(id.Stripe)<<32)
	return ^addWord(crc, uint64(block))
}

// addWord continues a CRC32C with the eight bytes of v, lowest first. The library's function would
// make its argument escape: an allocation for every block.
func addWord(crc uint32, v uint64) uint32 {
	for range 8 {
		crc = castagnoli[byte(crc)^byte(v)] ^ crc>>8
		v >>= 8
	}
	return crc
}

// sum is the checksum at rest of one block.
func sum(id stripe.ObjectID, block int64, data []byte) uint32 {
	return crc32.Checksum(data, castagnoli) ^ foldSeed(id, block)
}
