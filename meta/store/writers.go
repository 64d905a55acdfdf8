package store

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// A volume is written by one generation of writers at a time: one client, or several that share it.
// The generation (epoch) is in the inode. Opening a volume for writing raises it, durably; then
// every I/O server that may hold a part of the volume is told to refuse all earlier ones; only when
// all of them have said that they do, after a crash too, is the client answered. So a client that
// is taken for dead, and is not, changes nothing any more. Nothing is undone when that fails on the
// way: the next one who opens the volume begins with a higher number.
//
// Clients that share a volume are a group, which begins with a generation (First) and goes on with
// another one whenever somebody joins, or joins again. So whatever a process had under way that has
// died is refused before its successor is answered, as with a single writer; and what one had under
// way that lives is refused too, but its handle is open here: by renewing its capabilities it gets
// the present generation, and sends again. What tells the two apart is nothing but that the dead
// don't renew. Nobody waits for those who live, and they wait for no server that others wait for.

// first is the generation from which on writers belong to the present ones.
func (n *inode) first() uint32 {
	if n.has(flagShared) {
		return n.First
	}
	return n.Epoch
}

// member tells whether a writer of a generation is one of the present ones, if it is still there.
func (n *inode) member(epoch uint32) bool { return n.first() <= epoch && epoch <= n.Epoch }

// newWriter gives who opens a volume for writing a generation. changed: it is a new one.
func (t *txn) newWriter(o *opening, n *inode) (changed bool, err error) {
	shared := o.flags&meta.OpenShared != 0
	switch {
	case o.epoch != 0 && !n.member(o.epoch) && o.claims:
		return false, errs.NotFound // what it had open is not there any more
	case o.claims:
		return false, nil
	case n.has(flagWriters):
		err = t.soleWriter(o.c.Session, o.ino)
	}
	switch {
	case o.epoch != 0 && !n.member(o.epoch):
		return false, errs.Newf(errs.Fenced, "meta.volume", "",
			"another writer has taken over: its generation is %d, this one's was %d", n.Epoch, o.epoch)
	case err == nil && !o.named: // what is kept of a volume must not come back through another writer
		return false, errs.Newf(errs.Fenced, "meta.volume", "", "a volume is written to by its name")
	case err != nil && !(errs.KindOf(err) == errs.Busy && shared && n.has(flagShared)):
		return false, err
	}
	joins := err != nil || o.epoch != 0 || t.open.writesAlready(o.ino, o.c.Session)
	if joins && !(shared && n.has(flagShared)) {
		return false, nil
	}
	n.Epoch++
	if !joins {
		n.Flags &^= flagShared
		if shared {
			n.Flags |= flagShared
			n.First = n.Epoch
		}
	}
	t.kv.Sync = true
	return true, nil
}

// writesAlready tells whether the client of a session has an inode open for writing.
func (x *sessions) writesAlready(ino meta.Ino, session uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	self, o := x.byID[session], x.inodes[ino]
	if o == nil || self == nil {
		return false
	}
	for id := range o.writers {
		if a := x.byID[id]; id == session || a != nil && !a.ending && a.sameClient(self) {
			return true
		}
	}
	return false
}

// epochJump is how far a generation is raised that an I/O server refuses itself: metadata from a
// backup know nothing of the generations since.
const epochJump = 1 << 20

// epochTries is how often it is.
const epochTries = 8

// grantWriter keeps all earlier generations off. If that cannot be done the handle is closed.
func (s *Store) grantWriter(ctx context.Context, o *opening) error {
	err := s.fenceWriters(ctx, o.ino, o.n)
	for try := 0; errs.KindOf(err) == errs.Stale && try < epochTries; try++ {
		if err = s.surpass(ctx, o); err == nil {
			err = s.fenceWriters(ctx, o.ino, o.n)
		}
	}
	if err == nil {
		s.watched.wake(o.ino)
		return nil
	}
	if h, _ := s.sessions.opened(o.c.Session, o.id); h != nil {
		_ = s.closeHandle(context.WithoutCancel(ctx), o.c, h, &closing{})
	}
	if k := errs.KindOf(err); k != errs.Canceled && k != errs.Fenced {
		// Nobody may write before all of them know.
		err = errs.Newf(errs.Again, "meta.volume", "",
			"an I/O server could not be told who writes: %v", err)
	}
	return err
}

// surpass gives a writer whose generation an I/O server refuses a later one: the one with which its
// group has gone on meanwhile, or, where there is none and it is a new writer, one that is later
// than all that the servers can know.
func (s *Store) surpass(ctx context.Context, o *opening) error {
	was := o.n.Epoch
	return s.raiseEpoch(ctx, o.ino, o.n, func(now *inode) error {
		switch {
		case !now.member(was):
			return errs.Newf(errs.Fenced, "meta.volume", "",
				"another writer has taken over: its generation is %d, this one's was %d", now.Epoch, was)
		case now.Epoch > was:
			return errNothing
		case o.epoch != 0:
			return errs.Newf(errs.Stale, "meta.volume", "", "I/O servers know of later writers")
		}
		now.Epoch += epochJump
		return nil
	})
}

// fenceWriters has the I/O servers refuse generations below the inode's. Who waits for servers
// gives its place at the service back meanwhile.
func (s *Store) fenceWriters(ctx context.Context, ino meta.Ino, n *inode) error {
	at, ok := s.opt.Objects.(meta.WriterFencer)
	if !ok {
		return nil
	}
	if p := wait.ParkerOf(ctx); p != nil {
		p.Park()
		defer func() { _ = p.Unpark(ctx) }()
	}
	return at.FenceWriters(ctx, n.ref(ino), n.Epoch)
}

// raiseEpoch begins a generation, durably, by what raise does with the inode, if anything
// (errNothing); n becomes what the inode is then.
func (s *Store) raiseEpoch(ctx context.Context, ino meta.Ino, n *inode,
	raise func(*inode) error) error {

	_, err := s.update(ctx, &meta.Caller{}, func(t *txn) error {
		now, err := t.inode(ino)
		if err != nil {
			return err
		}
		err = raise(now)
		*n = *now
		if err != nil {
			return err
		}
		t.kv.Sync = true
		t.kv.MakesRoom = true
		t.putInode(ino, now)
		return nil
	})
	return err
}

// watched are the volumes that somebody waits for.
type watched struct {
	mu    sync.Mutex
	waits map[meta.Ino]*watch
	asked map[meta.Ino]uint32 // the first generation of those that were asked to hand over
}

type watch struct {
	n    int // who wait
	wake chan struct{}
}

// wake tells who waits that something has changed.
func (w *watched) wake(ino meta.Ino) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.waits[ino]; x != nil {
		close(x.wake)
		x.wake = make(chan struct{})
	}
}

// begin waits for a volume, with others; end must follow.
func (w *watched) begin(ino meta.Ino) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits == nil {
		w.waits = map[meta.Ino]*watch{}
	}
	x := w.waits[ino]
	if x == nil {
		x = &watch{wake: make(chan struct{})}
		w.waits[ino] = x
	}
	x.n++
	return x
}

func (w *watched) end(ino meta.Ino, x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.n--; x.n == 0 {
		delete(w.waits, ino)
	}
}

// next is closed with the next change.
func (w *watched) next(x *watch) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.wake
}

// ask notes that the writers whose first generation is given are to hand over.
func (w *watched) ask(ino meta.Ino, first uint32) {
	w.mu.Lock()
	if w.asked == nil {
		w.asked = map[meta.Ino]uint32{}
	}
	w.asked[ino] = first
	w.mu.Unlock()
	w.wake(ino)
}

// isAsked tells whether it is, and forgets what concerns no writer any more.
func (w *watched) isAsked(ino meta.Ino, first uint32, written bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of, ok := w.asked[ino]
	if ok && (of != first || !written) {
		delete(w.asked, ino)
		ok = false
	}
	return ok
}

// describe adds what only the open handles tell.
func (s *Store) describe(v *meta.Volume, n *inode) {
	written := false
	if n.has(flagWriters) {
		v.Writer, written = s.sessions.writerOf(v.Ino, 0)
	}
	v.Asked = s.watched.isAsked(v.Ino, n.first(), written)
}

// lookVolume reads a volume with all that is known of it.
func (s *Store) lookVolume(name string) (v meta.Volume, n *inode, err error) {
	err = s.look(func(t *txn) error {
		v, n, err = t.volume(name)
		return err
	})
	if err == nil {
		s.describe(&v, n)
	}
	return v, n, err
}

// AwaitVolume implements meta.VolumeChanges.
func (s *Store) AwaitVolume(ctx context.Context, _ meta.Caller, name string, seen meta.VolumeState,
	longest time.Duration) (meta.Volume, error) {

	const op = "meta.AwaitVolume"
	v, _, err := s.lookVolume(name)
	if err != nil {
		return meta.Volume{}, errs.Wrap(op, name, err)
	}
	ino, x := v.Ino, s.watched.begin(v.Ino)
	defer s.watched.end(ino, x)
	timer := time.NewTimer(min(max(longest, 0), meta.VolumeAwaitMax))
	defer timer.Stop()
	for {
		next := s.watched.next(x)
		v, _, err := s.lookVolume(name)
		if err != nil || v.State() != seen || v.Ino != ino {
			return v, errs.Wrap(op, name, err)
		}
		select {
		case <-next:
		case <-timer.C:
			return v, nil
		case <-ctx.Done():
			return meta.Volume{}, errs.Wrap(op, name, ctx.Err())
		}
	}
}

// HandOver implements meta.VolumeChanges.
func (s *Store) HandOver(ctx context.Context, c meta.Caller, name string, force bool) (
	meta.Volume, error) {

	const op = "meta.HandOver"
	v, n, err := s.lookVolume(name)
	if err == nil && !allowed(&c.Cred, n, mayWrite) {
		err = errs.Access
	}
	if err != nil || v.Writer == "" && !force {
		return v, errs.Wrap(op, name, err)
	}
	if !force {
		s.watched.ask(v.Ino, n.first())
		v.Asked = true
		return v, nil
	}
	if err := s.depose(ctx, v.Ino, n); err != nil {
		return meta.Volume{}, errs.Wrap(op, name, err)
	}
	v, _, err = s.lookVolume(name)
	return v, errs.Wrap(op, name, err)
}

// depose keeps the writers of a volume off, and takes their handles away. That comes first: whoever
// opens the volume meanwhile has a later generation than both.
func (s *Store) depose(ctx context.Context, ino meta.Ino, n *inode) error {
	err := s.raiseEpoch(ctx, ino, n, func(now *inode) error {
		now.Epoch++
		now.Flags &^= flagShared // nobody joins those who are deposed
		return nil
	})
	if err != nil {
		return err
	}
	for _, h := range s.sessions.writersOf(ino) {
		err := s.closeHandle(ctx, &meta.Caller{Session: h.session}, h, &closing{})
		if err != nil && errs.KindOf(err) != errs.Closed {
			return err
		}
	}
	err = s.fenceWriters(ctx, ino, n)
	s.watched.wake(ino)
	return err
}

// writersOf lists the handles that write to an inode.
func (x *sessions) writersOf(ino meta.Ino) (list []*handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	if o == nil {
		return nil
	}
	for id := range o.writers {
		if a := x.byID[id]; a != nil {
			for _, h := range a.open {
				if h.ino == ino && h.writes() {
					list = append(list, h)
				}
			}
		}
	}
	return list
}

// ResizeVolume implements meta.VolumeChanges. What grows has nothing in its new part; what shrinks
// is cut as a file is, so that bytes from before never come back.
func (s *Store) ResizeVolume(ctx context.Context, c meta.Caller, name string, size int64,
	shrink bool) (meta.Volume, error) {

	const op = "meta.ResizeVolume"
	err := checkResize(&c, size)
	var ino meta.Ino
	for attempt := 0; err == nil; attempt++ {
		var replayed bool
		replayed, err = s.update(ctx, &c, func(t *txn) error {
			t.kv.Sync = true
			return t.resize(&c, name, size, shrink, &ino)
		})
		if err == nil && replayed {
			err = s.kv.Sync(ctx)
		}
		if err != errPending {
			break
		}
		if err = s.settleTruncate(ctx, ino); err == nil {
			err = pause(ctx, attempt)
		}
	}
	var v meta.Volume
	if err == nil {
		v, _, err = s.lookVolume(name)
	}
	if err == nil {
		err = s.settleTruncate(ctx, v.Ino)
		s.watched.wake(v.Ino)
	}
	return v, errs.Wrap(op, name, err)
}

func checkResize(c *meta.Caller, size int64) error {
	switch {
	case size <= 0:
		return errs.Invalid
	case size > layout.FileSizeMax:
		return errs.TooBig
	}
	return checkCaller(c)
}

func (t *txn) resize(c *meta.Caller, name string, size int64, shrink bool, ino *meta.Ino) error {
	v, n, err := t.volume(name)
	if err != nil {
		return err
	}
	*ino = v.Ino
	switch {
	case !allowed(&c.Cred, n, mayWrite):
		return errs.Access
	case size == n.Size:
		return errNothing
	case size > n.Size:
		n.Size, n.Mtime, n.Ctime = size, t.now, t.now
		t.putInode(v.Ino, n)
		return nil
	case !shrink:
		return errs.Newf(errs.Invalid, "meta.volume", "",
			"it has %d bytes; what lies behind %d would be lost", n.Size, size)
	case n.has(flagWriters):
		if err := t.soleWriter(0, v.Ino); err != nil {
			return err
		}
	}
	t.kv.MakesRoom = true
	if err := t.truncate(&c.Cred, v.Ino, n, size, false); err != nil {
		return err
	}
	t.putInode(v.Ino, n)
	return nil
}
