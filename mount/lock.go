package mount

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Locks go to the metadata service, so that they hold between mounts. The kernel names owners by
// numbers: a process for fcntl(2)'s locks, an open file for those of flock(2) and for OFD locks. It
// does not tell everything that releases a lock by an unlock request:
//
//	fcntl   close(2) of any descriptor of the file: flush, with the process as the owner
//	flock   the last close(2) of the open file: release, with the open file as the owner
//	OFD     the same; but release does not name the owner, so each file remembers its own
//
// Taking a lock drops the kernel's pages of the file, unless nobody can have changed it; releasing
// one first waits for writes that are on their way. So programs that read and write under locks see
// each other's data.

// lockOwners are the owners of range locks that were taken through an open file.
type lockOwners struct {
	mu  sync.Mutex
	ids map[uint64]struct{}
}

func (o *lockOwners) add(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ids == nil {
		o.ids = map[uint64]struct{}{}
	}
	o.ids[id] = struct{}{}
}

func (o *lockOwners) remove(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ids, id)
}

func (o *lockOwners) list() (ids []uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.ids {
		ids = append(ids, id)
	}
	return ids
}

// lockers knows through which open file an owner has locked a file last. The kernel names an open
// file by where it lies in memory, and tells of its end a while after: the next one may lie there
// and have locked the file by then.
type lockers struct {
	mu   sync.Mutex
	with map[locker]uint64
}

// locker is an owner of locks of one kind in a file.
type locker struct {
	ino   meta.Ino
	kind  meta.LockKind
	owner uint64
}

// note is called before a lock is asked for.
func (x *lockers) note(l *meta.Lock, fh uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.with == nil {
		x.with = map[locker]uint64{}
	}
	x.with[locker{l.Ino, l.Kind, l.Owner}] = fh
}

// last tells whether nobody has locked through another open file since.
func (x *lockers) last(k locker, fh uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	with, known := x.with[k]
	return !known || with == fh
}

// forget forgets an owner with its open file, if that was the last.
func (x *lockers) forget(k locker, fh uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.with[k] == fh {
		delete(x.with, k)
	}
}

// drop forgets an owner that has no locks.
func (x *lockers) drop(k locker) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.with, k)
}

// lockOf reads a lock out of a request. The kernel numbers bytes as the service does; what reaches
// to the end of the file ends at the largest offset.
func (b *bridge) lockOf(in *fuse.LkIn) meta.Lock {
	l := meta.Lock{Ino: b.ino(in.NodeId), Owner: in.Owner, Kind: meta.LockRange, PID: in.Lk.Pid,
		Start: int64(in.Lk.Start), End: int64(in.Lk.End)}
	switch in.Lk.Typ {
	case syscall.F_RDLCK:
		l.Type = meta.LockShared
	case syscall.F_WRLCK:
		l.Type = meta.LockExclusive
	}
	if in.LkFlags&fuse.FUSE_LK_FLOCK != 0 {
		l.Kind, l.Start, l.End = meta.LockFlock, 0, meta.LockEndMax
	}
	return l
}

// GetLk finds a lock that would be in the way.
func (b *bridge) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	l, found, err := b.fs.TestLock(ctx, b.lockOf(in))
	switch {
	case err != nil:
		return b.status("getlk", err)
	case !found:
		out.Lk = in.Lk
		out.Lk.Typ = syscall.F_UNLCK
		return fuse.OK
	}
	out.Lk = fuse.FileLock{Start: uint64(l.Start), End: uint64(l.End), Typ: syscall.F_RDLCK,
		Pid: l.PID}
	if l.Type == meta.LockExclusive {
		out.Lk.Typ = syscall.F_WRLCK
	}
	return fuse.OK
}

// SetLk takes or releases a lock, or fails at once.
func (b *bridge) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	return b.setLock(ctx, in, false)
}

// SetLkw waits. A signal that is meant to stop the program ends that at once.
func (b *bridge) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	ctx := b.requestFor(cancel, &in.InHeader, 0, false)
	defer ctx.end()
	return b.setLock(ctx, in, true)
}

func (b *bridge) setLock(ctx context.Context, in *fuse.LkIn, wait bool) fuse.Status {
	f, ok := b.files.get(in.Fh)
	if !ok {
		return b.lockDirectory(in)
	}
	l := b.lockOf(in)
	if err := b.fs.Drain(ctx, l.Ino); err != nil {
		return b.status("setlk", err)
	}
	if l.Type == 0 {
		return b.status("setlk", b.fs.Unlock(ctx, l))
	}
	if l.Kind == meta.LockRange {
		f.owners.add(l.Owner)
	}
	b.lockers.note(&l, in.Fh)
	b.kept.own(in.Fh, l.Owner)
	err := b.fs.Lock(ctx, l, wait)
	if !wait && errs.KindOf(err) == errs.Busy {
		err = b.tryAgain(ctx, &l, err)
	}
	switch errs.KindOf(err) {
	case errs.OK:
		b.relearn(in.NodeId, f)
		return fuse.OK
	case errs.Busy:
		return fuse.EAGAIN
	}
	return b.status("setlk", err)
}

// lockDirectory answers for directories, which are not known to clients as open: their locks are
// refused as on other network file systems.
func (b *bridge) lockDirectory(in *fuse.LkIn) fuse.Status {
	if _, ok := b.dirs.get(in.Fh); ok {
		return fuse.Status(syscall.ENOLCK)
	}
	return fuse.EBADF
}

// Attempts at a lock that this mount itself holds. The kernel does not wait for a release: the one
// of a file that was closed just now may not have been heard yet.
const (
	ownTries = 5
	ownPause = 4 * time.Millisecond
)

// tryAgain repeats a request that has failed because of another open file of this mount, which may
// just have been closed.
func (b *bridge) tryAgain(ctx context.Context, l *meta.Lock, err error) error {
	for range ownTries {
		if !b.fs.OwnLock(l) || !wait.Sleep(ctx, ownPause) {
			return err
		}
		if err = b.fs.Lock(ctx, *l, false); errs.KindOf(err) != errs.Busy {
			return err
		}
	}
	return err
}

// relearn lets the kernel forget what it knows of a file that was locked just now, unless it is
// sure that nobody has changed it.
func (b *bridge) relearn(node uint64, f *file) {
	a, doubtful := f.Attr(), f.Doubtful()
	if !doubtful && b.versions.current(&a, f.WritesAlone()) {
		return
	}
	b.touched.note(a.Ino)            // pages of directories from before do not tell its length
	b.server.InodeNotify(node, 0, 0) // fails where the kernel has forgotten the inode
	if doubtful {
		b.versions.forget(a.Ino) // which version the kernel will read is not known
		return
	}
	b.versions.note(&a)
}

// releaseOwner releases locks of an owner that has closed the file, and tells whether it has. For
// still see client.FS.ReleaseOwner.
func (b *bridge) releaseOwner(ctx context.Context, k locker, still func() bool) bool {
	err := b.fs.ReleaseOwner(ctx, k.ino, k.kind, k.owner, still)
	if err != nil {
		b.opts.Logger.Error("locks could not be released", "ino", k.ino, "owner", k.owner, "err", err)
	}
	return err == nil
}

// unlockFlushed releases the range locks of a process that closes a file, and tells whether it has.
// Nobody closes it again, so that this does not end with the process: what it has written under the
// locks, and was told to be written, arrives before others get them.
func (b *bridge) unlockFlushed(ctx context.Context, f *file, owner uint64) bool {
	if !b.fs.Holds(f.Ino(), meta.LockRange, owner) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseMax)
	defer cancel()
	if err := b.fs.Drain(ctx, f.Ino()); err != nil {
		b.opts.Logger.Error("locks are kept: data is on its way", "ino", f.Ino(), "owner", owner)
		return false
	}
	return b.releaseOwner(ctx, locker{f.Ino(), meta.LockRange, owner}, nil)
}

// unlockClosed releases what an open file that is gone has locked.
func (b *bridge) unlockClosed(ctx context.Context, in *fuse.ReleaseIn, f *file) {
	release := func(kind meta.LockKind, owner uint64) {
		k := locker{f.Ino(), kind, owner}
		b.releaseOwner(ctx, k, func() bool { return b.lockers.last(k, in.Fh) })
		b.lockers.forget(k, in.Fh)
	}
	if in.ReleaseFlags&fuse.FUSE_RELEASE_FLOCK_UNLOCK != 0 {
		release(meta.LockFlock, in.LockOwner)
	}
	for _, id := range f.owners.list() {
		release(meta.LockRange, id)
	}
}
