package pebblekv

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
)

const (
	// ballastPieces is how many files hold the ballast: it is given up piece by piece.
	ballastPieces = 4
	ballastPrefix = "ballast-"

	// roomFresh is how long a look at the file system's room is believed: a look costs as much as a
	// tenth of a commit.
	roomFresh = 10 * time.Millisecond
)

// headroom keeps room of the file system for transactions that make room.
//
// It has two parts. Other transactions are refused once the file system has less left than half of
// the reserve. And files without content, the ballast, hold the reserve itself against everybody
// else who writes to the file system; a piece of it is given up when a transaction that may use it
// would not find room otherwise, and is taken again when there is room.
type headroom struct {
	fs    vfs.FS
	dir   string
	log   *slog.Logger
	piece int64 // bytes; 0: there is no reserve
	low   int64 // bytes that must be free for transactions that make no room

	mu     sync.Mutex
	have   [ballastPieces]bool
	looked time.Time
	free   int64
}

// newHeadroom finds out what is there. bytes is as in Options.
func newHeadroom(o *Options) *headroom {
	r := &headroom{fs: o.FS, dir: o.Dir, log: o.Log}
	usage, err := o.FS.GetDiskUsage(o.Dir)
	if err != nil || o.ReserveBytes == 0 {
		return r // a file system that does not say how full it is, as in tests
	}
	// A small file system cannot spare that much.
	bytes := min(o.ReserveBytes, int64(usage.TotalBytes/16))
	r.piece, r.low = bytes/ballastPieces, bytes/2
	for i := range r.have {
		_, err := r.fs.Stat(r.name(i))
		r.have[i] = err == nil
	}
	return r
}

func (r *headroom) name(i int) string {
	return r.fs.PathJoin(r.dir, fmt.Sprintf("%s%d", ballastPrefix, i))
}

// roomLocked is how many bytes the file system has left; a lot where nobody knows.
func (r *headroom) roomLocked(now time.Time) int64 {
	if now.Sub(r.looked) < roomFresh {
		return r.free
	}
	r.free, r.looked = math.MaxInt64, now
	if usage, err := r.fs.GetDiskUsage(r.dir); err == nil {
		r.free = int64(min(usage.AvailBytes, math.MaxInt64))
	}
	return r.free
}

// admit tells whether a transaction may be committed, and gives up ballast for one that makes room.
func (r *headroom) admit(makesRoom bool) error {
	if r.piece == 0 {
		return nil
	}
	if makesRoom {
		r.ensure(r.piece)
		return nil
	}
	return r.short()
}

// short is the reason why only transactions that make room are admitted; nil if all are.
func (r *headroom) short() error {
	if r.piece == 0 {
		return nil
	}
	r.mu.Lock()
	free := r.roomLocked(time.Now())
	r.mu.Unlock()
	if free >= r.low {
		return nil
	}
	return errs.Newf(errs.NoSpace, "pebblekv", r.dir, "the file system has %d bytes left: below %d "+
		"only removals are admitted; free space on it", free, r.low)
}

// ensure gives up ballast until bytes are free, or nothing is left of it.
func (r *headroom) ensure(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.have {
		if r.roomLocked(time.Now()) >= bytes {
			return
		}
		if !r.have[i] {
			continue
		}
		if err := r.fs.Remove(r.name(i)); err != nil {
			r.log.Error("ballast could not be given up", "file", r.name(i), "err", err)
			continue
		}
		r.have[i], r.looked = false, time.Time{}
		r.log.Warn("the file system is full: ballast was given up so that files can be removed",
			"bytes", r.piece)
	}
}

// refill takes ballast again where there is room for it besides what others may need.
func (r *headroom) refill() {
	if r.piece == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.have {
		if r.have[i] {
			continue
		}
		r.looked = time.Time{}
		if r.roomLocked(time.Now()) < r.low+2*r.piece {
			return
		}
		if err := r.take(r.name(i)); err != nil {
			r.log.Warn("no ballast", "file", r.name(i), "err", err)
			_ = r.fs.Remove(r.name(i)) // what there is of it
			return
		}
		r.have[i] = true
	}
}

// take makes one piece. A file system that cannot set space aside has no ballast.
func (r *headroom) take(name string) error {
	f, err := r.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = f.Preallocate(0, r.piece)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// logBytes is how much the logs in the directory hold, which an opening writes out again.
func (r *headroom) logBytes() (sum int64) {
	names, err := r.fs.List(r.dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		if st, err := r.fs.Stat(r.fs.PathJoin(r.dir, name)); err == nil {
			sum += st.Size()
		}
	}
	return sum
}

// openable makes room for opening the store, as far as that is possible, and tells whether there
// is enough: its logs are written out as tables, and new files are begun. Room is tried, not only
// computed: pebble does not return from an opening that it cannot finish.
func (r *headroom) openable() bool {
	need := r.logBytes() + openBytes
	r.ensure(need)
	r.mu.Lock()
	r.looked = time.Time{}
	enough := r.roomLocked(time.Now()) >= need
	r.mu.Unlock()
	return enough && r.probe() == nil
}

// openBytes is what opening takes beside the logs' content: a log, a manifest, options, markers.
const openBytes = 2 << 20

// probe writes a file like a table and removes it.
func (r *headroom) probe() error {
	name := r.fs.PathJoin(r.dir, "probe.sst")
	f, err := r.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if e := r.fs.Remove(name); err == nil {
		err = e
	}
	return err
}
