package shm

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// The segment of a connection, made by the dialler. Side 0 is the dialler, side 1 the listener.
// Each side writes its own parts only, except that the other side clears sleep and counts the users
// of a slot. Numbers are in the host's byte order.
//
//	0         1024  4096      6144      8192                                          end
//	|words|words|...|refused|refused|slots of 0 |slots of 1 |pad |ring of 0 |ring of 1 |
//	 of 0  of 1      by 0    by 1    64 each     64 each     page
//
//	words of a side: 0     128   256   384
//	                 |head |done |sleep|bye  |    u64, u64, u32, u32
//
//	head   bytes that it has taken out of the other side's ring
//	done   Writes of the other side that it has carried out or refused, in all
//	sleep  0: awake; else the events that wake it, and how
//	bye    0, or the errs.Kind with which this side ends the connection
//
// Each word has cache lines of its own, so that a write to one does not slow down polling another.
//
// refused has one bit for each Write by its number modulo 16384, set before done passes it. slots
// are drawn in slot.go, what is in the rings in frame.go.

const (
	wordsBytes   = 512
	refusedAt    = 4096
	refusedBytes = maxQueueDepth / 8
	slotsAt      = refusedAt + 2*refusedBytes
	slotBytes    = 64
	pageBytes    = 4096 // of the format, whatever the host's are
)

// geometry says how a segment is divided.
type geometry struct {
	ring    uint32
	slots   [2]uint32
	borrows bool // the dialler takes memory that is lent
}

func (g geometry) ringsAt() int {
	end := slotsAt + slotBytes*int(g.slots[0]+g.slots[1])
	return (end + pageBytes - 1) / pageBytes * pageBytes
}

// size is that of the whole segment: a multiple of 64 KiB, so that hosts may have pages of up to
// that.
func (g geometry) size() int {
	const page = 64 << 10
	return (g.ringsAt() + 2*int(g.ring) + page - 1) / page * page
}

// geometryBytes is the length of a geometry in a hello: ring u32, slots u32, u32, flags u32, of
// which bit 0 says that the dialler borrows.
const geometryBytes = 16

func (g geometry) encode(b []byte) {
	binary.BigEndian.PutUint32(b[0:], g.ring)
	binary.BigEndian.PutUint32(b[4:], g.slots[0])
	binary.BigEndian.PutUint32(b[8:], g.slots[1])
	binary.BigEndian.PutUint32(b[12:], uint32(bit(g.borrows)))
}

func decodeGeometry(b []byte) (geometry, error) {
	g := geometry{ring: binary.BigEndian.Uint32(b[0:])}
	g.slots[0] = binary.BigEndian.Uint32(b[4:])
	g.slots[1] = binary.BigEndian.Uint32(b[8:])
	flags := binary.BigEndian.Uint32(b[12:])
	g.borrows = flags&1 != 0
	why := ""
	switch {
	case g.ring < ringMin || g.ring > ringMax || g.ring&(g.ring-1) != 0:
		why = "no such ring"
	case g.slots[0] > grantsMax || g.slots[1] > grantsMax:
		why = "too many grants"
	case flags > 1:
		why = "unknown flags"
	}
	if why != "" {
		return g, errs.Newf(errs.Protocol, "shm", "hello", "%s", why)
	}
	return g, nil
}

// words of one side.
type words struct {
	head  atomic.Uint64
	_     [120]byte
	done  atomic.Uint64
	_     [120]byte
	sleep atomic.Uint32
	_     [124]byte
	bye   atomic.Uint32
	_     [124]byte
}

// bitmap is the refused bits of one side.
type bitmap [maxQueueDepth / 64]atomic.Uint64

func (b *bitmap) get(n uint64) bool {
	return b[n/64%(maxQueueDepth/64)].Load()>>(n%64)&1 != 0
}

// set sets the bit of a number. Only the owner of the bitmap does.
func (b *bitmap) set(n uint64, on bool) {
	w := &b[n/64%(maxQueueDepth/64)]
	old := w.Load()
	next := old&^(1<<(n%64)) | bit(on)<<(n%64)
	if next != old {
		w.Store(next)
	}
}

func bit(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}

// view is a mapped segment as one side sees it.
type view struct {
	mem             []byte
	mine, theirs    *words
	refused         *bitmap // by this side
	refusals        *bitmap // by the other side
	grants, targets []slot  // of this side, of the other side
	out, in         []byte  // rings
}

// newView divides a mapped segment. side is this one's.
func newView(mem []byte, g geometry, side int) *view {
	v := &view{mem: mem}
	other := 1 - side
	v.mine, v.theirs = wordsOf(mem[side*wordsBytes:]), wordsOf(mem[other*wordsBytes:])
	v.refused = bitmapOf(mem[refusedAt+side*refusedBytes:])
	v.refusals = bitmapOf(mem[refusedAt+other*refusedBytes:])
	first := slotsOf(mem[slotsAt:], int(g.slots[0]))
	second := slotsOf(mem[slotsAt+slotBytes*int(g.slots[0]):], int(g.slots[1]))
	size := int(g.ring)
	at := g.ringsAt()
	rings := [2][]byte{mem[at : at+size : at+size], mem[at+size : at+2*size : at+2*size]}
	v.out, v.in = rings[side], rings[other]
	v.grants, v.targets = first, second
	if side == 1 {
		v.grants, v.targets = second, first
	}
	return v
}

func (v *view) unmap() error { return unix.Munmap(v.mem) }
