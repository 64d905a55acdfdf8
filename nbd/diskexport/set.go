package diskexport

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
)

// The bounds of a set. A member's data begins behind a mebibyte, so that it keeps the alignment of
// any disk.
const (
	membersMax  = 64
	unitMax     = 64 << 20
	blockBytes  = 4096
	dataFrom    = 1 << 20
	superBytes  = 64
	superMagic  = "sluiceR0"
	superFormat = 1
)

func unitFits(n int64) bool { return n >= blockBytes && n <= unitMax && n%blockBytes == 0 }

// super is what stands at the beginning of each member of a set. Little-endian:
//
//	 0          8         12      16      20    24       40     48      56      60   64
//	+----------+---------+-------+-------+-----+--------+------+-------+-------+----+
//	| sluiceR0 | format  | count | index | 0   | set id | unit | bytes | CRC   | 0  |
//	+----------+---------+-------+-------+-----+--------+------+-------+-------+----+
//
// The set id, 16 random bytes, is what makes members belong together; index is the member's place.
// bytes is how much data each member holds, from dataFrom on. CRC is the CRC-32C of the first 56.
type super struct {
	count, index uint32
	set          [16]byte
	unit, bytes  int64
}

func (s *super) encode() []byte {
	p := make([]byte, superBytes)
	copy(p, superMagic)
	le := binary.LittleEndian
	le.PutUint32(p[8:], superFormat)
	le.PutUint32(p[12:], s.count)
	le.PutUint32(p[16:], s.index)
	copy(p[24:], s.set[:])
	le.PutUint64(p[40:], uint64(s.unit))
	le.PutUint64(p[48:], uint64(s.bytes))
	le.PutUint32(p[56:], crc32c.Sum(p[:56]))
	return p
}

// decodeSuper reads a superblock; errs.Corrupt for what is none.
func decodeSuper(p []byte) (s super, err error) {
	const op = "diskexport.superblock"
	if len(p) < superBytes || string(p[:8]) != superMagic {
		return s, errs.Newf(errs.Corrupt, op, "", "not a member of a set: it has no superblock")
	}
	le := binary.LittleEndian
	if crc32c.Sum(p[:56]) != le.Uint32(p[56:]) {
		return s, errs.Newf(errs.Corrupt, op, "", "the superblock is damaged")
	}
	if v := le.Uint32(p[8:]); v != superFormat {
		return s, errs.Newf(errs.Unsupported, op, "", "a set of format %d", v)
	}
	s = super{count: le.Uint32(p[12:]), index: le.Uint32(p[16:]), unit: int64(le.Uint64(p[40:])),
		bytes: int64(le.Uint64(p[48:]))}
	copy(s.set[:], p[24:])
	if s.count < 2 || s.count > membersMax || s.index >= s.count || !unitFits(s.unit) ||
		s.bytes < s.unit || s.bytes%s.unit != 0 || s.bytes > 1<<56 {
		return super{}, errs.Newf(errs.Corrupt, op, "", "the superblock says what cannot be")
	}
	return s, nil
}

// geometry says where bytes are. A disk of one member is a set whose unit is all of it.
type geometry struct {
	members int
	unit    int64
	from    int64 // where a member's data begins
	size    int64 // of the whole
}

// place returns the member that holds the byte at off, where there, and how many bytes from there
// on it holds together.
func (g *geometry) place(off int64) (member int, at, run int64) {
	if g.members == 1 {
		return 0, g.from + off, g.size - off
	}
	stripe, in := off/g.unit, off%g.unit
	return int(stripe % int64(g.members)), g.from + stripe/int64(g.members)*g.unit + in,
		g.unit - in
}

// where is the reverse of place.
func (g *geometry) where(member int, at int64) int64 {
	at -= g.from
	if g.members == 1 {
		return at
	}
	return (at/g.unit*int64(g.members)+int64(member))*g.unit + at%g.unit
}

// span is what a member holds of a range, in bytes of the member: whatever lies between the first
// and the last stripe of the range is one run there.
type span struct{ from, to int64 }

// span finds what a member holds of a range that is not empty.
func (g *geometry) span(member int, off, length int64) (s span, ok bool) {
	if g.members == 1 {
		return span{g.from + off, g.from + off + length}, true
	}
	n, m, end := int64(g.members), int64(member), off+length-1
	first, last := off/g.unit, end/g.unit
	mine := first + ((m-first)%n+n)%n
	final := last - ((last-m)%n+n)%n
	if mine > final {
		return span{}, false
	}
	_, s.from, _ = g.place(max(off, mine*g.unit))
	_, s.to, _ = g.place(min(end, (final+1)*g.unit-1))
	s.to++
	return s, true
}

// geometryOf finds out what the members are: they are open, and measured.
func geometryOf(s *Spec, parts []*part) (geometry, error) {
	if len(parts) == 1 {
		return geometry{members: 1, unit: max(parts[0].size, 1), size: parts[0].size}, nil
	}
	if s.Unit != 0 {
		least := parts[0].size
		for _, p := range parts {
			least = min(least, p.size)
		}
		least = least / s.Unit * s.Unit
		if least == 0 {
			return geometry{}, errs.Newf(errs.Invalid, "diskexport.Open", s.name(),
				"a member is smaller than the stripe unit")
		}
		return geometry{len(parts), s.Unit, 0, least * int64(len(parts))}, nil
	}
	if s.Init != 0 {
		if err := initSet(s, parts); err != nil {
			return geometry{}, err
		}
	}
	return readSet(s, parts)
}

func (s *Spec) name() string { return strings.Join(s.Paths, ":") }

// readSet reads the superblocks, and refuses members that do not belong together or stand in
// another order.
func readSet(s *Spec, parts []*part) (geometry, error) {
	const op = "diskexport.Open"
	supers := make([]super, len(parts))
	for i, p := range parts {
		buf := make([]byte, superBytes)
		if _, err := p.file.ReadAt(buf, 0); err != nil {
			return geometry{}, errs.Newf(errs.Corrupt, op, p.path, "not a member of a set: %w", err)
		}
		var err error
		if supers[i], err = decodeSuper(buf); err != nil {
			return geometry{}, errs.Wrap(op, p.path, err)
		}
	}
	first := supers[0]
	order := make([]string, len(parts))
	for i, u := range supers {
		switch {
		case u.set != first.set:
			return geometry{}, errs.Newf(errs.Invalid, op, parts[i].path,
				"member of another set (%x) than %s (%x)", u.set[:4], parts[0].path, first.set[:4])
		case u.count != first.count || u.unit != first.unit || u.bytes != first.bytes:
			return geometry{}, errs.Newf(errs.Corrupt, op, parts[i].path,
				"its superblock contradicts that of %s", parts[0].path)
		case int(u.count) != len(parts):
			return geometry{}, errs.Newf(errs.Invalid, op, s.name(),
				"the set has %d members, %d are given", u.count, len(parts))
		case order[u.index] != "":
			return geometry{}, errs.Newf(errs.Invalid, op, parts[i].path,
				"the same member as %s", order[u.index])
		case parts[i].size < dataFrom+u.bytes:
			return geometry{}, errs.Newf(errs.Corrupt, op, parts[i].path,
				"it has shrunk to %d bytes; its share of the set is %d", parts[i].size,
				dataFrom+u.bytes)
		}
		order[u.index] = parts[i].path
	}
	if strings.Join(order, ":") != s.name() {
		return geometry{}, errs.Newf(errs.Invalid, op, s.name(),
			"the members stand in another order: members=%s", strings.Join(order, ":"))
	}
	return geometry{len(parts), first.unit, dataFrom, first.bytes * int64(len(parts))}, nil
}

// initSet makes members a set, unless they are one. All of them must be blank.
func initSet(s *Spec, parts []*part) error {
	const op = "diskexport.Init"
	blank, room := 0, parts[0].size
	for _, p := range parts {
		ok, err := isBlank(p.file)
		if err != nil {
			return errs.Wrap(op, p.path, err)
		}
		if ok {
			blank++
		}
		room = min(room, p.size)
	}
	if blank == 0 {
		return nil // readSet tells what they are
	}
	if blank < len(parts) {
		return errs.Newf(errs.Exists, op, s.name(),
			"%d of %d members are blank, the others are not: nothing was written", blank, len(parts))
	}
	u := super{count: uint32(len(parts)), unit: s.Init, bytes: (room - dataFrom) / s.Init * s.Init}
	if u.bytes < s.Init {
		return errs.Newf(errs.Invalid, op, s.name(), "a member of %d bytes is too small", room)
	}
	_, _ = rand.Read(u.set[:]) // never fails
	for i, p := range parts {
		u.index = uint32(i)
		if _, err := p.file.WriteAt(u.encode(), 0); err != nil {
			return errs.Wrap(op, p.path, err)
		}
		if err := p.file.Sync(); err != nil {
			return errs.Wrap(op, p.path, err)
		}
	}
	return nil
}

// isBlank tells whether the first mebibyte is all zero.
func isBlank(f *os.File) (bool, error) {
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < dataFrom; off += int64(len(buf)) {
		if _, err := f.ReadAt(buf, off); err != nil {
			return false, fmt.Errorf("too small for a member: %w", err)
		}
		if !bytes.Equal(buf, zero) {
			return false, nil
		}
	}
	return true, nil
}
