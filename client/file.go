package client

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	metaremote "github.com/sluice-storage/sluice/meta/remote"
)

// File is an open file. Safe for concurrent use. Reads and writes do not go through the metadata
// service and are not cached here.
type File struct {
	fs    *FS
	node  *inode
	flags meta.OpenFlags
	cred  meta.Cred // whose it is

	volume string // its name, if it is one

	fixed   bool // a volume: nothing that is written changes its size
	shared  bool // a volume, with other writers
	append  bool // O_APPEND of the path functions
	durable bool // O_SYNC of the path functions
	strict  bool // WithStrict

	how      atomic.Pointer[How]   // nil: as most
	grant    atomic.Pointer[grant] // replaced under mu, while the file is not closed
	used     atomic.Bool           // since the last round of renewals
	renewing turn                  // held while the grant is replaced
	ofInode  list.Link[File]       // in inode.files

	mu     sync.Mutex
	seen   uint64 // errors of the inode reported up to this number
	dead   error  // why the file could not be opened again in a new session
	closed bool
}

// grant is what a handle shows to I/O servers. It does not change: renewal replaces it.
type grant struct {
	session uint64
	handle  uint64 // 0: the service does not know of it (see local.go)
	gen     uint32
	epoch   uint32 // of a volume's writer
	layout  layout.Layout
	caps    [][capability.Bytes]byte
}

// access keeps of open flags what counts when a file is opened again.
const access = meta.OpenRead | meta.OpenWrite

// OpenIno opens an inode. It may have to wait at the service behind another client that waits for a
// lease of this one: who gives that back needs inode.telling, and only tries for inode.coming. What
// is told while the file is emptied is told under the truncations that it has followed, and refused
// if this one was first.
func (fs *FS) OpenIno(ctx context.Context, cred meta.Cred, ino meta.Ino, flags meta.OpenFlags) (
	*File, error) {
	return fs.openIno(ctx, cred, ino, flags, false)
}

// openUpkeep opens a file for a moment to tell or sync what was written to it, also while the FS is
// being closed.
func (fs *FS) openUpkeep(ctx context.Context, ino meta.Ino) (*File, error) {
	f, err := fs.openIno(ctx, meta.Cred{}, ino, meta.OpenWrite, true)
	if n := fs.peek(ino); errs.KindOf(err) == errs.Access && n != nil {
		// The service does not believe that this is root's business: who has written may write.
		n.mu.Lock()
		cred := n.author
		n.mu.Unlock()
		f, err = fs.openIno(ctx, cred, ino, meta.OpenWrite, true)
	}
	return f, err
}

func (fs *FS) openIno(ctx context.Context, cred meta.Cred, ino meta.Ino, flags meta.OpenFlags,
	upkeep bool) (*File, error) {
	f, err := fs.openLocal(&cred, ino, flags)
	if f == nil && err == nil && flags == meta.OpenRead && fs.readAhead(ctx, ino) {
		f, err = fs.openLocal(&cred, ino, flags)
	}
	if f != nil || err != nil {
		return f, errs.Wrap("client.Open", "", err)
	}
	if n := fs.ref(ino); n != nil {
		defer fs.unref(n)
		if flags&meta.OpenWrite != 0 {
			if err := n.coming.take(ctx); err != nil {
				return nil, err
			}
			defer n.coming.giveBack()
		}
	}
	open := func(ctx context.Context, c meta.Caller) (h meta.Handle, err error) {
		if flags&(meta.OpenWrite|meta.OpenTruncate) == 0 {
			return fs.svc.Open(ctx, c, ino, flags)
		}
		change := fs.cache.Change().Inode(ino)
		h, err = fs.svc.Open(ctx, c, ino, flags)
		change.End(settled(ctx, outcome(err, &h.Attr)))
		return h, err
	}
	o := opening{fs: fs, cred: cred, flags: flags, get: open, upkeep: upkeep}
	return o.open(ctx)
}

// CreateIno makes and opens a regular file. Without meta.OpenExclusive an existing one is opened.
func (fs *FS) CreateIno(ctx context.Context, cred meta.Cred, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (*File, error) {
	f.Type = meta.Regular
	if made, err := fs.createHere(ctx, &cred, dir, name, &f, flags); made != nil || err != nil {
		return made, err
	}
	create := func(ctx context.Context, c meta.Caller) (h meta.Handle, err error) {
		was, _, _ := fs.cache.Ino(dir, name)
		change := fs.cache.Change().Name(dir, name).Inode(was)
		h, err = fs.svc.Create(ctx, c, dir, name, f, flags)
		o := outcome(err, &h.Attr)
		if err == nil {
			o.Names = []cache.Named{{Dir: dir, Name: name, Ino: h.Attr.Ino, Type: meta.Regular}}
			if flags&meta.OpenExclusive != 0 || newborn(&h.Attr) {
				o.Names[0] = made(dir, name, &h.Attr)
			}
			if newborn(&h.Attr) {
				o.At = h.Attr.Ctime
			}
		}
		change.End(settled(ctx, o))
		return h, err
	}
	o := opening{fs: fs, cred: cred, flags: flags, get: create, makes: true}
	return o.open(ctx)
}

// newborn tells whether a file that Create has opened can only be one that it has made: nobody has
// ever written to it, linked it or changed it.
func newborn(a *meta.Attr) bool {
	return a.Size == 0 && a.DataVersion == 0 && a.TruncSeq == 0 && a.Nlink == 1 &&
		a.Atime == a.Btime && a.Mtime == a.Btime && a.Ctime == a.Btime
}

// addFile makes a File. The reference to n becomes its own.
func (fs *FS) addFile(n *inode, g *grant, cred meta.Cred, flags meta.OpenFlags) *File {
	f := &File{fs: fs, node: n, flags: flags & access, cred: cred, renewing: newTurn()}
	f.grant.Store(g)
	n.mu.Lock()
	f.seen = n.baselineLocked()
	n.files.PushLast(&f.ofInode, f)
	if f.flags&meta.OpenWrite != 0 {
		n.writers++
		if cred.UID != 0 {
			n.author = cred
		}
	}
	n.mu.Unlock()
	fs.mu.Lock()
	fs.files[f] = struct{}{}
	fs.mu.Unlock()
	return f
}

func newGrant(session uint64, h *meta.Handle) *grant {
	return &grant{session: session, handle: h.ID, gen: h.Attr.Gen, epoch: h.Epoch,
		layout: h.Attr.Layout, caps: h.Caps}
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
	f.node.widen(h.Attr.Layout.Width())
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
	t := f.fs.cache.Begin()
	h, err := f.openAgain(ctx, s)
	if err != nil {
		switch k := errs.KindOf(err); {
		case k.Passing() || k == errs.MaybeDone:
		case k == errs.Stale: // that session is lost, too: there will be another one
		default:
			err = f.die(old, err)
		}
		return err
	}
	f.node.accept(f.fs, t, &h.Attr, meta.SmallData{Bytes: h.Data}, byOpen)
	f.replace(old, s.id, &h)
	return nil
}

// replace takes over a handle in place of the one that was lost, or that the service did not know
// of; if nobody needs it, it is closed.
func (f *File) replace(old *grant, session uint64, h *meta.Handle) {
	switch adopted := f.adopt(old, session, h); {
	case !adopted:
		f.node.hold()
		f.fs.endings.put(f.ending(session, h.ID))
	case old.handle == 0:
		f.node.announced()
		if h.Hints != (How{}) {
			f.SetHow(h.Hints)
		}
	}
}

// openAgain opens what is open here already. Others may wait for that.
func (f *File) openAgain(ctx context.Context, s *session) (meta.Handle, error) {
	ctx = metaremote.ForUpkeep(ctx)
	if f.volume != "" {
		return f.openVolumeAgain(ctx, s)
	}
	return f.fs.openIn(ctx, s, func(ctx context.Context, c meta.Caller) (meta.Handle, error) {
		h, err := f.fs.svc.Open(ctx, c, f.node.ino, f.flags)
		if errs.KindOf(err) == errs.Access && f.cred.UID != 0 { // root is not believed
			c.Cred = f.cred
			h, err = f.fs.svc.Open(ctx, c, f.node.ino, f.flags)
		}
		return h, err
	})
}

// ending is a handle of the file that is to be closed. It takes over a reference to the inode.
func (f *File) ending(session, handle uint64) ending {
	return ending{caller: meta.Caller{Session: session, Leases: true}, handle: handle,
		flags: f.flags, uid: f.cred.UID, node: f.node}
}

// die notes why the file cannot be used any more, and returns it as whoever uses it hears it.
func (f *File) die(old *grant, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := errs.Stale
	if errs.KindOf(err) == errs.Fenced {
		kind = errs.Fenced
	}
	err = errs.New(kind, "client.File", "",
		errs.Wrap("the session was lost and the file could not be opened again", "", err))
	if f.grant.Load() == old {
		f.dead = err
	}
	return err
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
	return f.node.attrLocked()
}

// Doubtful tells whether others may have changed the file since Attr was heard of: a lease was
// recalled, or the service did not answer when the file was locked.
func (f *File) Doubtful() bool {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return f.node.recalled
}

// Stat is Attr after asking the metadata service, where no lease says that this client knows best.
func (f *File) Stat(ctx context.Context) (meta.Attr, error) {
	return f.fs.statNode(ctx, f.node.ino)
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
// them without measuring. Under a lease there is nothing to tell yet: whoever asks has it recalled.
// It does not make data durable: Sync does. Errors of earlier writes that were not reported yet are
// reported here.
func (f *File) Commit(ctx context.Context) error {
	told, err := f.tell(ctx)
	if err == nil && told {
		err = f.unreported()
	}
	return err
}

// Flush is Commit that leaves errors to be reported once more, by Sync or Close: it is for who
// closes one of several descriptors of the file, and may not care. A process that is started with
// the file open closes it, too.
func (f *File) Flush(ctx context.Context) error {
	told, err := f.tell(ctx)
	if err == nil && told {
		f.mu.Lock()
		defer f.mu.Unlock()
		err = f.node.lostSince(f.seen)
	}
	return err
}

// tell is what Commit tells the service. told: the file may have errors to report.
func (f *File) tell(ctx context.Context) (told bool, err error) {
	if _, err := f.live(); err != nil {
		return false, err
	}
	if f.flags&meta.OpenWrite == 0 || f.fixed {
		return false, nil
	}
	if !f.node.leased(f.fs) {
		err = f.fs.commit(ctx, f.node, false)
	}
	return true, err
}

// unreported is the error of the inode that this handle has not reported yet.
func (f *File) unreported() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, err := f.node.report(f.seen)
	f.seen = seen
	return err
}

// Close ends the handle. Size, time of change and the data of a small file are told to the metadata
// service: before Close returns, or in the background under a lease, so that everybody sees them
// from then on. It does not make data durable, except of a volume: what is unsynced there could be
// sent again over what the next writer wrote. The handle is gone even when it fails; what is found
// out later is reported by other handles of the file, and in the log.
func (f *File) Close(ctx context.Context) error {
	again, err := f.close(ctx)
	if again {
		err = errs.New(errs.Closed, "client.Close", "", nil)
	}
	return err
}

// close is Close; again: the handle was closed before.
func (f *File) close(ctx context.Context) (again bool, err error) {
	var unsynced error
	if f.fixed && f.flags&meta.OpenWrite != 0 {
		unsynced = f.Sync(ctx)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return true, nil
	}
	f.closed = true
	dead := f.dead
	f.mu.Unlock()

	if dead == nil && f.flags&meta.OpenWrite != 0 && !f.fixed && !f.node.leased(f.fs) {
		err = f.closeTelling(ctx)
	}
	if err == nil && dead == nil {
		err = unsynced
	}
	if f.flags&meta.OpenWrite != 0 {
		if lost := f.unreported(); err == nil {
			err = lost
		}
	}
	f.endHandle(ctx, dead != nil, unsynced)
	return false, errs.Wrap("client.Close", "", err)
}

// closeTelling tells what was written before a handle is closed without a lease. If that fails it
// is told with the closing.
func (f *File) closeTelling(ctx context.Context) error {
	err := f.fs.commit(ctx, f.node, false)
	switch k := errs.KindOf(err); k {
	case errs.NotFound:
		return nil // the file is gone, and what was written to it
	case errs.Closed, errs.Stale:
		f.fs.checkSession(ctx, f.fs.sess.Load(), err) // or somebody else has replaced it
		w, oerr := f.fs.openUpkeep(ctx, f.node.ino)
		if oerr != nil {
			return oerr
		}
		defer w.Discard(ctx)
		return f.fs.commit(ctx, f.node, false)
	}
	return err
}

// endHandle gives the handle of a file up that is marked as closed: nobody replaces it any more.
// That of a dead one is there, too, unless it went with its session: the service knows. What could
// not be synced of a volume is kept here and will be sent again, so no other client may write: its
// handle stays until the session ends.
func (f *File) endHandle(ctx context.Context, dead bool, unsynced error) {
	n, g := f.node, f.grant.Load()
	defer func() { // until then a claim finds the handle here, from then on in the queue
		f.fs.mu.Lock()
		delete(f.fs.files, f)
		f.fs.mu.Unlock()
		n.mu.Lock()
		n.files.Remove(&f.ofInode)
		n.mu.Unlock()
	}()
	n.mu.Lock()
	if f.flags&meta.OpenWrite != 0 {
		n.writers--
	}
	if g.handle == 0 {
		n.content.local--
	}
	n.mu.Unlock()
	if dead {
		dead = f.fixed || g.session != f.fs.sess.Load().id
	}
	if g.handle == 0 || dead || errs.KindOf(unsynced).Passing() {
		f.fs.unref(n)
		return
	}
	if f.fs.closeHere(f, g) {
		return
	}
	f.fs.endings.put(f.ending(g.session, g.handle))
	if f.fixed { // others wait for it
		f.fs.flushEndings(ctx)
	}
}
