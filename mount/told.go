package mount

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// told remembers what the kernel was told to believe, for as long as it does: of an inode its
// attributes, of a directory names in it. When a lease is recalled the kernel has to forget that.
//
// Whoever tells the kernel something notes it before he looks whether there is a lease. So a recall
// either finds the note, or the lease is gone when he looks.
type told struct {
	keep time.Duration // the longest time for which the kernel was told to believe

	mu         sync.Mutex
	began      time.Time // when young was begun
	young, old map[meta.Ino]*belief
	shared     map[meta.Ino]time.Time // directories that were recalled lately, and when
}

// belief is what the kernel was told of one inode. A zero time means nothing.
type belief struct {
	attrs time.Time // the last time that it was told attributes
	names time.Time // the last time that it was told names
	list  []string  // these, if they are not too many
	many  bool
}

// namesMax is how many names of a directory are remembered: expiring them takes some microseconds
// each, while the kernel believes in those of a larger one for as long as it was told to.
const namesMax = 256

// A directory that others change, too, is asked for with each use of a name for a while: that costs
// less than having the kernel forget its names again and again.
const (
	sharedFor = 10 * time.Second
	sharedMax = 4 << 10
)

// isShared tells whether others have changed a directory lately.
func (t *told) isShared(dir meta.Ino, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.shared[dir]
	return ok && now.Sub(at) < sharedFor
}

// attr notes that the kernel is told attributes of an inode.
func (t *told) attr(ino meta.Ino, now time.Time) {
	t.mu.Lock()
	t.ofLocked(ino, now).attrs = now
	t.mu.Unlock()
}

// name notes that the kernel is told what a name in a directory stands for.
func (t *told) name(dir meta.Ino, name string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.ofLocked(dir, now)
	b.names = now
	if len(b.list) < namesMax {
		b.list = append(b.list, name)
	} else {
		b.many = true
	}
}

func (t *told) ofLocked(ino meta.Ino, now time.Time) *belief {
	if t.young == nil || now.Sub(t.began) > t.keep {
		t.old, t.young, t.began = t.young, make(map[meta.Ino]*belief), now
	}
	b := t.young[ino]
	if b == nil {
		b = &belief{}
		t.young[ino] = b
	}
	return b
}

// take returns what the kernel may still believe of an inode and forgets it; false: nothing.
func (t *told) take(ino meta.Ino, now time.Time) (b belief, some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, part := range []*belief{t.old[ino], t.young[ino]} {
		if part == nil {
			continue
		}
		b.attrs, b.names = later(b.attrs, part.attrs), later(b.names, part.names)
		b.list = append(b.list, part.list...)
		b.many = b.many || part.many
	}
	delete(t.old, ino)
	delete(t.young, ino)
	if _, again := t.shared[ino]; again || !b.names.IsZero() {
		if t.shared == nil || len(t.shared) >= sharedMax {
			t.shared = make(map[meta.Ino]time.Time)
		}
		t.shared[ino] = now
	}
	if now.Sub(b.attrs) > t.keep {
		b.attrs = time.Time{}
	}
	if now.Sub(b.names) > t.keep {
		b.names, b.list, b.many = time.Time{}, nil, false
	}
	return b, !b.attrs.IsZero() || !b.names.IsZero()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
