package mount

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// told remembers what the kernel was told to believe, for as long as it does: of an inode its
// attributes, of a directory names in it. When a lease is recalled the kernel has to forget that.
//
// Whoever tells the kernel something notes it, and then looks whether there is a lease. So a recall
// either finds the note, or the lease is gone when he looks.
type told struct {
	attrs, names time.Duration // the longest times for which the kernel was told to believe

	mu         sync.Mutex
	began      time.Time // when young was begun
	last       time.Time // when the kernel was last told something
	young, old map[meta.Ino]*belief
	shared     map[meta.Ino]time.Time // directories that were recalled lately, and when
	counted    time.Time              // since when
	recalled   int                    // directories were recalled whose names the kernel believed
	braked     time.Time              // until then it is told none
}

// belief is when the kernel was last told something of one inode; zero: never.
type belief struct {
	attrs  time.Time // its attributes,
	of     version   // of this version of a file
	behind time.Time // these, in an answer that has to arrive before the kernel can forget them
	names  time.Time // names in it
}

// answerGrace is how long an answer may take from the moment when it was made to the kernel, which
// counts from when it arrives.
const answerGrace = 20 * time.Millisecond

// A directory that others change, too, is asked for with each use of a name for a while: that costs
// less than waiting until the kernel has forgotten its names again and again.
const (
	sharedFor = 10 * time.Second
	sharedMax = 4 << 10
)

// No lease of a client is extended while one is owed: where many directories are recalled one after
// the other, and each is owed until its names have run out, all would be lost. So the kernel is
// told no names at all for a while then.
const (
	brakeSpan  = time.Second
	brakeCount = 4 // directories recalled in a span
)

// isShared tells whether others have changed a directory lately, or many others.
func (t *told) isShared(dir meta.Ino, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.shared[dir]
	return ok && now.Sub(at) < sharedFor || now.Before(t.braked)
}

// brakeLocked counts a directory that was recalled.
func (t *told) brakeLocked(now time.Time) {
	if now.Sub(t.counted) > brakeSpan {
		t.counted, t.recalled = now, 0
	}
	if t.recalled++; t.recalled > brakeCount {
		t.braked = now.Add(brakeSpan)
	}
}

// attr notes that the kernel is told attributes of an inode. asked: it has asked for them, and
// ignores an answer that arrives after it was told to forget them; an answer that brings the inode
// itself it does not ignore.
func (t *told) attr(a *meta.Attr, asked bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.ofLocked(a.Ino, now)
	b.of = versionOf(a)
	if b.attrs = now; !asked {
		b.behind = now
	}
}

// same tells whether what the kernel was told last of a file, and may believe, are the attributes
// of the same version of it.
func (t *told) same(a *meta.Attr, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.young[a.Ino]
	if b == nil {
		b = t.old[a.Ino]
	}
	return b != nil && now.Sub(b.attrs) <= t.attrs && b.of == versionOf(a)
}

// name notes that the kernel is told what a name in a directory stands for.
func (t *told) name(dir meta.Ino, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ofLocked(dir, now).names = now
}

func (t *told) ofLocked(ino meta.Ino, now time.Time) *belief {
	if t.young == nil || now.Sub(t.began) > t.keep() {
		t.old, t.young, t.began = t.young, make(map[meta.Ino]*belief), now
	}
	t.last = now
	b := t.young[ino]
	if b == nil {
		b = &belief{}
		t.young[ino] = b
	}
	return b
}

// keep is how long something has to be remembered: times of the kernel's are rounded up.
func (t *told) keep() time.Duration { return max(t.attrs, t.names) + 2*answerGrace }

// take returns what the kernel may still believe of an inode and forgets it.
func (t *told) take(ino meta.Ino, now time.Time) (b belief) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, part := range []*belief{t.old[ino], t.young[ino]} {
		if part != nil {
			b.attrs, b.names = later(b.attrs, part.attrs), later(b.names, part.names)
			b.behind = later(b.behind, part.behind)
		}
	}
	delete(t.old, ino)
	delete(t.young, ino)
	if now.Sub(b.attrs) > t.attrs+2*answerGrace {
		b.attrs, b.behind = time.Time{}, time.Time{}
	}
	if now.Sub(b.names) > t.names+2*answerGrace {
		b.names = time.Time{}
	}
	if !b.names.IsZero() {
		t.brakeLocked(now)
	}
	if _, again := t.shared[ino]; again || !b.names.IsZero() {
		t.sharedLocked(ino, now)
	}
	return b
}

func (t *told) sharedLocked(dir meta.Ino, now time.Time) {
	if _, again := t.shared[dir]; !again && len(t.shared) >= sharedMax || t.shared == nil {
		t.shared = make(map[meta.Ino]time.Time)
	}
	t.shared[dir] = now
}

// latest is when the kernel was last told anything.
func (t *told) latest() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
