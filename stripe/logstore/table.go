package logstore

import (
	"bytes"
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

	// lost counts entries that neither copy had, and clusters of objects that are lost. Nobody knows
	// what they held: as long as there is one, absent objects and holes are errors, not zeroes.
	lost   uint64
	failed error // a page could not be read: the member stops
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

// pageRange is a run of pages.
type pageRange struct{ first, end int64 }

// pagesOf are the pages of n entries from an index on.
func pagesOf(index, n int64) pageRange {
	if n == 0 {
		return pageRange{}
	}
	return pageRange{index / tableEntries, (index + n + tableEntries - 1) / tableEntries}
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
		res, err := loadPage(t.dev, t.g, p)
		if err != nil && t.failed == nil {
			t.failed = err
		}
		t.repaired += res.repaired
		t.lost += res.lost
		t.insert(p)
	}
	p.used = true
	return p
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

// loadPage reads both copies of a page at once and takes what is best of them.
func loadPage(dev device.Device, g *geometry, p *page) (merged, error) {
	second := alignedBytes(blockBytes)
	first := alignedBytes(blockBytes)
	at := int64(p.number) * blockBytes
	a := device.Op{Kind: device.Read, Off: g.tableAt[0] + at, Bufs: [][]byte{first}}
	b := device.Op{Kind: device.Read, Off: g.tableAt[1] + at, Bufs: [][]byte{second}}
	dev.Do([]*device.Op{&a, &b})
	if a.Err != nil && b.Err != nil {
		return merged{}, errs.Wrap("logstore.index", fmt.Sprint("page ", p.number),
			device.Failed(dev, &a))
	}
	unreadable(first, a.Err)
	unreadable(second, b.Err)
	copy(p.buf, first)
	return mergePage(p, second), nil
}

// unreadable makes a copy that could not be read one in which nothing verifies.
func unreadable(b []byte, err error) {
	if err != nil {
		for i := range b {
			b[i] = 0xff
		}
	}
}

// merged tells what became of a page of which there are two copies.
type merged struct {
	differ   bool   // the copies are not the same
	repaired uint64 // entries that only the second copy had, or had in a newer state
	lost     uint64 // entries that neither copy had
}

// mergePage takes each entry from the copy that has it, and the newer one where both have one. The
// first copy is written first, so that a second one that is newer shows that a write of the first
// was lost; the other way round it is what a crash leaves.
func mergePage(p *page, second []byte) (res merged) {
	if bytes.Equal(p.buf, second) && pageValid(p) {
		return res
	}
	res.differ = true
	for i := range tableEntries {
		at := i * entryBytes
		mine, other := entry(p.buf[at:at+entryBytes]), entry(second[at:at+entryBytes])
		a, b := mine.valid(p.index(i)), other.valid(p.index(i))
		switch {
		case a && (!b || mine.record() >= other.record()):
		case b:
			copy(mine, other)
			res.repaired++
		default:
			clear(mine)
			mine[0] = typeLost
			res.lost++
		}
	}
	return res
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
