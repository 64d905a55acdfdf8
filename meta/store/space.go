package store

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// The space that a file takes is known to the I/O servers only. Files are dense unless somebody
// said otherwise (flagHoles), and of dense ones the size is the answer. For the others GetAttr asks
// the servers, one request each, which they answer from a counter, however many holes there are.
// What they said is remembered as long as the data is the same.

const (
	// allocateMax bounds how long a GetAttr waits for that, and after one that waited in vain
	// nobody asks for allocatePause: programs that stat many files are not to stand still because a
	// server is away. One that has been away for HeartbeatMax is not asked at all.
	allocateMax   = 2 * time.Second
	allocatePause = 5 * time.Second

	// spaceAgeMax is how long a sum counts. The version of the data is not enough: a server that
	// has crashed has less until clients have sent again what was not synced.
	spaceAgeMax = 30 * time.Second

	// spacesMax bounds how many sums are remembered in each of two halves: 3 MiB or so.
	spacesMax = 32 << 10
)

// space is what a file took in one state of its data.
type space struct {
	version  uint64
	truncSeq uint64
	bytes    int64
	asked    time.Time
}

// spaces remembers what files took that were asked for last.
type spaces struct {
	mu    sync.Mutex
	young map[meta.Ino]space
	old   map[meta.Ino]space
	quiet time.Time // until then nobody is asked
}

// recall completes attributes by what is remembered of the same data. While somebody writes, equal
// versions do not mean equal data.
func (x *spaces) recall(a *meta.Attr, now time.Time) bool {
	if a.Writers {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok := x.young[a.Ino]
	if !ok {
		v, ok = x.old[a.Ino]
	}
	if !ok || v.version != a.DataVersion || v.truncSeq != a.TruncSeq ||
		now.Sub(v.asked) >= spaceAgeMax {
		return false
	}
	a.Allocated = v.bytes
	return true
}

func (x *spaces) note(a *meta.Attr, asked time.Time) {
	if a.Writers {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.young == nil || len(x.young) >= spacesMax {
		x.old, x.young = x.young, make(map[meta.Ino]space)
	}
	x.young[a.Ino] = space{a.DataVersion, a.TruncSeq, a.Allocated, asked}
}

func (x *spaces) pause(until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.quiet = until
}

func (x *spaces) paused(now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return now.Before(x.quiet)
}

// allocated finds out what a file with holes takes, if that can be done soon.
func (s *Store) allocated(ctx context.Context, a *meta.Attr) {
	at, ok := s.opt.Objects.(meta.Allocator)
	now := s.steady()
	if !a.Holes || !ok || s.spaces.recall(a, now) || s.spaces.paused(now) ||
		!s.servers.allUp(a.Layout.Servers, s.heardSince()) {
		return
	}
	wait.Announce(ctx)
	bounded, cancel := context.WithTimeout(ctx, allocateMax)
	defer cancel()
	n, err := at.Allocated(bounded, meta.FileRef{Ino: a.Ino, Gen: a.Gen, TruncSeq: a.TruncSeq,
		Layout: a.Layout})
	switch {
	case err == nil:
		a.Allocated = n
		s.spaces.note(a, now)
	case ctx.Err() == nil:
		s.spaces.pause(s.steady().Add(allocatePause))
		s.opt.Log.Debug("space not measured", "ino", a.Ino, "error", err)
	}
}

// allUp tells whether all of some servers were heard of since a moment.
func (x *servers) allUp(ids []uint32, since time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if v := x.byID[id]; v == nil || v.heard.Before(since) {
			return false
		}
	}
	return true
}
