package client

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// When something was read is noted here and told later, of many inodes at once, in the background:
// nobody waits for it, and no lease of others is asked back. What the client itself says of an
// inode has it at once. A client's death takes along what it has not told.

// How accesses are told.
const (
	accessAfter = time.Second // after the first one
	accessesMax = 64 << 10    // inodes that are remembered; others are not noted
)

// noted is the access of one inode. told: when the service was; zero: not yet. It is remembered for
// longer than answers take that are older than that (see past).
type noted struct {
	meta.Access
	told time.Time
}

// stands tells whether attributes may not know of the access yet.
func (x *noted) stands() bool { return x.told.IsZero() || time.Since(x.told) < pastTime }

// accessQueue are the accesses that the service may not know of.
type accessQueue struct {
	token chan struct{} // one token: there are some to be told
	some  atomic.Bool   // there are some at all

	mu     sync.Mutex
	all    map[meta.Ino]noted
	untold int
	under  chan struct{} // closed when the telling that is under way is over; nil: none is
	inos   map[meta.Ino]struct{}
}

// note notes an access.
func (q *accessQueue) note(x meta.Access) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all == nil {
		q.all = map[meta.Ino]noted{}
		q.some.Store(true)
	}
	old, ok := q.all[x.Ino]
	switch {
	case ok && old.told.IsZero():
		x.Was, x.Relative = old.Was, x.Relative && old.Relative
	case !ok && len(q.all) >= accessesMax:
		return
	default:
		q.untold++
	}
	q.all[x.Ino] = noted{Access: x}
	select {
	case q.token <- struct{}{}:
	default:
	}
}

// overlay corrects the time of access in attributes.
func (q *accessQueue) overlay(a *meta.Attr) {
	if !q.some.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if x, ok := q.all[a.Ino]; ok && x.Meets(a) && x.stands() {
		a.Atime = x.At
	}
}

// forget is for who sets the time of access of an inode: what was read before must not come late.
func (q *accessQueue) forget(ctx context.Context, ino meta.Ino) error {
	if !q.some.Load() {
		return nil
	}
	q.mu.Lock()
	if x, ok := q.all[ino]; ok {
		if x.told.IsZero() {
			q.untold--
		}
		delete(q.all, ino)
	}
	var under chan struct{}
	if _, ok := q.inos[ino]; ok {
		under = q.under
	}
	q.mu.Unlock()
	if under == nil {
		return nil
	}
	select {
	case <-under:
		return nil
	case <-ctx.Done():
		return errs.Wrap("client.SetAttr", "", ctx.Err())
	}
}

// take begins to tell what was not told yet, as much as one request takes; nil: there is nothing,
// or somebody else tells. ended must follow.
func (q *accessQueue) take() (list []meta.Access) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.untold == 0 || q.under != nil {
		return nil
	}
	q.inos = map[meta.Ino]struct{}{}
	for ino, x := range q.all {
		if !x.told.IsZero() {
			continue
		}
		q.inos[ino] = struct{}{}
		if list = append(list, x.Access); len(list) == meta.AccessMax {
			break
		}
	}
	q.under = make(chan struct{})
	return list
}

// ended notes what has come of a list. Those that nobody is to tell again count as told.
func (q *accessQueue) ended(list []meta.Access, told bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.under)
	q.under, q.inos = nil, nil
	now := time.Now()
	for i := range list {
		x, ok := q.all[list[i].Ino]
		switch {
		case !told || !ok || !x.told.IsZero():
		case x.At == list[i].At:
			x.told = now
			q.untold--
			q.all[x.Ino] = x
		default: // it was read again meanwhile
			x.Was = list[i].At
			q.all[x.Ino] = x
		}
	}
	if q.untold > 0 {
		return
	}
	for ino, x := range q.all {
		if !x.stands() {
			delete(q.all, ino)
		}
	}
}

// tellAccesses works until the FS is closed.
func (fs *FS) tellAccesses() {
	for {
		select {
		case <-fs.life.Done():
			return
		case <-fs.accesses.token:
		}
		if !wait.Sleep(fs.life, accessAfter) {
			return
		}
		fs.tellAccessed(fs.life)
	}
}

// tellAccessed tells all that is to be told. What fails for the moment is told later.
func (fs *FS) tellAccessed(ctx context.Context) {
	for list := fs.accesses.take(); list != nil; list = fs.accesses.take() {
		err := fs.svc.Accessed(ctx, fs.trusted(), list)
		again := errs.KindOf(err).Passing() || ctx.Err() != nil
		fs.accesses.ended(list, !again)
		if again {
			select {
			case fs.accesses.token <- struct{}{}:
			default:
			}
			return
		}
		if err != nil {
			fs.opts.Logger.Warn("times of access could not be told", "inodes", len(list), "err", err)
		}
	}
}

// Accessed notes that a program has read from the file, and tells whether that changes its time of
// access: always, or with relative, as relatime of mount(8) has it, only if it was not read since
// it was changed, or for a day. It asks nobody. Reads of the library itself note nothing: who reads
// on behalf of programs says so.
func (f *File) Accessed(relative bool) bool {
	n := f.node
	n.mu.Lock()
	was, mtime, ctime := n.attr.Atime, n.attr.Mtime, n.attr.Ctime
	if n.dirty || n.taken {
		mtime, ctime = meta.Later(mtime, n.mtime), meta.Later(ctime, n.mtime)
	}
	now := nowAfter(ctime)
	due := was != now && (!relative || meta.AccessDue(was, mtime, ctime, now))
	if due {
		n.attr.Atime = now
	}
	n.mu.Unlock()
	if due {
		f.fs.accessed(meta.Access{Ino: n.ino, Was: was, At: now})
	}
	return due
}

// AccessedIno is File.Accessed for a directory that was listed, or a link that was followed. Where
// its times are not known the service decides.
func (fs *FS) AccessedIno(ino meta.Ino, relative bool) {
	a, known := fs.cache.Attr(ino)
	if !known {
		never := meta.Time{Sec: math.MinInt64}
		fs.accessed(meta.Access{Ino: ino, Was: never, At: meta.Now(), Relative: relative})
		return
	}
	fs.accesses.overlay(&a)
	now := nowAfter(a.Ctime)
	if a.Atime != now && (!relative || meta.AccessDue(a.Atime, a.Mtime, a.Ctime, now)) {
		fs.accessed(meta.Access{Ino: ino, Was: a.Atime, At: now})
	}
}

// nowAfter is the time of what happens after the change of an inode. The clock of who has changed
// it may be ahead: whether something was read since must be right all the same.
func nowAfter(ctime meta.Time) meta.Time {
	if now := meta.Now(); now.After(ctime) {
		return now
	}
	return meta.UnixTime(ctime.Sec, int64(ctime.Nsec)+1)
}

func (fs *FS) accessed(x meta.Access) {
	fs.accesses.note(x)
	fs.cache.Accessed(&x)
}
