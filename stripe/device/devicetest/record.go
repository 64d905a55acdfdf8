// Package devicetest holds devices for tests of stores: one that records what is written and can
// show every state that a power cut may leave behind, one on top of content that many share, one
// that is slow, and one that fails.
//
// Read record.go first, then crash.go; overlay.go, slow.go and fault.go stand by themselves.
package devicetest

import (
	"sync"

	"github.com/sluice-storage/sluice/stripe/device"
)

// Recorder is a device in memory that remembers every write and every sync, when it began and when
// it ended. Time is counted in such events.
type Recorder struct {
	*Overlay
	base *Overlay // content when recording began

	// Before, if set, is called with each write before it begins; it may wait. Set it while no
	// operation is under way.
	Before func(off int64)

	mu     sync.Mutex
	events int
	writes []write
	syncs  []span

	settled   int      // how many of the first writes settledBy has
	settledAt int      // at which event they were stable
	settledBy *Overlay // content
}

// span is when something began and ended; the end is 0 while it is under way.
type span struct{ begin, end int }

type write struct {
	span
	off    int64
	data   []byte
	stable bool
}

// NewRecorder starts recording on top of the content, which it does not change.
func NewRecorder(name string, content *Overlay) *Recorder {
	return &Recorder{Overlay: content.Fork(name), base: content.Fork(name)}
}

// Now is the number of events so far.
func (r *Recorder) Now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events
}

// Do implements device.Device.
func (r *Recorder) Do(ops []*device.Op) {
	type ref struct {
		sync bool
		n    int
	}
	for _, op := range ops {
		if r.Before != nil && op.Kind == device.Write {
			r.Before(op.Off)
		}
	}
	refs := make([]ref, 0, len(ops))
	r.mu.Lock()
	for _, op := range ops {
		switch op.Kind {
		case device.Write:
			r.events++
			w := write{span: span{begin: r.events}, off: op.Off, stable: op.Stable}
			for _, b := range op.Bufs {
				w.data = append(w.data, b...)
			}
			refs = append(refs, ref{false, len(r.writes)})
			r.writes = append(r.writes, w)
		case device.Sync:
			r.events++
			refs = append(refs, ref{true, len(r.syncs)})
			r.syncs = append(r.syncs, span{begin: r.events})
		}
	}
	r.mu.Unlock()
	r.Overlay.Do(ops)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range refs {
		r.events++
		if f.sync {
			r.syncs[f.n].end = r.events
		} else {
			r.writes[f.n].end = r.events
		}
	}
}
