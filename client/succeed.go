package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/procid"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// A client that runs again in place of a process that has died takes over what that one's sessions
// have at the service (meta.Successions): Dial ends them, so that nothing comes late of them and
// nobody waits for their leases, and takes their locks. Files are then opened by their inodes, as
// any others: handles of the old sessions keep those that have no name. EndSuccession closes what
// was not opened again. Names that the dead process had not told are told before, if it has written
// them down (recover.go). What else it alone knew, data of small files above all, is lost.

// heritage is what a client knows of the sessions that it succeeds.
type heritage struct {
	left []uint64 // to be ended
	gone bool     // one was not there any more: what it had locked may have been somebody else's

	rescued map[meta.Ino]bool // closed files whose data was in the journal, and was told

	settled atomic.Uint64 // how often something was found to be safe, or lost, that it left unsynced
}

func (o *Options) identity() string {
	if o.Identity != "" {
		return o.Identity
	}
	return procid.Name(o.Name)
}

// inherit takes over from dead processes.
func (fs *FS) inherit(ctx context.Context, s *session) error {
	if err := fs.tellInherited(ctx); err != nil {
		return err
	}
	if fs.opts.BeforeSuccession != nil {
		if err := fs.opts.BeforeSuccession(ctx); err != nil {
			return err
		}
	}
	return fs.succeed(ctx, s)
}

// succeed ends the sessions of dead processes. It comes before the new one has leases, which would
// have to wait for theirs.
func (fs *FS) succeed(ctx context.Context, s *session) error {
	for _, old := range fs.opts.Succeeds {
		err := fs.svc.Succeed(ctx, meta.Caller{Session: s.id}, old, false)
		switch errs.KindOf(err) {
		case errs.OK:
			fs.heritage.left = append(fs.heritage.left, old)
		case errs.NotFound:
			fs.heritage.gone = true
		default:
			return errs.Wrap("client.Succeed", "", err)
		}
	}
	return nil
}

// inheritLocks takes over what dead processes had locked.
func (fs *FS) inheritLocks(ctx context.Context) error {
	if len(fs.heritage.left) == 0 {
		return nil
	}
	c := meta.Caller{Session: fs.sess.Load().id}
	for _, old := range fs.heritage.left {
		if _, err := fs.svc.ClaimLocks(ctx, c, old, nil, false); err != nil {
			return errs.Wrap("client.ClaimLocks", "", err)
		}
	}
	some := false
	for after := (meta.Lock{}); ; {
		page, err := fs.svc.HeldLocks(ctx, c, after)
		if err != nil {
			return errs.Wrap("client.HeldLocks", "", err)
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			fs.locks.note(&page[i])
		}
		some, after = true, page[len(page)-1]
	}
	if !some {
		return nil
	}
	return fs.listenForLocks(ctx) // so that they are claimed from a service that is restarted
}

// Succeeded tells whether all that the sessions of Options.Succeeds had locked is still locked.
func (fs *FS) Succeeded() bool { return !fs.heritage.gone }

// EndSuccession says that all files were opened again that the dead processes had open and that are
// needed: the rest is closed. It is called once, whether there was something to take over or not.
func (fs *FS) EndSuccession(ctx context.Context) error {
	c := meta.Caller{Session: fs.sess.Load().id}
	for _, old := range fs.heritage.left {
		err := fs.svc.Succeed(ctx, c, old, true)
		if k := errs.KindOf(err); k != errs.OK && k != errs.NotFound {
			return errs.Wrap("client.EndSuccession", "", err)
		}
	}
	fs.heritage.left = nil
	return nil
}

// SessionID is the session that this client has now. It changes when one is lost: see OnSession.
func (fs *FS) SessionID() uint64 { return fs.sess.Load().id }

// OnSession has fn called with every session that takes the place of one that was lost, before
// anything is opened in it. fn must not block, and must not call the FS.
func (fs *FS) OnSession(fn func(id uint64)) { fs.onSession.Store(&fn) }

func (fs *FS) noteSession(id uint64) {
	if fn := fs.onSession.Load(); fn != nil {
		(*fn)(id)
	}
}

// Inherit is for a file that was opened in the place of a handle of a dead process, before
// EndSuccession: nobody has told the service what that one has written, and it may be more than the
// service knows. So the length is asked for until it is certain, and told when the file is closed.
// written: the dead process had written to it, and may not have said so.
func (f *File) Inherit(ctx context.Context, written bool) error {
	if f.flags&meta.OpenWrite == 0 {
		return nil
	}
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		a, err := f.fs.svc.GetAttr(ctx, meta.Caller{Session: f.fs.sess.Load().id}, f.node.ino)
		switch k := errs.KindOf(err); {
		case err == nil:
			f.node.inherit(&a, written)
			return nil
		case !k.Passing() && k != errs.MaybeDone && k != errs.IO:
			return errs.Wrap("client.Inherit", "", err)
		}
		f.fs.opts.Logger.Warn("the length of a file is not known yet", "ino", f.node.ino, "err", err)
		if !wait.Sleep(ctx, pause) {
			return errs.Wrap("client.Inherit", "", ctx.Err())
		}
	}
}

func (n *inode) inherit(a *meta.Attr, written bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.learnLocked(a)
	if n.small.Load() {
		return // what the service has is all there is
	}
	n.dirty, n.written = true, true
	if written {
		n.mtime = meta.Later(n.mtime, meta.Now())
	}
}

// LoseLocks makes all further reads and writes of a handle fail, because something that its file
// was locked for may have been locked by somebody else meanwhile.
func (f *File) LoseLocks() { f.loseLock() }

// LockedBy lists the owners of locks of one kind in a file.
func (fs *FS) LockedBy(ino meta.Ino, kind meta.LockKind) (owners []uint64) {
	fs.locks.mu.Lock()
	defer fs.locks.mu.Unlock()
	for k := range fs.locks.held {
		if k.ino == ino && k.kind == kind {
			owners = append(owners, k.owner)
		}
	}
	return owners
}

// Unsaved tells whether data of a file, or the news that some was lost, is nowhere but in this
// process.
func (fs *FS) Unsaved(ino meta.Ino) bool {
	if fs.behind.End(ino) > 0 {
		return true
	}
	n := fs.peek(ino)
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.small.Load() && (n.dirty || n.taken) || n.lost.seq > 0 && !n.lost.seen
}

// HandOver makes a process dispensable that another one is about to succeed: all that was written
// is told to the service and synced, and files that only this process knows to be open are known to
// the service. What is written afterwards is not covered. It may be called more than once.
func (fs *FS) HandOver(ctx context.Context) error {
	if err := fs.tellAll(ctx); err != nil {
		return errs.Wrap("client.HandOver", "", err)
	}
	for _, n := range fs.allInodes() {
		if err := fs.announceAll(ctx, n); err != nil {
			return errs.Wrap("client.HandOver", "", err)
		}
	}
	limit := time.Minute
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end)
	}
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		fs.flushEndings(ctx)
		fs.flushAll(ctx, limit)
		if fs.flushing.empty() && !fs.endings.untold() {
			break
		}
		if !wait.Sleep(ctx, pause) {
			return errs.Wrap("client.HandOver", "", ctx.Err())
		}
	}
	if err := fs.tellOpen(ctx); err != nil {
		return errs.Wrap("client.HandOver", "", err)
	}
	return errs.Wrap("client.HandOver", "", fs.syncKept(ctx))
}

// tellOpen tells sizes and times of all files that are open for writing.
func (fs *FS) tellOpen(ctx context.Context) error {
	for _, f := range fs.openFiles() {
		if f.flags&meta.OpenWrite == 0 || f.fixed {
			continue
		}
		err := fs.commit(ctx, f.node, false)
		switch errs.KindOf(err) {
		case errs.OK, errs.NotFound, errs.Closed: // gone, or just being closed
		default:
			return err
		}
	}
	return nil
}
