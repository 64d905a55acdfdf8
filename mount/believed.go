package mount

import (
	"sync"

	"github.com/sluice-storage/sluice/meta"
)

// believed knows whether the kernel may take a file for longer than it is. FUSE has no message that
// shortens a file: the kernel learns a smaller length only from an answer to a question of its own,
// and does not ask before it reads below the length that it knows. What it reads behind the true
// end then shows zeroes. (A length that is too small does no harm: whoever reads past it asks.)
//
// Files become shorter by truncation only, and truncations are numbered. So it is remembered for
// files that were ever truncated which number the attributes had that the kernel was told last. A
// file that is opened with another number is answered with ESTALE: the kernel then looks the name
// up again, which tells it the length, and repeats the open.
type believed struct {
	mu    sync.Mutex
	young map[meta.Ino]uint64 // truncate sequence of the last attributes; 0 is not kept
	old   map[meta.Ino]uint64
	asked map[question]struct{}
}

// question is an open that was answered with ESTALE and will be repeated by the same thread.
type question struct {
	ino meta.Ino
	pid uint32
}

// Bounds of what is remembered: what falls out of the first costs a lookup at the next open, what
// falls out of the second belongs to opens that were given up long ago.
const (
	believedMax = 64 << 10
	askedMax    = 4 << 10
)

// verdict is what check says of an open.
type verdict uint8

const (
	known     verdict = iota // the kernel's length is not too large
	lookAgain                // it may be: the kernel must ask
	unsure                   // it has asked, and the file has been truncated again since
)

// told notes attributes that the kernel is given.
func (k *believed) told(a *meta.Attr) {
	if a.Type != meta.Regular || a.TruncSeq == 0 {
		return // never truncated: the length has never been larger
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.young == nil || len(k.young) >= believedMax {
		k.old, k.young = k.young, make(map[meta.Ino]uint64)
	}
	k.young[a.Ino] = a.TruncSeq
}

// check compares a file that a thread opens with what the kernel was told; stale: it must look
// again whatever that was; again: the thread has looked again, perhaps because of another file that
// had the name, and the kernel does so only once.
func (k *believed) check(a *meta.Attr, pid uint32, stale, again bool) verdict {
	if a.TruncSeq == 0 && !stale {
		return known
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	q := question{a.Ino, pid}
	_, repeated := k.asked[q]
	delete(k.asked, q)
	seq, ok := k.young[a.Ino]
	if !ok {
		seq = k.old[a.Ino]
	}
	switch {
	case seq == a.TruncSeq && !stale:
		return known
	case repeated || again || pid == 0: // of another name space: threads cannot be told apart
		return unsure
	}
	if k.asked == nil || len(k.asked) >= askedMax {
		k.asked = make(map[question]struct{})
	}
	k.asked[q] = struct{}{}
	return lookAgain
}
