package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/journal"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/perm"
)

// Names that are told later.
//
// A directory that this client has made is lent to it alone (meta.LeaseSole): nobody else knows
// what is in it. What programs make and remove there is done in this client at once, with inode
// numbers that the service has given out before, and told in batches, in order (telllater.go): a
// moment later, and before anything else that concerns the same inodes is asked of the service
// (told.go), that the lease goes back, or that something is synced. So everybody sees what has
// returned, and the death of this client takes the last of it, as that of a host takes what was not
// synced.
//
// Where anything is not simple the service is asked as ever: names that are not known to be free,
// modes with more than permissions, layouts, users that may not, directories that pass something
// on. A file is removed like that only if nobody else can know of it: it has no other name, and was
// made here, during the same tenure of its directory, or nobody else uses it (hold.go). One that
// was not told yet costs nothing.
//
// A file is open by a handle whose number this client has chosen. It is told with its data if it is
// closed by then, which closes nothing at the service, and without if it is open.

// Bounds of what is not told: operations, and bytes of files that are closed. Whoever does more
// waits until they are.
const (
	untoldMax      = 4096
	untoldBytesMax = 16 << 20
)

// numbersEach is how many inode numbers are asked for at once; with a quarter of them left the next
// ones are.
const numbersEach = meta.NumbersMax / 2

// deferral is what was done here and not told. Made by newDeferral.
type deferral struct {
	token chan struct{} // one token: there is something to tell
	round turn          // held while it is told
	count atomic.Int64  // operations that are not told

	mu      sync.Mutex
	dirs    map[meta.Ino]*tenure
	list    []*deed // in order
	busy    *message
	births  map[meta.Ino]*deed // what was made
	handles map[uint64]*deed   // by which files that were made are open
	touches map[meta.Ino]*deed // the last one of a directory that says nothing but that it has changed
	inodes  map[meta.Ino]int   // how many operations concern each
	bytes   int64
	seq     uint64 // of the last operation
	told    uint64 // up to which all are told
	tenures uint64
	next    meta.Ino // numbers that are left
	end     meta.Ino
	asking  bool
	off     time.Time // nothing is deferred before
	wishes  wishes
	lost    error // that nobody has heard of
	stats   DeferredStats
	journal *journal.Journal // nil: there is none
	record  []byte           // memory for what is put there
}

// tenure is a directory that this client holds alone.
type tenure struct {
	id      uint64
	session uint64
	epoch   uint64
	serial  uint64 // of the lease, or of that of the directory that it was made in
}

// number tells tenures apart; 0: of none.
func (n *tenure) number() uint64 {
	if n == nil {
		return 0
	}
	return n.id
}

// deed is an operation that is not told.
type deed struct {
	meta.Deferred
	seq     uint64
	session uint64
	epoch   uint64
	sent    bool
	closed  bool
	bytes   int64
	ending  ending // closed: the handle, with a reference to the inode
	item    int    // in message.batch, of a file that is told closed; -1: of another one

	noted       journal.Ref // in the journal; zero: it is not there
	notedClosed journal.Ref // how it is told when it is closed; zero: not said
	closedAs    meta.Change // what that says
	inherited   bool        // another process has done it
	failed      bool        // it could not be told
}

// DeferredStats tell what names were made and removed without asking the metadata service.
type DeferredStats struct {
	Made, Removed uint64 // so far
	Void          uint64 // of these, what was made and removed before it was told
	Batches       uint64 // in which they were told
	Untold        int64  // that are not
	UntoldBytes   int64  // in files among these that are closed
	Lost          uint64 // that could not be told
	Inherited     uint64 // that a process before this one had not told, and this one has
	Directories   int    // that are held alone
	Held          uint64 // directories that were there before, so far
}

func newDeferral(j *journal.Journal) deferral {
	return deferral{journal: j, token: make(chan struct{}, 1), round: newTurn(),
		dirs: map[meta.Ino]*tenure{}, births: map[meta.Ino]*deed{}, handles: map[uint64]*deed{},
		inodes: map[meta.Ino]int{}, touches: map[meta.Ino]*deed{}}
}

// Deferred tells of names that are told later.
func (fs *FS) Deferred() DeferredStats {
	d := &fs.deferral
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Untold, s.UntoldBytes, s.Directories = d.count.Load(), d.bytes, len(d.dirs)
	return s
}

// defers tells whether this client does so at all.
func (fs *FS) defers() bool { return fs.opts.Cache >= 0 && fs.opts.TellLater >= 0 }

// holds notes that a directory that was just made is held alone. t is from before it was asked for.
func (fs *FS) holds(t cache.Token, session uint64, a *meta.Attr) {
	d := &fs.deferral
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.Lease != meta.LeaseSole || !fs.cache.Granted(t, a.Ino) || fs.sess.Load().id != session {
		return
	}
	d.holdLocked(a.Ino, session, fs.leases.current(), a.Serial)
	fs.numbersLocked()
}

func (d *deferral) holdLocked(dir meta.Ino, session, epoch, serial uint64) *tenure {
	d.tenures++
	n := &tenure{d.tenures, session, epoch, serial}
	d.dirs[dir] = n
	return n
}

// release ends the tenure of a directory that passes something on from now on, perhaps; 0 stands
// for all.
func (d *deferral) release(dir meta.Ino) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dir == 0 {
		clear(d.dirs)
	}
	delete(d.dirs, dir)
}

// leaves ends the tenure of a directory whose lease is recalled, in the same moment in which the
// cache hears of that. It tells whether something is to be told of an inode before its lease goes
// back.
func (d *deferral) leaves(c *cache.Cache, ino meta.Ino) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.dirs, ino)
	c.Recall(ino)
	return d.inodes[ino] > 0
}

// drop ends all tenures: leases are lost. Numbers are not known to another life of the service, or
// in another session.
func (d *deferral) drop(c *cache.Cache) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.dirs)
	d.next, d.end = 0, 0
	c.Drop()
}

// numberLocked takes an inode number; 0: there is none at hand.
func (fs *FS) numberLocked() (ino meta.Ino) {
	d := &fs.deferral
	if d.next < d.end {
		ino = d.next
		d.next++
	}
	fs.numbersLocked()
	return ino
}

// numbersLocked has numbers asked for in the background, if there are few. Those that are left are
// given up for them: they are many.
func (fs *FS) numbersLocked() {
	d := &fs.deferral
	if d.asking || d.end-d.next > numbersEach/4 {
		return
	}
	s := fs.sess.Load()
	d.asking = fs.background(func() { fs.askNumbers(s) })
}

func (fs *FS) askNumbers(s *session) {
	d := &fs.deferral
	life := fs.leases.lives()
	first, n, err := fs.raw.Numbers(fs.life, meta.Caller{Session: s.id}, numbersEach)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asking = false
	if err != nil || fs.sess.Load() != s || fs.leases.lives() != life {
		return // whoever needs one asks again
	}
	d.next, d.end = first, first+meta.Ino(n)
}

// plainMode are the bits of a mode that mean the same to everybody.
const plainMode = 0o777

// mayDefer tells whether something may be made by itself.
func (fs *FS) mayDefer(ctx context.Context, name string, f *meta.NewFile) bool {
	if !fs.defers() || f.Mode&^plainMode != 0 || f.Unit != 0 || f.Width != 0 || f.Pool != "" ||
		name == "" || isDots(name) || len(name) > meta.NameMax || strings.ContainsAny(name, "/\x00") {
		return false
	}
	if v, ok := ctx.Value(RequestKey{}).(Identified); ok && v.Repeated() {
		return false // another process may have done it
	}
	return true
}

// roomToDefer waits while too much is not told.
func (fs *FS) roomToDefer(ctx context.Context) error {
	d := &fs.deferral
	d.mu.Lock()
	full, upTo := len(d.list) >= untoldMax || d.bytes >= untoldBytesMax, d.seq
	d.mu.Unlock()
	if !full {
		return nil
	}
	return fs.tellUpTo(ctx, upTo)
}

// tenureLocked is the directory in which a user may change names, and whether it is held alone.
func (fs *FS) tenureLocked(u *meta.Cred, dir meta.Ino, checked bool) (*tenure, bool) {
	d := &fs.deferral
	n := d.dirs[dir]
	if n == nil || n.session != fs.sess.Load().id || !fs.cache.Valid() || time.Now().Before(d.off) {
		return nil, false
	}
	a, ok := fs.cache.Rights(dir)
	if !ok || a.Type != meta.Directory || a.Mode&^plainMode != 0 || a.Default != "" {
		return nil, false
	}
	return n, checked || perm.Allowed(u, perm.Of(&a), perm.Write|perm.Search)
}

// createHere is CreateIno without the service; nil: it must be asked.
func (fs *FS) createHere(ctx context.Context, cred *meta.Cred, dir meta.Ino, name string,
	f *meta.NewFile, flags meta.OpenFlags) (*File, error) {
	if flags&meta.OpenNameless != 0 || !fs.mayDefer(ctx, name, f) || !fs.holdToMake(ctx, dir) {
		return nil, nil
	}
	if err := fs.roomToDefer(ctx); err != nil {
		return nil, errs.Wrap("client.Open", name, err)
	}
	d := &fs.deferral
	d.mu.Lock()
	defer d.mu.Unlock()
	w, n := fs.newDeedLocked(cred, dir, name, f)
	if w == nil {
		return nil, nil
	}
	t := fs.cache.Begin()
	w.Open, w.Handle = flags&access, newHandle()
	a := w.attr(n.serial)
	h := meta.Handle{ID: w.Handle, Attr: a, Data: []byte{}}
	if h.Attr.Lease = meta.LeaseRead; flags&meta.OpenWrite != 0 {
		h.Attr.Lease, h.Attr.Writers = meta.LeaseWrite, true
	}
	node, err := fs.node(&h.Attr, false)
	if err != nil {
		return nil, err
	}
	file := fs.addFile(node, newGrant(n.session, &h), *cred, flags)
	node.accept(fs, t, &h.Attr, meta.SmallData{Bytes: h.Data}, byOpen)
	node.allow(&h)
	d.handles[w.Handle] = w
	fs.bornLocked(w, n, &h.Attr, fs.cache.Change().Name(dir, name))
	return file, nil
}

// makeHere is MakeIno without the service; false: it must be asked.
func (fs *FS) makeHere(ctx context.Context, cred *meta.Cred, dir meta.Ino, name string,
	f *meta.NewFile) (a meta.Attr, done bool, err error) {
	switch f.Type {
	case meta.Regular, meta.Directory, meta.Fifo, meta.Socket:
	case meta.Symlink:
		if f.Target == "" || len(f.Target) > meta.SymlinkMax {
			return a, false, nil
		}
	default:
		return a, false, nil
	}
	if !fs.mayDefer(ctx, name, f) || !fs.holdToMake(ctx, dir) {
		return a, false, nil
	}
	if err := fs.roomToDefer(ctx); err != nil {
		return a, true, err
	}
	d := &fs.deferral
	d.mu.Lock()
	defer d.mu.Unlock()
	w, n := fs.newDeedLocked(cred, dir, name, f)
	if w == nil {
		return a, false, nil
	}
	a = w.attr(n.serial)
	change := fs.cache.Change().Name(dir, name)
	fs.bornLocked(w, n, &a, change)
	if a.Type == meta.Directory {
		d.holdLocked(a.Ino, n.session, n.epoch, n.serial)
	}
	return a, true, nil
}

// holdsDir tells whether a directory is held alone, for who wants to know before he does more.
func (fs *FS) holdsDir(dir meta.Ino) bool {
	d := &fs.deferral
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dirs[dir] != nil
}

// newDeedLocked begins to make something with a name that is free; nil: the service must be asked.
func (fs *FS) newDeedLocked(cred *meta.Cred, dir meta.Ino, name string, f *meta.NewFile) (
	*deed, *tenure) {
	n, may := fs.tenureLocked(cred, dir, f.Checked)
	if !may {
		return nil, nil
	}
	if there, _, known := fs.cache.Ino(dir, name); !known || there != 0 {
		return nil, nil
	}
	if !fs.deferral.mayNoteLocked(f.Target) {
		return nil, nil
	}
	ino := fs.numberLocked()
	if ino == 0 {
		return nil, nil
	}
	mode := f.Mode &^ f.Umask
	if f.Type == meta.Symlink {
		mode = plainMode
	}
	return &deed{item: -1, session: n.session, epoch: n.epoch, Deferred: meta.Deferred{
		Kind: meta.DeferMake, Dir: dir, Name: name, Ino: ino, At: meta.Now(),
		File: meta.NewFile{Type: f.Type, Mode: mode, Target: f.Target},
		UID:  cred.UID, GID: cred.GID, Gen: newGeneration()}}, n
}

// attr is what the service will say of what was made.
func (w *deed) attr(serial uint64) meta.Attr {
	a := meta.Attr{Ino: w.Ino, Type: w.File.Type, Mode: w.File.Mode, UID: w.UID, GID: w.GID,
		Nlink: 1, Atime: w.At, Mtime: w.At, Ctime: w.At, Btime: w.At, Gen: w.Gen,
		Small: w.File.Type == meta.Regular, Lease: meta.LeaseRead, Serial: serial}
	switch w.File.Type {
	case meta.Directory:
		a.Nlink, a.Parent = 2, w.Dir
	case meta.Symlink:
		a.Size = int64(len(w.File.Target))
	}
	return a
}

// bornLocked puts what was made into the cache and into the list.
func (fs *FS) bornLocked(w *deed, n *tenure, a *meta.Attr, change *cache.Change) {
	d := &fs.deferral
	change.End(cache.Outcome{Attrs: []*meta.Attr{a}, Born: true, At: w.At, Tenure: n.id,
		Names: []cache.Named{made(w.Dir, w.Name, a)}, Target: w.File.Target})
	d.births[w.Ino] = w
	d.stats.Made++
	d.putLocked(w)
}

func (d *deferral) putLocked(w *deed) {
	d.seq++
	w.seq = d.seq
	d.list = append(d.list, w)
	d.inodes[w.Dir]++
	d.inodes[w.Ino]++
	d.count.Add(1)
	d.noteLocked(w)
	d.wake()
}

func (d *deferral) wake() {
	select {
	case d.token <- struct{}{}:
	default:
	}
}

// newGeneration draws the first generation of a file, as the service does.
func newGeneration() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return 1 + binary.BigEndian.Uint32(b[:])>>1
}

func newHandle() uint64 { return meta.HandleOf(newRequest()) }

// closeHere closes a file that was made here and is not told; false: the service knows of the
// handle, or is about to.
func (fs *FS) closeHere(f *File, g *grant) bool {
	d := &fs.deferral
	if d.count.Load() == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.handles[g.handle]
	if w == nil || w.sent || w.closed || !d.noteClosedLocked(w, f.node) {
		return false
	}
	w.closed, w.bytes = true, f.Size()
	w.ending = f.ending(g.session, g.handle)
	d.bytes += w.bytes
	return true
}

// removeHere is RemoveIno without the service; false: it must be asked.
func (fs *FS) removeHere(ctx context.Context, cred *meta.Cred, dir meta.Ino, name string,
	isDir bool) (done bool, err error) {
	if !fs.mayDefer(ctx, name, &meta.NewFile{}) || !fs.holdToRemove(ctx, dir, name, isDir) {
		return false, nil
	}
	if err := fs.roomToDefer(ctx); err != nil {
		return true, err
	}
	d := &fs.deferral
	d.mu.Lock()
	n, may := fs.tenureLocked(cred, dir, false)
	if !may {
		d.mu.Unlock()
		return false, nil
	}
	ino, typ, known := fs.cache.Ino(dir, name)
	if !known || ino == 0 || isDir != (typ == meta.Directory) || !d.mayNoteLocked("") ||
		!fs.mayRemoveLocked(n, ino, isDir) {
		d.mu.Unlock()
		return false, nil
	}
	at := meta.Now()
	void := fs.removeLocked(n, dir, name, ino, typ, at)
	d.mu.Unlock()
	if void != nil && void.closed {
		void.ending.node.discard()
		fs.unref(void.ending.node)
	}
	return true, nil
}

// mayRemoveLocked tells whether nobody else can know of what is to be removed, and nobody here has
// it open.
func (fs *FS) mayRemoveLocked(t *tenure, ino meta.Ino, isDir bool) bool {
	d := &fs.deferral
	if isDir {
		return d.dirs[ino] != nil && fs.cache.Empty(ino)
	}
	if fs.cache.Tenure(ino) != t.id {
		return false
	}
	if w := d.births[ino]; w != nil {
		return !w.sent && (w.Open == 0 || w.closed && !w.ending.node.open())
	}
	n := fs.peek(ino)
	return d.inodes[ino] == 0 && (n == nil || n.idle(&fs.flushing))
}

// idle tells whether nobody has a file open, and nothing of it is to be told or closed: it is only
// about to be looked at by who tells what was written.
func (n *inode) idle(q *flushing) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	refs := n.refs
	if _, flushed := q.nodes[n]; flushed {
		refs--
	}
	return refs == 0 && !n.dirty && !n.taken
}

// open tells whether programs have a file open.
func (n *inode) open() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.files.First() != nil
}

// removeLocked takes a name away. void is what was to be made and is not told any more.
func (fs *FS) removeLocked(n *tenure, dir meta.Ino, name string, ino meta.Ino, typ meta.Type,
	at meta.Time) (void *deed) {
	d := &fs.deferral
	change := fs.cache.Change().Name(dir, name).Inode(ino)
	change.End(cache.Outcome{At: at, Names: []cache.Named{{Dir: dir, Name: name}}})
	fs.cache.Recall(ino)
	d.stats.Removed++
	delete(d.dirs, ino)
	if w := d.births[ino]; w != nil && typ != meta.Directory {
		d.voidLocked(w, at)
		return w
	}
	d.putLocked(&deed{item: -1, session: n.session, epoch: n.epoch, Deferred: meta.Deferred{
		Kind: meta.DeferRemove, Dir: dir, Name: name, Ino: ino, At: at,
		File: meta.NewFile{Type: typ}}})
	return nil
}

// voidLocked has something not told that was made and is gone: only that its directory has changed.
func (d *deferral) voidLocked(w *deed, at meta.Time) {
	d.stats.Void++
	d.takeOutLocked(w)
	last := d.touches[w.Dir]
	touch := &deed{item: -1, session: w.session, epoch: w.epoch,
		Deferred: meta.Deferred{Kind: meta.DeferTouch, Dir: w.Dir, At: at}}
	if last != nil && !last.sent { // the last time counts
		d.takeOutLocked(last)
		defer d.strikeDeedLocked(last)
	}
	d.touches[w.Dir] = touch
	d.putLocked(touch)
	d.strikeDeedLocked(w) // when it is there in their place
}

// takeOutLocked takes an operation out of the list.
func (d *deferral) takeOutLocked(w *deed) {
	i := len(d.list) - 1
	for d.list[i] != w { // it is one of the last ones, mostly
		i--
	}
	d.list = slices.Delete(d.list, i, i+1)
	d.endLocked(w)
}

// endLocked forgets an operation.
func (d *deferral) endLocked(w *deed) {
	if d.births[w.Ino] == w {
		delete(d.births, w.Ino)
	}
	if d.handles[w.Handle] == w {
		delete(d.handles, w.Handle)
	}
	if d.touches[w.Dir] == w {
		delete(d.touches, w.Dir)
	}
	d.bytes -= w.bytes
	for _, ino := range []meta.Ino{w.Dir, w.Ino} {
		if d.inodes[ino]--; d.inodes[ino] == 0 {
			delete(d.inodes, ino)
		}
	}
	d.count.Add(-1)
}
