package client

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// File is an open file. Safe for concurrent use. Reads and writes do not go through the metadata
// service and are not cached here.
type File struct {
	fs    *FS
	node  *inode
	flags meta.OpenFlags

	fixed   bool // a volume: its size never changes
	append  bool // O_APPEND of the path functions
	durable bool // O_SYNC of the path functions

	how      atomic.Pointer[How]   // nil: as most
	grant    atomic.Pointer[grant] // replaced under mu, while the file is not closed
	used     atomic.Bool           // since the last round of renewals
	renewing turn                  // held while the grant is replaced

	mu     sync.Mutex
	seen   uint64 // errors of the inode reported up to this number
	dead   error  // why the file could not be opened again in a new session
	closed bool
}

// grant is what a handle shows to I/O servers. It does not change: renewal replaces it.
type grant struct {
	session uint64
	handle  uint64
	gen     uint32
	layout  layout.Layout
	caps    [][capability.Bytes]byte
}

// access keeps of open flags what counts when a file is opened again.
const access = meta.OpenRead | meta.OpenWrite

// OpenIno opens an inode.
func (fs *FS) OpenIno(ctx context.Context, cred meta.Cred, ino meta.Ino, flags meta.OpenFlags) (
	*File, error) {
	return fs.open(ctx, flags, func(ctx context.Context, c meta.Caller) (meta.Handle, error) {
		c.Cred = cred
		return fs.svc.Open(ctx, c, ino, flags)
	})
}

// CreateIno makes and opens a regular file. Without meta.OpenExclusive an existing one is opened.
func (fs *FS) CreateIno(ctx context.Context, cred meta.Cred, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (*File, error) {
	f.Type = meta.Regular
	return fs.open(ctx, flags, func(ctx context.Context, c meta.Caller) (meta.Handle, error) {
		c.Cred = cred
		return fs.svc.Create(ctx, c, dir, name, f, flags)
	})
}

// open gets a handle, once more if the session turns out to be lost, and makes a File of it.
func (fs *FS) open(ctx context.Context, flags meta.OpenFlags,
	get func(context.Context, meta.Caller) (meta.Handle, error)) (*File, error) {
	s := fs.sess.Load()
	h, err := fs.openIn(ctx, s, get)
	if err != nil && fs.checkSession(ctx, s, err) {
		s = fs.sess.Load()
		h, err = fs.openIn(ctx, s, get)
	}
	if err != nil {
		return nil, errs.Wrap("client.Open", "", err)
	}
	return fs.newFile(ctx, s, &h, flags)
}

func (fs *FS) newFile(ctx context.Context, s *session, h *meta.Handle, flags meta.OpenFlags) (
	*File, error) {
	n, err := fs.node(&h.Attr)
	if err != nil {
		_ = fs.svc.Close(ctx, meta.Caller{Session: s.id}, h.ID, false, 0, 0, 0)
		return nil, err
	}
	f := &File{fs: fs, node: n, flags: flags & access, renewing: newTurn()}
	f.grant.Store(newGrant(s.id, h))
	if h.Hints != (How{}) {
		f.SetHow(h.Hints)
	}
	n.learn(&h.Attr)
	n.mu.Lock()
	n.allowLocked(h)
	f.seen = n.baselineLocked()
	n.mu.Unlock()
	fs.mu.Lock()
	fs.files[f] = struct{}{}
	fs.mu.Unlock()
	return f, nil
}

func newGrant(session uint64, h *meta.Handle) *grant {
	return &grant{session: session, handle: h.ID, gen: h.Attr.Gen, layout: h.Attr.Layout,
		caps: h.Caps}
}

// adopt takes over a handle with its capabilities in place of the old grant; false if the file is
// closed or was given up, or somebody else has replaced that one.
func (f *File) adopt(old *grant, session uint64, h *meta.Handle) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.dead != nil || f.grant.Load() != old {
		return false
	}
	f.grant.Store(newGrant(session, h))
	f.node.allow(h)
	return true
}

// reopen opens the file again in session s, because the handle of the old grant is lost. Rights
// were checked at the first open, and the mode may forbid since what an open handle may go on
// doing; so it is done without a user's credentials.
func (f *File) reopen(ctx context.Context, s *session, old *grant) error {
	f.mu.Lock()
	idle := f.closed || f.grant.Load() != old
	f.mu.Unlock()
	if idle {
		return nil
	}
	h, err := f.openAgain(ctx, s)
	if err != nil {
		if !errs.KindOf(err).Passing() {
			f.die(old, err)
		}
		return err
	}
	f.node.learn(&h.Attr)
	if !f.adopt(old, s.id, &h) {
		f.fs.endings.put(ending{caller: meta.Caller{Session: s.id}, handle: h.ID})
	}
	return nil
}

func (f *File) openAgain(ctx context.Context, s *session) (meta.Handle, error) {
	return f.fs.openIn(ctx, s, func(ctx context.Context, c meta.Caller) (meta.Handle, error) {
		return f.fs.svc.Open(ctx, c, f.node.ino, f.flags)
	})
}

// die notes why the file cannot be used any more.
func (f *File) die(old *grant, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grant.Load() == old {
		f.dead = errs.New(errs.Stale, "client.File", "",
			errs.Wrap("the session was lost and the file could not be opened again", "", err))
	}
}

// live returns the grant of a handle that can be used.
func (f *File) live() (*grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errs.New(errs.Closed, "client.File", "", nil)
	}
	if f.dead != nil {
		return nil, f.dead
	}
	return f.grant.Load(), nil
}

// Ino is the file's inode number.
func (f *File) Ino() meta.Ino { return f.node.ino }

// Flags tell how the file was opened.
func (f *File) Flags() meta.OpenFlags { return f.flags }

// Size is the file's length as far as this client knows.
func (f *File) Size() int64 {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return f.node.size
}

// Attr is the file's attributes as last heard of, with this client's own writes.
func (f *File) Attr() meta.Attr {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	a := f.node.attr
	a.Size, a.TruncSeq = f.node.size, f.node.truncSeq
	if f.node.dirty {
		a.Mtime, a.Ctime = max(a.Mtime, f.node.mtime), max(a.Ctime, f.node.mtime)
	}
	return a
}

// Stat is Attr after asking the metadata service.
func (f *File) Stat(ctx context.Context) (meta.Attr, error) {
	a, err := f.fs.statNode(ctx, f.node.ino)
	if err != nil {
		return a, err
	}
	f.node.learn(&a)
	f.node.overlay(&a)
	return a, nil
}

// Layout tells how the file is striped. It must not be changed.
func (f *File) Layout() layout.Layout { return f.grant.Load().layout }

// Truncate sets the file's length.
func (f *File) Truncate(ctx context.Context, size int64) error {
	if _, err := f.live(); err != nil {
		return err
	}
	if err := f.writable("client.Truncate"); err != nil {
		return err
	}
	if f.fixed || size < 0 || size > layout.FileSizeMax {
		return errs.Newf(errs.Invalid, "client.Truncate", "", "size %d", size)
	}
	// The open handle is the right to truncate, as with ftruncate(2).
	_, err := f.fs.SetAttr(ctx, meta.Cred{}, f.node.ino, meta.SetSize, meta.Attr{Size: size})
	return err
}

func (f *File) writable(op string) error {
	if f.flags&meta.OpenWrite == 0 {
		return errs.Newf(errs.Closed, op, "", "the file is not open for writing")
	}
	return nil
}

// Commit tells the metadata service the file's length and time of change, so that other clients see
// them without measuring. It does not make data durable: Sync does. Errors of earlier writes that
// were not reported yet are reported here.
func (f *File) Commit(ctx context.Context) error {
	if _, err := f.live(); err != nil {
		return err
	}
	if f.flags&meta.OpenWrite == 0 || f.fixed {
		return nil
	}
	if err := f.fs.commit(ctx, f.node, false); err != nil {
		return err
	}
	return f.unreported()
}

// Lose records that data which a program takes for written is lost: Sync, Commit and Close of
// every open handle of the file report it once. It is for those who write on behalf of programs
// and answer before they are done.
func (f *File) Lose(err error) { f.node.lose(err) }

// unreported is the error of the inode that this handle has not reported yet.
func (f *File) unreported() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, err := f.node.report(f.seen)
	f.seen = seen
	return err
}

// Close commits size and time of change, if there is something to commit, and ends the handle. It
// does not make data durable, except of a volume: what is unsynced there could be sent again over
// what the next writer wrote. The handle is gone even when it fails.
func (f *File) Close(ctx context.Context) error {
	var unsynced error
	if f.fixed && f.flags&meta.OpenWrite != 0 {
		unsynced = f.Sync(ctx)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return errs.New(errs.Closed, "client.Close", "", nil)
	}
	f.closed = true
	dead := f.dead
	f.mu.Unlock()

	// What could not be synced is kept here and will be sent again, so no other client may write:
	// the service's handle stays until the session ends.
	var err error
	if !errs.KindOf(unsynced).Passing() {
		err = f.closeHandle(ctx, dead != nil)
	}
	if err == nil && dead == nil {
		err = unsynced
	}
	f.fs.mu.Lock()
	delete(f.fs.files, f)
	f.fs.mu.Unlock()
	if f.flags&meta.OpenWrite != 0 {
		if lost := f.unreported(); err == nil {
			err = lost
		}
	}
	f.fs.unref(f.node)
	return errs.Wrap("client.Close", "", err)
}

// closeHandle ends the handle of a file that is marked as closed: nobody replaces it any more. When
// the service cannot be told now it is told later.
func (f *File) closeHandle(ctx context.Context, dead bool) error {
	if dead {
		return nil // the service let go of it with the old session
	}
	e := ending{handle: f.grant.Load().handle,
		caller: meta.Caller{Session: f.grant.Load().session}}
	if f.flags&meta.OpenWrite != 0 && !f.fixed {
		e.change, e.dirty = f.node.takeDirty()
		e.node = f.node
	}
	err := f.endOnce(ctx, &e)
	switch k := errs.KindOf(err); {
	case k == errs.Closed || k == errs.Stale && !e.dirty:
		return nil // an earlier attempt succeeded and its answer was lost, or the session ended
	case k == errs.NotFound:
		return nil // the file is gone, and what was written to it
	}
	if err != nil {
		f.fs.endings.put(e)
		if e.dirty {
			f.node.giveBack()
		}
	}
	return err
}

// endOnce closes a handle. Where it is gone with its session, and what was written is not told yet,
// that needs another one.
func (f *File) endOnce(ctx context.Context, e *ending) error {
	s := f.fs.sess.Load()
	err := f.fs.endHandle(ctx, e)
	if err == nil || !e.dirty || !f.fs.checkSession(ctx, s, err) {
		return err
	}
	s = f.fs.sess.Load()
	h, err := f.openAgain(ctx, s)
	if err != nil {
		return err
	}
	e.caller.Session, e.handle = s.id, h.ID
	return f.fs.endHandle(ctx, e)
}
