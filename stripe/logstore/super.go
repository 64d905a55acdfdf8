package logstore

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

const (
	superMagic    = 0x45524f5453474f4c // "LOGSTORE" as it stands on the disk
	superBytes    = 256                // of its block; the rest is zero
	superClean    = 1                  // flags
	superUnsummed = 2

	unitMax = 64 << 20

	// formatVersion is written. Older ones are read too. The records of 1 name no further requests,
	// and its units of members are of 1 MiB; the records of 1 and 2 have no lives.
	formatVersion = 3
)

// super is what a member says of itself, and where its log begins. There are two copies, written
// one after the other; the valid one with the higher sequence counts. Either alone is enough: a
// checkpoint is over when both are there.
//
// Magic, format, crc and what it covers are the same in every format, so that a damaged copy is not
// taken for one of another format.
//
//	0      8       12    16         24        40           44      48          56         64
//	|magic |format |crc  |sequence  |store id |member ix   |members|server id  |log bytes |
//	64        68      72       80        84       88            96          104
//	|clusters |slots  |tail    |chain    |flags   |next record  |boot id    |
//	104           108         112            116             120           124         128
//	|cluster high |slot high  |sessions crc  |sessions count |lost entries |unit bytes |
//	128       136
//	|openings |
//
// (Unit bytes is 0 in format 1, where units are of 1 MiB. Openings, of the store, not of this
// member, is 0 in the formats before 3: they begin again, and objects have no lives from before.)
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
	unit        uint32 // bytes of an object that lie together on a member
	format      uint32
	openings    uint64 // the high bits of lives, see stripe.LifeBits
	sessions    uint32 // how many; they are in the two areas of this sequence, see sessionsOff

	copy int   // where it was found
	bad  error // what is wrong with the other copy, if it is damaged
}

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
	le.PutUint32(b[124:], s.unit)
	le.PutUint64(b[128:], s.openings)
	le.PutUint32(b[12:], superCRC(b))
}

// superCRC covers the block but for the checksum itself.
func superCRC(b []byte) uint32 {
	crc := crc32c.Update(0, b[:12])
	return crc32c.Update(crc, b[16:superBytes])
}

func decodeSuper(b []byte) (*super, error) {
	le := binary.LittleEndian
	if le.Uint64(b) != superMagic {
		return nil, errs.Newf(errs.Corrupt, "", "", "not a member of a store: make one with sluice "+
			"store init, or name another path")
	}
	if le.Uint32(b[12:]) != superCRC(b) {
		return nil, errs.Newf(errs.Corrupt, "", "", "the superblock does not verify: restore the "+
			"store from a copy")
	}
	if v := le.Uint32(b[8:]); v == 0 || v > formatVersion {
		return nil, errs.Newf(errs.Version, "", "",
			"format %d is not this build's %d: use a build that knows it", v, formatVersion)
	}
	s := &super{
		format: le.Uint32(b[8:]), openings: le.Uint64(b[128:]),
		seq: le.Uint64(b[16:]), index: le.Uint32(b[40:]), members: le.Uint32(b[44:]),
		serverID: le.Uint64(b[48:]), logBytes: int64(le.Uint64(b[56:])),
		clusters: le.Uint32(b[64:]), slots: le.Uint32(b[68:]), tail: le.Uint64(b[72:]),
		chain: le.Uint32(b[80:]), clean: b[84]&superClean != 0, record: le.Uint64(b[88:]),
		clusterHigh: le.Uint32(b[104:]), slotHigh: le.Uint32(b[108:]),
		sessionsCRC: le.Uint32(b[112:]), sessions: le.Uint32(b[116:]),
		unsummed: b[84]&superUnsummed != 0,
	}
	if s.unit = le.Uint32(b[124:]); s.unit == 0 {
		s.unit = unitFirst
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
		s.tail < 1<<62 && s.record < 1<<62 && s.sessions <= sessionsMax &&
		s.unit <= unitMax && s.unit%clusterBytes == 0 && s.openings < 1<<(64-stripe.LifeBits)-1
	if !ok {
		return errs.Newf(errs.Corrupt, "", "", "the superblock makes no sense: %+v", *s)
	}
	return nil
}

func (s *super) geometry() geometry {
	g := geometry{logBytes: s.logBytes, clusters: s.clusters, slots: s.slots}
	g.fit()
	if s.format < 3 {
		g.recordHead = recordHead2
	}
	return g
}

// readSuper finds the superblock that counts.
func readSuper(dev device.Device) (*super, error) {
	const op = "logstore.Open"
	var best *super
	var bad error
	b := alignedBytes(blockBytes)
	for i := range 2 {
		read := device.Op{Kind: device.Read, Off: int64(i) * blockBytes, Bufs: [][]byte{b}}
		err := device.One(dev, &read)
		var s *super
		if err == nil {
			s, err = decodeSuper(b)
		}
		switch {
		case errs.KindOf(err) == errs.Version: // whatever the other says: somebody is ahead of us
			return nil, errs.Wrap(op, dev.Name(), err)
		case err != nil && bad == nil:
			bad = err
		case err == nil && (best == nil || s.seq > best.seq):
			best = s
			best.copy = i
		}
	}
	if best == nil {
		return nil, errs.Wrap(op, dev.Name(), bad)
	}
	best.bad = bad
	g := best.geometry()
	if end := g.blockOff(g.clusters, 0); end > dev.Size() {
		return nil, errs.Newf(errs.Corrupt, op, dev.Name(), "the device has %d bytes, the store "+
			"needs %d: it was cut short, restore it from a copy", dev.Size(), end)
	}
	return best, nil
}

// writeSuper makes the checkpoint count: the copy that is not the present one first.
func (m *member) writeSuper(tail uint64, chain uint32, record uint64, clean bool) error {
	m.mu.Lock()
	s := m.super
	s.seq++
	s.tail, s.chain, s.record, s.clean = tail, chain, record, clean
	s.clusterHigh, s.slotHigh = m.alloc.high, m.slots.high
	if m.opt.life != nil {
		s.openings = max(s.openings, m.opt.life.Load()>>stripe.LifeBits)
	}
	m.mu.Unlock()
	if err := m.writeSessions(&s); err != nil {
		return err
	}
	s.encode(m.superBuf)
	for _, i := range [2]int{1 - s.copy, s.copy} {
		if err := m.writeStable(int64(i)*blockBytes, m.superBuf); err != nil {
			return err
		}
	}
	s.bad = nil
	m.mu.Lock()
	m.super = s
	m.mu.Unlock()
	return nil
}
