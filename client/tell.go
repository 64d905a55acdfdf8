package client

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// What a writer has done is told by Commit, or with the closing of a handle. inode.telling is held
// meanwhile, so that what was written first is told first, and the client knows which version of
// the data the service has.

// takeDirtyLocked claims what was not told yet; whoever fails to tell it gives it back. A small
// file is told whole, under the truncations that its data has followed.
func (n *inode) takeDirtyLocked() (w meta.Change, dirty bool) {
	w, dirty = n.dirtyLocked()
	n.dirty, n.taken = false, dirty
	return w, dirty
}

// dirtyLocked is what was not told yet.
func (n *inode) dirtyLocked() (w meta.Change, dirty bool) {
	w = meta.Change{Ino: n.ino, Size: n.size, TruncSeq: n.truncSeq,
		Holes: !n.small.Load() && n.gaps.untold()}
	if n.dirty { // otherwise somebody may have set the time since
		w.Mtime = n.mtime
		if !n.wroteAt.IsZero() {
			w.Age = time.Since(n.wroteAt)
		}
	}
	if n.small.Load() && n.content.known {
		w.TruncSeq = n.content.seq
	}
	if n.small.Load() && n.dirty {
		w.Whole, w.Epoch, w.Data = true, n.lease.epoch, n.content.share()
		w.Size = int64(len(w.Data))
	}
	return w, n.dirty || w.Holes
}

func (n *inode) takeDirty() (meta.Change, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.takeDirtyLocked()
}

func (n *inode) giveBack(small bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.giveBackLocked(small)
}

// giveBackLocked leaves alone what was cut meanwhile. What was to be told of a small file is of no
// use for one that somebody else has moved out meanwhile: it is lost.
func (n *inode) giveBackLocked(small bool) {
	switch {
	case !n.taken:
	case small && !n.small.Load():
		n.loseLocked(errOvertaken())
	default:
		n.dirty = true
	}
	n.taken = false
}

// toldLocked notes that the service has what was taken.
func (n *inode) toldLocked(w *meta.Change) {
	n.taken = false
	if w.Holes && w.TruncSeq == n.truncSeq {
		n.gaps = gaps{told: true}
	}
	if w.Whole { // without gaps
		n.content.stored = w.Size
		n.gaps = gaps{}
	}
	n.followLocked()
}

// discard forgets what was not told.
func (n *inode) discard() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirty, n.taken = false, false
	n.followLocked()
}

// errLeaving is for who has inode.telling and can go on only when a lease has gone back.
var errLeaving = errs.New(errs.Again, "client", "", errors.New("a lease is being given back"))

// patience are the contexts of who tells something: how long it may wait for others, who have the
// lease or n.telling, and how long the whole may take. A request that has told data is better not
// left alone: if it comes late it undoes what was told since.
type patience struct{ wait, all context.Context }

// patient waits for as long as the whole may take.
func patient(ctx context.Context) patience { return patience{wait: ctx, all: ctx} }

// whileTelling has do done with n.telling. Who carries a recall out needs that, and another client
// waits for it: so do ends early then (asks), and is done again when the lease is gone.
func (n *inode) whileTelling(ctx context.Context, do func() error) error {
	for try := 0; ; try++ {
		if err := n.telling.take(ctx); err != nil {
			return err
		}
		err := do()
		again := errors.Is(err, errLeaving) || n.recalling() && interrupted(errs.KindOf(err))
		n.telling.giveBack()
		if !again {
			return err
		}
		if !wait.Sleep(ctx, min(pauseFirst<<min(try, 8), pauseMax)) {
			return errs.Wrap("client", "", ctx.Err())
		}
	}
}

// interrupted tells whether something may have failed like that because a lease was recalled.
func interrupted(k errs.Kind) bool {
	return k.Passing() || k == errs.MaybeDone || k == errs.Stale || k == errs.Closed
}

// commit tells the service what was written, if there is something to tell. With sync everything
// that the service was told before is on stable storage when it returns.
func (fs *FS) commit(ctx context.Context, n *inode, sync bool) error {
	return n.whileTelling(ctx, func() error { return fs.tell(patient(ctx), n, sync) })
}

// tellThen is commit, and has do done before something else is told. A small file that is closed,
// and whose session was lost before it was told, or whose closing was done without an answer, is
// opened once more.
func (fs *FS) tellThen(p patience, n *inode, do func()) (err error) {
	for range tellTries { // another session may be lost meanwhile
		err = fs.tellThrough(p, n, errs.KindOf(err) == errs.Closed, do)
		if k := errs.KindOf(err); k != errs.Stale && k != errs.Closed {
			break
		}
	}
	return err
}

// tellThrough is one attempt. anew: there is no handle by which the file can be told.
func (fs *FS) tellThrough(p patience, n *inode, anew bool, do func()) error {
	if n.untoldSmall() && (anew || !fs.hasWriter(n)) {
		w, err := fs.openUpkeep(p.wait, n.ino)
		switch errs.KindOf(err) {
		case errs.OK:
			defer w.Discard(p.all)
		case errs.NotFound:
			n.discard() // the file is gone, and what was written to it
		default:
			return err
		}
	}
	return n.whileTelling(p.wait, func() error {
		err := fs.tell(p, n, false)
		if err == nil {
			do()
		}
		return err
	})
}

// hasWriter tells whether a handle may write to a file that is open, or waits to be closed.
func (fs *FS) hasWriter(n *inode) bool {
	return fs.writer(n.ino) != nil || fs.endings.has(n, fs.sess.Load().id)
}

// tellTries is how often a small file is told whose lease was lost meanwhile: it is told under
// another one if nobody else has changed it.
const tellTries = 5

// tell tells what was written, if there is something to tell. The caller has n.telling.
func (fs *FS) tell(p patience, n *inode, sync bool) error {
	for try := 1; ; try++ {
		s := fs.sess.Load()
		err := fs.tellOnce(p, n, sync)
		again := false
		switch errs.KindOf(err) {
		case errs.Fenced:
			again = true
		case errs.Stale, errs.Closed:
			again = fs.checkTelling(p.wait, n, s, err)
			if n.unowned() {
				again = fs.writer(n.ino) != nil
			}
		}
		if !again || try == tellTries {
			return err
		}
	}
}

// checkTelling is checkSession for who has n.telling. Another client may do the same, and wait for
// this one before its files are open again.
func (fs *FS) checkTelling(ctx context.Context, n *inode, s *session, err error) bool {
	asking, done := n.asks(ctx)
	defer done()
	return fs.checkSession(asking, s, err)
}

// tellLeaving is tell for who gives a lease back. What cannot be told under it, because it is lost
// or a truncation of this client itself was first, is told under another one: nobody gets that
// before this one is back.
func (fs *FS) tellLeaving(ctx context.Context, n *inode) (err error) {
	if !n.unowned() {
		err = fs.tellOnce(patient(ctx), n, false)
	}
	if n.unowned() {
		fs.flushing.put(n)
		if errs.KindOf(err) == errs.Fenced {
			err = nil
		}
	}
	return err
}

func (fs *FS) tellOnce(p patience, n *inode, sync bool) error {
	if n.unowned() {
		err := fs.ownTelling(p.wait, n)
		if errs.KindOf(err) == errs.NotFound {
			n.discard() // the file is gone, and what was written to it
			err = nil
		}
		if err == nil && n.unowned() {
			err = errLeaving
		}
		if err != nil {
			return err
		}
	}
	w, dirty := n.takeDirty()
	if !dirty {
		if !sync {
			return nil
		}
		return errs.Wrap("client.Sync", "", fs.svc.Sync(p.all))
	}
	change := fs.cache.Change().Inode(n.ino)
	a, err := fs.svc.Commit(p.all, fs.trusted(), w, sync)
	if err != nil {
		change.End(cache.Outcome{})
		return n.notTold(&w, err)
	}
	change.End(cache.Outcome{Attrs: []*meta.Attr{&a}})
	n.mu.Lock()
	n.toldLocked(&w)
	if a.TruncSeq == w.TruncSeq { // otherwise it may be the version of what a truncation has left
		n.content.version = max(n.content.version, a.DataVersion)
	}
	n.hearLocked(&a)
	n.overlayLocked(&a)
	n.mu.Unlock()
	fs.versioned(&a)
	return nil
}

// OnVersion has fn called whenever the service was told of a change of this client to the data of a
// file: it has made the data version of after, of the one before that. Of the attributes only those
// of the data are there: the version, the length, and which truncations it knows. It is called
// before Telling says that nothing is told any more. fn must not block, and must not call the FS.
// It is for those who keep data elsewhere, and must know whether others have changed it.
func (fs *FS) OnVersion(fn func(after *meta.Attr)) { fs.onVersion.Store(&fn) }

func (fs *FS) versioned(after *meta.Attr) {
	if fn := fs.onVersion.Load(); fn != nil {
		(*fn)(after)
	}
}

// Telling tells whether the service is being told of a change of this client to a file. If it is
// not, every version of the data that the client has heard of before it asked, and that it has made
// itself, was named to OnVersion.
func (fs *FS) Telling(ino meta.Ino) bool {
	n := fs.peek(ino)
	return n != nil && len(n.telling) > 0
}

// AwaitTelling waits while Telling is true, at most until ctx ends.
func (fs *FS) AwaitTelling(ctx context.Context, ino meta.Ino) {
	if n := fs.ref(ino); n != nil {
		defer fs.unref(n)
		if n.telling.take(ctx) == nil {
			n.telling.giveBack()
		}
	}
}

// notTold settles a change that could not be told: it is told later, or lost where somebody else
// has changed a small file meanwhile.
func (n *inode) notTold(w *meta.Change, err error) error {
	n.giveBack(w.Whole)
	if w.Whole {
		switch errs.KindOf(err) {
		case errs.Fenced, errs.Stale, errs.Closed:
			n.unlease() // what is dirty is told under another lease, or not at all
		case errs.NotFound:
			n.discard() // the file is gone, and what was written to it
			return nil
		}
	}
	return errs.Wrap("client.Commit", "", err)
}

// tellShared tells what was written to a file that others have open, too, before its attributes are
// asked for: only the service knows whether somebody has set its times since.
func (fs *FS) tellShared(ctx context.Context, n *inode) error {
	n.mu.Lock()
	untold := n.dirty && n.writers > 0 && !n.small.Load() && n.lease.state == leaseNone
	n.mu.Unlock()
	if !untold {
		return nil
	}
	err := fs.commit(ctx, n, false)
	if interrupted(errs.KindOf(err)) || errs.KindOf(err) == errs.NotFound {
		err = nil // it is told later; the attributes can be asked for nevertheless
	}
	return err
}

// tellHoles tells the metadata service that a file has holes, if this client has left some that it
// does not know of: nobody must take the length for that of a dense file.
func (fs *FS) tellHoles(ctx context.Context, n *inode) error {
	if !n.holesUntold() {
		return nil
	}
	if fs.writer(n.ino) == nil { // the closing tells it
		fs.flushEndings(ctx)
		return nil
	}
	return fs.commit(ctx, n, false)
}

func (n *inode) holesUntold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.small.Load() && n.gaps.untold()
}
