package mount

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// CacheMode says what the kernel may keep of the data of files. Names and attributes are exact in
// each, and memory can be mapped in each.
type CacheMode string

const (
	// CacheStrict: nothing. A read sees every write that has returned before, on any mount, and a
	// write has reached the servers when it returns. Pages of mapped memory are as close-to-open.
	CacheStrict CacheMode = "strict"

	// CacheCloseToOpen: pages, which are dropped when the file is opened and has changed. Writes are
	// on their way to the servers when they return, and there when the file is closed. The default.
	CacheCloseToOpen CacheMode = "close-to-open"

	// CacheWriteback: pages, and what is written stays in them until the kernel writes it back, the
	// file is synced, or closed. Who opens the file after that sees it, as in close-to-open; while it
	// is open here it is not seen that others change it.
	CacheWriteback CacheMode = "writeback"
)

func (m CacheMode) validate() error {
	switch m {
	case CacheStrict, CacheCloseToOpen, CacheWriteback:
		return nil
	}
	return errs.Newf(errs.Invalid, "mount.Options", "", "cache %q: %s, %s or %s", string(m),
		CacheStrict, CacheCloseToOpen, CacheWriteback)
}

// editions tell the kernel's inodes of one file apart, where it writes back by itself. For a file
// that it keeps the length of, it believes nobody else; so where somebody else has changed a file
// it gets another inode, which it takes for another file by the generation. The pages of the one
// before go with that. A file that is open here keeps its inode.
type editions struct {
	mu    sync.Mutex
	last  uint64
	young map[meta.Ino]edition
	old   map[meta.Ino]edition
	open  map[meta.Ino]int
}

// edition is what the kernel was told of a file.
type edition struct {
	generation uint64
	data       uint64 // versions of what its pages show
	trunc      uint64
}

// editionsMax bounds what is remembered in each half. A file that is forgotten gets another inode.
const editionsMax = 64 << 10

// of is the generation for attributes that the kernel is told.
func (x *editions) of(a *meta.Attr) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.findLocked(a.Ino)
	if !known || x.open[a.Ino] == 0 && (e.data != a.DataVersion || e.trunc != a.TruncSeq) {
		x.last++
		e = edition{x.last, a.DataVersion, a.TruncSeq}
	}
	x.setLocked(a.Ino, e)
	return e.generation
}

// stale tells whether the kernel has an inode for a file that is to get another one.
func (x *editions) stale(a *meta.Attr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.findLocked(a.Ino)
	return x.open[a.Ino] == 0 && (!known || e.data != a.DataVersion || e.trunc != a.TruncSeq)
}

// changed notes that a change of this mount's own has led to a version: the kernel's pages show it.
func (x *editions) changed(before, after *meta.Attr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.findLocked(after.Ino)
	if known && e.data == before.DataVersion {
		e.data, e.trunc = after.DataVersion, after.TruncSeq
		x.setLocked(after.Ino, e)
	}
}

// opened notes that a file is open once more.
func (x *editions) opened(ino meta.Ino) {
	x.mu.Lock()
	defer x.mu.Unlock()
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
