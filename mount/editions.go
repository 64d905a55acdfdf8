package mount

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// Where the kernel writes back by itself it believes nobody else about the length of a file that it
// keeps. So a file that somebody else has changed gets another inode in the kernel: it is given out
// under another node id, of the same inode number. Whoever is about to open the one before goes on
// with that, and is told to look again (ESTALE); nothing that the kernel has becomes an error, as
// it would if the same node had another generation.
//
// A node id is the number of the inode, and above it that of the edition:
//
//	| 0 | edition (20 bits) | inode (43 bits) |
//	| 1 | inode (63 bits)                     |   an inode beyond that: it has one edition
//
// The number of an edition is that of the version of the file with which it began: versions of data
// and truncations only grow, and so does their sum. So none comes back before a file has had a
// million versions, and a process that goes on with a mount knows by the number alone of a file
// that was not written since that the kernel has it right.
const (
	inodeBits      = 43
	outdatedNumber = 1<<20 - 1 // of attributes that are older than what is known: never opened
	loneNode       = 1 << 63
)

// nodeOf is the node id of an edition of a file.
func nodeOf(ino meta.Ino, number uint64) uint64 {
	if !hasEditions(ino) {
		return uint64(ino) | loneNode
	}
	return uint64(ino) | number<<inodeBits
}

func splitNode(node uint64) (ino meta.Ino, number uint64) {
	if node&loneNode != 0 {
		return meta.Ino(node &^ loneNode), 0
	}
	return meta.Ino(node & (1<<inodeBits - 1)), node >> inodeBits
}

// hasEditions tells whether there is room for the number of an edition. (A service that makes
// 32,000 files a second needs nine years to come to an inode that has none. The kernel gets no
// pages of such a file.)
func hasEditions(ino meta.Ino) bool { return ino>>inodeBits == 0 }

// numberOf is the number of an edition that begins with attributes.
func numberOf(a *meta.Attr) uint64 {
	if !hasEditions(a.Ino) {
		return 0
	}
	return (a.DataVersion + a.TruncSeq) % outdatedNumber
}

// edition is which of its inodes of a file the kernel is told of.
type edition struct {
	number uint64
	data   uint64 // versions of what its pages and its length show
	trunc  uint64
	doubt  bool // they may show less: with the last close it is over
}

func (e *edition) older(a *meta.Attr) bool { return a.DataVersion < e.data || a.TruncSeq < e.trunc }
func (e *edition) newer(a *meta.Attr) bool { return a.DataVersion > e.data || a.TruncSeq > e.trunc }

// editions are those of all files. A file that is open here keeps its edition.
type editions struct {
	mu    sync.Mutex
	young map[meta.Ino]edition
	old   map[meta.Ino]edition
	open  map[meta.Ino]int
}

// editionsMax bounds what is remembered in each half. A file that is forgotten may get another
// inode.
const editionsMax = 128 << 10

// of is the number for attributes that the kernel is told. telling: the service is being told of a
// change by this mount (client.FS.Telling). Then nobody knows yet whose a version is that is not
// known, and the kernel keeps what it has: whoever opens that finds out.
func (x *editions) of(a *meta.Attr, telling bool) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ofLocked(a, telling)
}

func (x *editions) ofLocked(a *meta.Attr, telling bool) uint64 {
	e, known := x.findLocked(a.Ino)
	switch {
	case !hasEditions(a.Ino):
		return 0
	case known && e.older(a):
		return outdatedNumber
	case known && (x.open[a.Ino] > 0 || telling || !e.doubt && !e.newer(a)):
	default:
		next := numberOf(a)
		if known && next == e.number {
			next = (next + 1) % outdatedNumber
		}
		e = edition{number: next, data: a.DataVersion, trunc: a.TruncSeq}
	}
	x.setLocked(a.Ino, e)
	return e.number
}

// number is the edition of a file that the kernel was told of last.
func (x *editions) number(ino meta.Ino) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, _ := x.findLocked(ino)
	return e.number
}

// stale tells whether what the kernel opens of a file, an edition, is not what it ought to have.
func (x *editions) stale(number uint64, a *meta.Attr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !hasEditions(a.Ino) {
		return false
	}
	e, known := x.findLocked(a.Ino)
	if !known {
		if number == numberOf(a) {
			x.setLocked(a.Ino, edition{number: number, data: a.DataVersion, trunc: a.TruncSeq})
		}
		return number != numberOf(a)
	}
	return number != e.number || x.open[a.Ino] == 0 && (e.doubt || e.newer(a))
}

// begins has a file go on with an edition of which the kernel knows just what the attributes say.
// false: the file is open as another one.
func (x *editions) begins(number uint64, a *meta.Attr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !hasEditions(a.Ino) {
		return true
	}
	e, known := x.findLocked(a.Ino)
	if number == outdatedNumber || known && x.open[a.Ino] > 0 && number != e.number {
		return false
	}
	x.setLocked(a.Ino, edition{number: number, data: a.DataVersion, trunc: a.TruncSeq})
	return true
}

// changed notes that a change of this mount's own has made a version of the one before it, which
// the kernel's pages show.
func (x *editions) changed(a *meta.Attr) { x.follow(a, 0) }

// cut is changed for a truncation.
func (x *editions) cut(a *meta.Attr) { x.follow(a, 1) }

func (x *editions) follow(a *meta.Attr, cuts uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.findLocked(a.Ino)
	if known && e.data+1 == a.DataVersion && e.trunc+cuts == a.TruncSeq {
		e.data, e.trunc = a.DataVersion, a.TruncSeq
		x.setLocked(a.Ino, e)
	}
}

// opened notes that an edition of a file is open once more. sure: it is the one that the kernel
// ought to have.
func (x *editions) opened(number uint64, a *meta.Attr, sure bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.findLocked(a.Ino)
	switch {
	case !known || !sure && x.open[a.Ino] == 0:
		x.setLocked(a.Ino, edition{number: number, data: a.DataVersion, trunc: a.TruncSeq, doubt: !sure})
	case !sure && number != e.number && !e.doubt:
		e.doubt = true // what is changed through this one the pages of the other do not show
		x.setLocked(a.Ino, e)
	}
	x.openLocked(a.Ino)
}

// doubtful tells whether the pages of an edition, which is open and therefore kept, may be behind.
func (x *editions) doubtful(number uint64, ino meta.Ino) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.findLocked(ino)
	return known && e.doubt && e.number == number && x.open[ino] > 0
}

func (x *editions) openLocked(ino meta.Ino) {
	if x.open == nil {
		x.open = map[meta.Ino]int{}
	}
	x.open[ino]++
}

// closed notes that it is open once less.
func (x *editions) closed(ino meta.Ino) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open[ino]--; x.open[ino] == 0 {
		delete(x.open, ino)
	}
}

func (x *editions) findLocked(ino meta.Ino) (edition, bool) {
	e, known := x.young[ino]
	if !known {
		e, known = x.old[ino]
	}
	return e, known
}

func (x *editions) setLocked(ino meta.Ino, e edition) {
	if x.young == nil || len(x.young) >= editionsMax {
		next := make(map[meta.Ino]edition)
		for open := range x.open { // those must keep theirs
			if was, known := x.findLocked(open); known {
				next[open] = was
			}
		}
		x.old, x.young = x.young, next
	}
	x.young[ino] = e
}

// tellingMax is how long an open waits to hear who has changed a file. Where it takes longer the
// kernel is told to look again, which is never wrong.
const tellingMax = time.Second

// stale tells whether a node that the kernel opens is not the one that it ought to have.
func (b *bridge) stale(ctx context.Context, node uint64, a *meta.Attr) bool {
	_, number := splitNode(node)
	if !b.writesBack() || !b.editions.stale(number, a) {
		return false
	}
	if !b.fs.Telling(a.Ino) {
		return b.editions.stale(number, a) // it may have ended between
	}
	ctx, cancel := context.WithTimeout(ctx, tellingMax)
	defer cancel()
	b.fs.AwaitTelling(ctx, a.Ino)
	return b.editions.stale(number, a)
}

// emptiesAnother tells whether the kernel has to look again for a file that a thread opens to empty
// it, because it is open as another edition. (What an open has emptied the kernel has right.)
func (b *bridge) emptiesAnother(own *file, a *meta.Attr, pid uint32) bool {
	if !b.writesBack() || a.Size == 0 && b.editions.begins(own.edition, a) {
		return false
	}
	if a.Size != 0 { // somebody has written to it since
		own.unsure = true
		return false
	}
	own.unsure = pid == 0 || b.again.repeats(pid)
	own.direct = own.direct || own.unsure
	return !own.unsure
}

// chooseEdition says which of its inodes the kernel gets for a file that it opens without having
// looked it up.
func (b *bridge) chooseEdition(own *file, a *meta.Attr) {
	if !b.writesBack() {
		return
	}
	own.edition = b.editions.of(a, b.fs.Telling(a.Ino))
	if own.edition == outdatedNumber {
		own.edition, own.direct, own.unsure = b.editions.number(a.Ino), true, true
	}
}

// revives goes on with a node that the kernel has forgotten and asks for by a handle. false: the
// file is open as another one.
func (b *bridge) revives(node uint64, a *meta.Attr) bool {
	_, number := splitNode(node)
	return !b.writesBack() || a.Type != meta.Regular || b.editions.begins(number, a)
}
