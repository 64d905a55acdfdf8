package client

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// An answer that was on its way while this client told of a file and forgot it may be older than
// what was told, and than the return of Close: whoever gets it must not see the file as it was
// before. So what was known of files that were written and closed is remembered for longer than
// answers take.

const (
	pastTime = 10 * time.Second // at least, unless there are too many
	pastMin  = 1 << 10          // files of one half that are remembered for longer
	pastMax  = 64 << 10         // files of one half at the most
)

// past remembers files in two halves, of which the older one is forgotten as a whole.
type past struct {
	mu    sync.Mutex
	begun time.Time // of young
	young map[meta.Ino]meta.Attr
	old   map[meta.Ino]meta.Attr
}

// put remembers how a file was when it was closed.
func (p *past) put(a *meta.Attr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.young)
	if n == 0 || n >= pastMin && time.Since(p.begun) >= pastTime || n >= pastMax {
		p.old, p.young, p.begun = p.young, make(map[meta.Ino]meta.Attr), time.Now()
	}
	p.young[a.Ino] = *a
}

// correct brings attributes up to what is remembered, if they are older; then the data that came
// with them is older, too.
func (p *past) correct(a *meta.Attr) (older bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, ok := p.young[a.Ino]
	if !ok {
		was, ok = p.old[a.Ino]
	}
	if !ok || a.Ino == 0 || a.Gen != was.Gen {
		return false
	}
	switch {
	case a.TruncSeq > was.TruncSeq || a.DataVersion > was.DataVersion: // it was changed since
	case a.TruncSeq == was.TruncSeq && a.DataVersion == was.DataVersion:
		// Times may have been set since, and without a lease the new version is not known.
		a.Size = max(a.Size, was.Size)
	default:
		a.Size, a.TruncSeq, a.DataVersion = was.Size, was.TruncSeq, was.DataVersion
		a.Mtime, a.Ctime = meta.Later(a.Mtime, was.Mtime), meta.Later(a.Ctime, was.Ctime)
		return true
	}
	return false
}
