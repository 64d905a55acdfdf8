package mount

import (
	"sync"

	"github.com/sluice-storage/sluice/meta"
)

// versionsMax bounds how many files are remembered in each of the two halves of versions.
const versionsMax = 64 << 10

// version is the state of a file's data that the kernel's pages show.
type version struct {
	data  uint64
	trunc uint64
	size  int64
}

func versionOf(a *meta.Attr) version { return version{a.DataVersion, a.TruncSeq, a.Size} }

// versions remembers for files that were opened which version the kernel's pages belong to. It
// forgets the files that were not opened for longest; a forgotten file only loses its pages at
// the next open.
type versions struct {
	mu    *sync.Mutex
	young map[meta.Ino]version
	old   map[meta.Ino]version
}

func newVersions() versions {
	return versions{mu: new(sync.Mutex), young: map[meta.Ino]version{}}
}

// current tells whether the kernel may keep its pages of a file that is being opened: they were
// read at the same version, and nobody is changing the file, or this mount alone is. Then the
// kernel's pages show what it writes, and must stay: one whose write is on its way would be read
// from the servers as it was before, and kept.
func (v *versions) current(a *meta.Attr, alone bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	was, known := v.young[a.Ino]
	if !known {
		was, known = v.old[a.Ino]
	}
	if known {
		v.setLocked(a.Ino, was)
	}
	if alone {
		return known && was.data == a.DataVersion && was.trunc == a.TruncSeq
	}
	return known && was == versionOf(a) && !a.Writers
}

// note notes that the kernel has no pages from before the version that a file was opened at.
func (v *versions) note(a *meta.Attr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.setLocked(a.Ino, versionOf(a))
}

// forget makes the next open drop the pages.
func (v *versions) forget(ino meta.Ino) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.young, ino)
	delete(v.old, ino)
}

// changed notes the version that a change of this mount's own has made of the one before it. The
// kernel's pages show it, if they belong to that one; otherwise it is forgotten.
func (v *versions) changed(a *meta.Attr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	was, known := v.young[a.Ino]
	switch {
	case known && was.data == a.DataVersion: // the file was opened when the service had it already
		return
	case known && was.data+1 == a.DataVersion:
		v.setLocked(a.Ino, versionOf(a))
		return
	}
	delete(v.young, a.Ino)
	delete(v.old, a.Ino)
}

func (v *versions) setLocked(ino meta.Ino, x version) {
	if len(v.young) >= versionsMax {
		v.old = v.young
		v.young = make(map[meta.Ino]version, versionsMax)
	}
	v.young[ino] = x
}
