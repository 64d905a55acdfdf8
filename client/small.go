package client

import (
	"context"
	"io"
	"time"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/stripe"
)

// Small files: the data of a file of at most meta.SmallMax bytes lies with its metadata, and no I/O
// server has anything of it.
//
// A client that writes one holds LeaseWrite. It has all of the data in memory (content), reads and
// writes it there, and tells it whole: with Sync and Close, when the lease is recalled, and at the
// latest a moment after a write (flushing). Without the lease, which another client's question
// takes away, the next write asks for it again. Who only reads has the data with the answer that
// led him to the file, under LeaseRead (FS.cache), or asks for it.
//
// A file that grows beyond the limit, or that a second client wants to write, moves out: its data
// is written to the I/O servers, and then the service is told. Writes wait meanwhile.
//
// A handle that only reads a file whose data is known under a lease need not be known to the
// service (local). Before the lease goes back it is announced, so that a file that is removed
// meanwhile stays there for it.

// content is the data of a small file.
type content struct {
	data   []byte // all of it, with what was written here
	known  bool
	shared bool // data is read elsewhere: it is copied before it is changed
	frozen bool // it is moving out: nothing is written

	version uint64 // the service's data version that data began with, or was told as
	seq     uint64 // the truncation that data has followed
	stored  int64  // how much of it the service may have
	spilled meta.Spilled
	longer  bool   // spilled was raised over a truncation of this client, which cut nothing there
	out     uint64 // the version that a move-out of all of it leads to that may be done; 0: of none

	local int    // handles that the service does not know of
	kept  []byte // what these show once the file is gone; nil: nobody knows
	gone  bool
}

// share lends the data out, unchanged from then on.
func (c *content) share() []byte {
	c.shared = true
	return c.data
}

// resize makes the data n bytes long and this inode's own. What is added is zero.
func (c *content) resize(n int64) {
	if int64(len(c.data)) == n && !c.shared {
		return
	}
	if c.shared || int64(cap(c.data)) < n {
		next := make([]byte, min(n, int64(len(c.data))), max(n, min(2*n, meta.SmallMax)))
		copy(next, c.data)
		c.data, c.shared = next, false
	}
	if was := int64(len(c.data)); n > was {
		c.data = c.data[:n]
		clear(c.data[was:])
		return
	}
	c.data = c.data[:n]
}

// cut follows a truncation.
func (c *content) cut(a *meta.Attr) {
	c.seq = a.TruncSeq
	if !c.known {
		return
	}
	if a.Size > meta.SmallMax {
		c.data, c.known = nil, false
		return
	}
	c.resize(a.Size)
}

// ownedLocked tells whether the data is this client's to read and change.
func (n *inode) ownedLocked(fs *FS) bool {
	return n.lease.state == leaseHeld && n.content.known && fs.cache.Valid()
}

func (n *inode) owned(fs *FS) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ownedLocked(fs)
}

// unowned tells whether there is something to be told of a small file without a lease to tell it
// under.
func (n *inode) unowned() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.small.Load() && n.dirty && n.lease.state == leaseNone
}

// untold tells whether this client knows of something that the service does not.
func (n *inode) untold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dirty || n.taken
}

// view shows the data, under the lock.
func (n *inode) view(fs *FS, show func(data []byte)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ownedLocked(fs) {
		return false
	}
	show(n.content.data)
	return true
}

// change has put write to [from, end) of the data, under the lock. end below 0 stands for the end
// of the file, whatever it is: nothing grows.
func (n *inode) change(fs *FS, from, end int64, put func(data []byte)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ownedLocked(fs) || n.content.frozen {
		return false
	}
	n.content.resize(max(end, int64(len(n.content.data))))
	put(n.content.data)
	n.wroteLocked(from, max(end, from), n.truncSeq)
	return true
}

// attach writes p behind the end; the file must be moved out where it does not fit.
func (n *inode) attach(fs *FS, p []byte, note func(int64)) (off int64, fits, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	off = int64(len(n.content.data))
	if !n.ownedLocked(fs) || n.content.frozen {
		return 0, true, false
	}
	if off+int64(len(p)) > meta.SmallMax {
		return off, false, false
	}
	note(off)
	n.content.resize(off + int64(len(p)))
	copy(n.content.data[off:], p)
	n.wroteLocked(off, off+int64(len(p)), n.truncSeq)
	return off, true, true
}

// accept takes over what an answer says of a file that is open here: attributes, the lease, and the
// data of a small file. What was written under a lease that is still held stays. So does what was
// written under one that was lost, if nobody else has changed the file since: it is as it was, or
// as this client has told it; that is decided by whoever has n.telling (byTeller), because the
// service may be about to take what was told.
func (n *inode) accept(fs *FS, t cache.Token, a *meta.Attr, data meta.SmallData, by source) {
	decide := by == byTeller
	n.mu.Lock()
	defer n.mu.Unlock()
	held, busy := n.lease.state == leaseHeld && fs.cache.Valid(), n.dirty || n.taken
	same := a.DataVersion == n.content.version || fs.leases.mine(data.Teller)
	n.learnLocked(a)
	if !n.small.Load() {
		n.movedLocked()
		n.grantedLocked(fs, t, a, by)
		return
	}
	if n.content.known && a.DataVersion < n.content.version {
		return // the answer was overtaken by one to what this client has told since
	}
	keep := n.content.known && (held || n.dirty && same)
	if busy && !held && !decide || !keep && data.Bytes == nil && a.Size > 0 ||
		!n.grantedLocked(fs, t, a, by) {
		return // a lease without the data is of no use
	}
	if keep {
		if n.behindLocked(a.TruncSeq) && !same {
			return // a truncation of this client itself, whose answer is on its way: see cut
		}
		n.content.seq = max(n.content.seq, a.TruncSeq)
		n.content.version = max(n.content.version, a.DataVersion)
		return
	}
	if n.dirty {
		n.dirty = false
		n.loseLocked(errOvertaken())
	}
	n.content.data, n.content.known, n.content.shared = data.Bytes, true, true
	n.content.version, n.content.stored, n.content.seq = a.DataVersion, a.Size, a.TruncSeq
	n.size = a.Size
}

// source is what led to an answer.
type source uint8

const (
	byLook   source = iota
	byOpen          // a handle was opened
	byTeller        // asked by who has inode.telling
)

func errOvertaken() error {
	return errs.Newf(errs.IO, "client.File", "",
		"another client has changed the file while this one could not be reached")
}

// movedLocked forgets the data of a file that is not small any more.
func (n *inode) movedLocked() {
	if !n.content.known {
		return
	}
	n.content = content{local: n.content.local, version: n.content.version, seq: n.content.seq}
	n.gaps = gaps{}
}

// own makes the data of a small file this client's to change. The file must be open for writing. A
// lease that is being given back is given back first.
func (fs *FS) own(ctx context.Context, n *inode) error {
	return n.whileTelling(ctx, func() error {
		err := fs.ownTelling(ctx, n)
		if err == nil && n.recalling() {
			return errLeaving
		}
		return err
	})
}

// askWriterEach is how often, among its attempts to get a lease, a client asks whether the service
// knows that it writes the file.
const askWriterEach = 4

// ownTelling is own for those who have n.telling. It returns when a lease is recalled: who carries
// that out needs n.telling.
func (fs *FS) ownTelling(ctx context.Context, n *inode) error {
	asking, done := n.asks(ctx)
	defer done()
	err := fs.askToOwn(asking, n)
	if asking.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return errs.Wrap("client.own", "", err)
}

// askToOwn asks for the lease until it is there, or one is recalled. While others ask for the file
// all the time the service gives no lease for a moment.
func (fs *FS) askToOwn(ctx context.Context, n *inode) error {
	var paused time.Duration
	for try := 0; n.small.Load() && !n.owned(fs) && !n.recalling(); try++ {
		if try > 0 {
			if err := fs.keepWriter(ctx, n, try%askWriterEach == 0); err != nil {
				return err
			}
			pause := min(pauseFirst<<min(try, 8), pauseMax)
			if !wait.Sleep(ctx, pause) {
				return ctx.Err()
			}
			if paused += pause; paused > callMax(fs.opts.WaitMax) {
				return errs.Newf(errs.TimedOut, "", "", "the service lends nothing on the file")
			}
		}
		s := fs.sess.Load()
		t := fs.cache.Begin()
		a, data, err := fs.svc.ReadSmall(ctx, fs.trusted(), n.ino)
		switch errs.KindOf(err) {
		case errs.OK:
			if n.mayBeCut(&a) && fs.cutting.Load() > 0 {
				continue // a truncation of this client may be the reason, which knows soon
			}
			n.accept(fs, t, &a, data, byTeller)
			continue
		case errs.Invalid:
			err = fs.recheck(ctx, n)
		case errs.Stale, errs.Closed:
			if fs.checkSession(ctx, s, err) {
				err = nil
			}
		case errs.Canceled:
			if ctx.Err() == nil {
				continue
			}
		}
		if err != nil || try > refreshMax {
			return err
		}
	}
	return nil
}

// keepWriter sees to it that the session has a file open for writing: only then it gets a lease to
// write. A handle may be left from a session that was lost. One that is being closed is there until
// it is in the queue. With ask the service is asked, too: the answer to a closing may have been
// lost, or a handle not been claimed from a service that was restarted.
func (fs *FS) keepWriter(ctx context.Context, n *inode, ask bool) error {
	s := fs.sess.Load()
	handles := fs.writing(n, s.id)
	if len(handles) > 0 && (!ask || fs.knows(ctx, s, handles)) {
		return nil
	}
	if w := fs.writer(n.ino); w != nil {
		return w.renewFrom(ctx, w.grant.Load())
	}
	return errs.Newf(errs.Closed, "client.own", "", "the file is not open for writing any more")
}

// writing are the handles of a file that may write, those that wait to be closed too.
func (fs *FS) writing(n *inode, session uint64) (handles []uint64) {
	for _, f := range n.opened(meta.OpenWrite) {
		if g := f.grant.Load(); g.session == session && g.handle != 0 {
			handles = append(handles, g.handle)
		}
	}
	return fs.endings.handles(n, session, handles)
}

// knows tells whether the service knows one of some handles, unless it does not say so.
func (fs *FS) knows(ctx context.Context, s *session, handles []uint64) bool {
	for len(handles) > 0 {
		some := handles[:min(len(handles), renewBatch)]
		known, err := fs.svc.Renew(ctx, meta.Caller{Session: s.id}, some)
		if err != nil {
			return true // whoever asks for the lease hears of that, too
		}
		for i := range known {
			if len(known[i].Caps) > 0 {
				return true
			}
		}
		handles = handles[len(some):]
	}
	return false
}

// recheck asks whether a file is small.
func (fs *FS) recheck(ctx context.Context, n *inode) error {
	t := fs.cache.Begin()
	a, err := fs.svc.GetAttr(ctx, fs.trusted(), n.ino)
	if err == nil {
		n.accept(fs, t, &a, meta.SmallData{}, byTeller)
		fs.cache.PutAttr(t, &a)
	}
	return err
}

// readSmall shows the data of a small file. done is false where the file is not small.
func (f *File) readSmall(ctx context.Context, show func(data []byte)) (done bool, err error) {
	n := f.node
	for n.small.Load() {
		if _, err := f.live(); err != nil {
			return true, err
		}
		if n.view(f.fs, show) {
			return true, nil
		}
		if _, data, ok := f.fs.cache.Data(n.ino); ok && !n.untold() {
			show(data)
			return true, nil
		}
		if done, err := f.fetchSmall(ctx, show); done || err != nil {
			return true, err
		}
	}
	return false, nil
}

// fetchSmall gets the data from the service, after everything that this client has to tell.
func (f *File) fetchSmall(ctx context.Context, show func(data []byte)) (done bool, err error) {
	n, fs := f.node, f.fs
	if err := f.announce(ctx); err != nil {
		return false, err
	}
	if n.removed() {
		if !f.showKept(show) {
			return true, errs.Newf(errs.Stale, "client.Read", "", "the file was removed")
		}
		return true, nil
	}
	if fs.writer(n.ino) != nil {
		err := fs.own(ctx, n)
		if errs.KindOf(err) == errs.Closed && fs.writer(n.ino) == nil {
			err = nil // the writer is gone, which has nothing to do with this handle
		}
		return false, err
	}
	s := fs.sess.Load()
	var asked error
	err = fs.tellThen(patient(ctx), n, func() { done, asked = f.readTold(ctx, show) })
	if err != nil {
		return false, err
	}
	switch errs.KindOf(asked) {
	case errs.Stale, errs.Closed:
		if fs.checkSession(ctx, s, asked) {
			return false, nil
		}
	case errs.Canceled:
		if ctx.Err() == nil {
			return false, nil
		}
	}
	return done, errs.Wrap("client.Read", "", asked)
}

// readTold asks for the data. The caller has n.telling, and has told everything.
func (f *File) readTold(ctx context.Context, show func(data []byte)) (done bool, err error) {
	n, fs := f.node, f.fs
	t := fs.cache.Begin()
	a, data, err := fs.askSmall(ctx, n)
	switch errs.KindOf(err) {
	case errs.OK:
		n.learn(&a)
		fs.cache.PutData(t, &a, data.Bytes)
		show(data.Bytes)
		return true, nil
	case errs.Invalid:
		return false, fs.recheck(ctx, n)
	}
	return false, err
}

// askSmall reads a small file, and asks for the lease where this client writes it. The caller has
// n.telling, and asks again after errs.Canceled unless that was its own context.
func (fs *FS) askSmall(ctx context.Context, n *inode) (meta.Attr, meta.SmallData, error) {
	asking, done := n.asks(ctx)
	defer done()
	return fs.svc.ReadSmall(asking, fs.trusted(), n.ino)
}

// writeSmall has put change [from, end) of a small file; end below 0: nothing grows. done is false
// where the file is not small, or not any more.
func (f *File) writeSmall(ctx context.Context, dir direction, from, end int64,
	put func(data []byte)) (done bool, err error) {
	n, fs := f.node, f.fs
	for n.small.Load() {
		if err := f.present(); err != nil {
			return true, err
		}
		if end > meta.SmallMax {
			if err := fs.moveOut(ctx, f); err != nil {
				return true, err
			}
			continue
		}
		if n.change(fs, from, end, put) {
			return true, f.wroteSmall(ctx, dir)
		}
		if err := fs.own(ctx, n); err != nil {
			return true, err
		}
	}
	return false, nil
}

// wroteSmall sees to it that a write is told in time.
func (f *File) wroteSmall(ctx context.Context, dir direction) error {
	if dir == writingDurably {
		return f.commitSynced(ctx, true)
	}
	f.fs.flushing.put(f.node)
	return nil
}

// appendSmall is Append for a small file that has room for it.
func (f *File) appendSmall(ctx context.Context, dir direction, p []byte, note func(int64)) (
	off int64, done bool, err error) {
	n, fs := f.node, f.fs
	for n.small.Load() {
		if err := f.present(); err != nil {
			return 0, true, err
		}
		if err := f.roomAtEnd(ctx, int64(len(p))); err != nil {
			return 0, true, err
		}
		off, fits, ok := n.attach(fs, p, note)
		switch {
		case ok:
			return off, true, f.wroteSmall(ctx, dir)
		case fits:
			err = fs.own(ctx, n)
		default:
			err = fs.moveOut(ctx, f)
		}
		if err != nil {
			return 0, true, err
		}
	}
	return 0, false, nil
}

// mapSmall is Map for a small file.
func (f *File) mapSmall(ctx context.Context, off, n int64) (
	out []stripe.Extent, done bool, err error) {
	var size int64
	done, err = f.readSmall(ctx, func(data []byte) { size = int64(len(data)) })
	if !done || err != nil || off >= size || n == 0 {
		return nil, done, err
	}
	return []stripe.Extent{{Off: off, Len: min(n, size-off)}}, true, nil
}

// readSmallAt is ReadAt for a small file.
func (f *File) readSmallAt(ctx context.Context, p []byte, off int64) (
	n int, done bool, err error) {
	done, err = f.readSmall(ctx, func(data []byte) { n = copyAt(p, data, off) })
	switch {
	case err != nil:
		return 0, done, errs.Wrap("client.Read", "", err)
	case done && n < len(p):
		err = io.EOF
	}
	return n, done, err
}

// copyAt copies what data has from off on.
func copyAt(p, data []byte, off int64) int {
	if off >= int64(len(data)) {
		return 0
	}
	return copy(p, data[off:])
}
