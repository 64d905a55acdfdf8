package logstore

import (
	"fmt"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/device"
)

// table is the index on the device, by pages. The member's lock guards it.
//
// Pages in use live in memory up to a bound. A page that a change needs is loaded before the
// member's lock is taken (prefault); where it was pushed out again in between, it is loaded under
// the lock, which is rare and right. Dirty pages stay until a checkpoint has written them.
type table struct {
	dev   device.Device
	g     *geometry
	max   int // pages to keep; more when they are dirty
	pages map[uint32]*page
	clock []uint32 // numbers of pages in the order of their coming
	dirty map[uint32]*page

	repaired uint64 // entries that only the second copy had
	lost     uint64 // entries that neither copy had: what they held gives errors, not zeroes
	failed   error  // a page could not be read: the member stops
}

type page struct {
	number uint32
	used   bool // since the clock's hand came by last
	dirty  bool
	leaves bool // copied by a checkpoint that has not written it yet
	buf    []byte
}

func newTable(dev device.Device, g *geometry, pagesMax int) *table {
	return &table{dev: dev, g: g, max: pagesMax, pages: map[uint32]*page{},
		dirty: map[uint32]*page{}}
}

// clusterEntry and slotEntry give entries for reading.
func (t *table) clusterEntry(c uint32) entry { return t.entry(int64(c)) }
func (t *table) slotEntry(s uint32) entry    { return t.entry(int64(t.g.clusters) + int64(s)) }

// changeCluster and changeSlot give entries for changing.
func (t *table) changeCluster(c uint32) entry { return t.change(int64(c)) }
func (t *table) changeSlot(s uint32) entry    { return t.change(int64(t.g.clusters) + int64(s)) }

func (t *table) entry(index int64) entry {
	p := t.page(uint32(index / tableEntries))
	at := index % tableEntries * entryBytes
	return entry(p.buf[at : at+entryBytes])
}

func (t *table) change(index int64) entry {
	p := t.page(uint32(index / tableEntries))
	if !p.dirty {
		p.dirty = true
		t.dirty[p.number] = p
	}
	at := index % tableEntries * entryBytes
	return entry(p.buf[at : at+entryBytes])
}

func (t *table) page(number uint32) *page {
	p := t.pages[number]
	if p == nil {
		p = &page{number: number, buf: make([]byte, blockBytes)}
		repaired, lost, err := loadPage(t.dev, t.g, p)
		if err != nil && t.failed == nil {
			t.failed = err
		}
		t.noteLoad(repaired, lost)
		t.insert(p)
	}
	p.used = true
	return p
}

func (t *table) noteLoad(repaired, lost uint64) {
	t.repaired += repaired
	t.lost += lost
}

// insert makes a page resident and pushes out others when there are too many.
func (t *table) insert(p *page) {
	t.pages[p.number] = p
	t.clock = append(t.clock, p.number)
	for looked := 0; len(t.pages) > t.max && looked < 2*len(t.clock); looked++ {
		number := t.clock[0]
		t.clock = t.clock[1:]
		old := t.pages[number]
		if old.used || old.dirty || old.leaves || old == p {
			old.used = false
			t.clock = append(t.clock, number)
			continue
		}
		delete(t.pages, number)
	}
}

// loadPage reads a page: the first copy, and the second for entries that do not verify there.
func loadPage(dev device.Device, g *geometry, p *page) (repaired, lost uint64, err error) {
	op := device.Op{Kind: device.Read, Off: g.tableAt[0] + int64(p.number)*blockBytes,
		Bufs: [][]byte{p.buf}}
	first := device.One(dev, &op)
	if first == nil && pageValid(p) {
		return 0, 0, nil
	}
	second := make([]byte, blockBytes)
	op = device.Op{Kind: device.Read, Off: g.tableAt[1] + int64(p.number)*blockBytes,
		Bufs: [][]byte{second}}
	if err := device.One(dev, &op); err != nil {
		if first != nil {
			return 0, 0, errs.Wrap("logstore.index", fmt.Sprint("page ", p.number), first)
		}
		clear(second)
		second[0] = 0xff // verifies nothing
	}
	repaired, lost = mergePage(p, second, first != nil)
	return repaired, lost, nil
}

func pageValid(p *page) bool {
	for i := range tableEntries {
		if !entry(p.buf[i*entryBytes : (i+1)*entryBytes]).valid(p.index(i)) {
			return false
		}
	}
	return true
}

func (p *page) index(i int) int64 { return int64(p.number)*tableEntries + int64(i) }

// mergePage takes each entry from the copy that has it.
func mergePage(p *page, second []byte, all bool) (repaired, lost uint64) {
	for i := range tableEntries {
		at := i * entryBytes
		mine, other := entry(p.buf[at:at+entryBytes]), entry(second[at:at+entryBytes])
		switch {
		case !all && mine.valid(p.index(i)):
		case other.valid(p.index(i)):
			copy(mine, other)
			repaired++
		default:
			clear(mine)
			mine[0] = typeLost
			lost++
		}
	}
	return repaired, lost
}

// dirtyNumbers lists the dirty pages in order.
func (t *table) dirtyNumbers() []uint32 {
	list := make([]uint32, 0, len(t.dirty))
	for number := range t.dirty {
		list = append(list, number)
	}
	slices.Sort(list)
	return list
}

// copyOut moves copies of the pages into dst, sealed, and marks the pages clean. What changes them
// later makes them dirty again.
func (t *table) copyOut(dst []byte, numbers []uint32) []byte {
	for k, number := range numbers {
		p := t.pages[number]
		copied := page{number: number, buf: dst[k*blockBytes : (k+1)*blockBytes]}
		copy(copied.buf, p.buf)
		for i := range tableEntries {
			entry(copied.buf[i*entryBytes : (i+1)*entryBytes]).seal(copied.index(i))
		}
		p.dirty, p.leaves = false, true
		delete(t.dirty, number)
	}
	return dst[:len(numbers)*blockBytes]
}

// written says that copies of the pages are stable in both places.
func (t *table) written(numbers []uint32) {
	for _, n := range numbers {
		t.pages[n].leaves = false
	}
}
