package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/perm"
)

// A local handle is one that the service does not know of: its grant has no handle. It is made
// where a small file is opened for reading whose data is known under a lease, and needs nothing of
// anybody as long as the lease is there. It is announced, which makes it a handle like others, when
// the lease is recalled or lost, before this client itself takes the file's name away, and when
// something is asked of it that the cache does not know.

// openLocal opens a file without asking anybody; nil if that is not possible.
func (fs *FS) openLocal(u *meta.Cred, ino meta.Ino, flags meta.OpenFlags) (*File, error) {
	if flags != meta.OpenRead {
		return nil, nil
	}
	a, data, ok := fs.knownSmall(ino)
	if !ok || a.Type != meta.Regular || a.Nlink == 0 { // only handles keep what has no name
		return nil, nil
	}
	if !perm.Allowed(u, perm.Of(&a), perm.Read) {
		return nil, errs.Access
	}
	n, err := fs.node(&a, false)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.content.local++
	n.content.kept = append([]byte{}, data...) // never nil
	n.mu.Unlock()
	f := fs.addFile(n, &grant{session: fs.sess.Load().id, gen: a.Gen, layout: a.Layout}, *u, flags)
	if _, _, ok := fs.knownSmall(ino); !ok {
		// The lease went back before this handle was there to be announced: who recalled it may have
		// removed the file.
		if err := f.Close(context.Background()); err != nil {
			return nil, err
		}
		return nil, nil
	}
	return f, nil
}

// knownSmall is a small file whose data is known under a lease.
func (fs *FS) knownSmall(ino meta.Ino) (a meta.Attr, data []byte, ok bool) {
	if n := fs.peek(ino); n != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.small.Load() && n.ownedLocked(fs) {
			a = n.attr
			n.overlayLocked(&a)
			return a, n.content.share(), true
		}
		if n.dirty || n.taken {
			return a, nil, false
		}
	}
	return fs.cache.Data(ino)
}

// announce makes a local handle known to the service. A file that is gone shows from then on what
// it held, if nobody can have changed it since: its lease went back in order.
func (f *File) announce(ctx context.Context) error {
	g := f.grant.Load()
	if g.handle != 0 || f.node.removed() {
		return nil
	}
	if err := f.renewing.take(ctx); err != nil {
		return err
	}
	defer f.renewing.giveBack()
	if f.grant.Load() != g {
		return nil
	}
	if _, err := f.live(); err != nil {
		return err
	}
	for try := 1; ; try++ {
		s, t := f.fs.sess.Load(), f.fs.cache.Begin()
		h, err := f.openAgain(ctx, s)
		switch {
		case err == nil:
			f.node.accept(f.fs, t, &h.Attr, meta.SmallData{Bytes: h.Data}, byOpen)
			f.fs.cache.PutData(t, &h.Attr, h.Data)
			f.replace(g, s.id, &h)
			return nil
		case errs.KindOf(err) == errs.NotFound:
			f.node.remove()
			return nil
		case try < openTries && (errs.KindOf(err) == errs.MaybeDone || f.fs.checkSession(ctx, s, err)):
		default:
			return errs.Wrap("client.Open", "", err)
		}
	}
}

// announced notes that there is one local handle less.
func (n *inode) announced() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.content.local--
}

// announceAll makes all local handles of a file known to the service.
func (fs *FS) announceAll(ctx context.Context, n *inode) error {
	n.mu.Lock()
	local := n.content.local
	n.mu.Unlock()
	if local == 0 {
		return nil
	}
	var failed error
	for _, f := range n.opened(0) {
		err := f.announce(ctx)
		if err != nil && failed == nil && errs.KindOf(err) != errs.Closed { // it is being closed
			failed = err
		}
	}
	return failed
}

// announceLocal makes all local handles of a session known to the service, when the leases are lost
// under which they were made: nobody recalls those any more.
func (fs *FS) announceLocal(s *session) {
	for pause := pauseFirst; fs.sess.Load() == s; pause = min(2*pause, endPauseMax) {
		var failed error
		for _, n := range fs.allInodes() {
			if err := fs.announceAll(fs.life, n); err != nil {
				failed = err
			}
		}
		if failed == nil {
			return
		}
		fs.opts.Logger.Warn("open files are not known to the service", "err", failed)
		if k := errs.KindOf(failed); !k.Passing() && k != errs.MaybeDone || !wait.Sleep(fs.life, pause) {
			return
		}
	}
}

// number gives a local handle a number of its own, by which it is claimed.
func (f *File) number(g *grant) *grant {
	var id [8]byte
	for binary.BigEndian.Uint64(id[:]) == 0 {
		rand.Read(id[:])
	}
	own := *g
	own.handle = binary.BigEndian.Uint64(id[:])
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.grant.Load() != g {
		return f.grant.Load()
	}
	f.grant.Store(&own)
	f.node.announced()
	return &own
}

// removed tells whether the file is gone while only local handles had it open.
func (n *inode) removed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.content.gone
}

// present tells whether a handle can be written through.
func (f *File) present() error {
	if _, err := f.live(); err != nil {
		return err
	}
	if f.node.removed() {
		return errs.Newf(errs.Stale, "client.File", "", "the file was removed")
	}
	return nil
}

func (n *inode) remove() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.content.gone = true
}

// last is the attributes of a file that is gone.
func (n *inode) last() meta.Attr {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.attrLocked()
	a.Nlink, a.Lease = 0, meta.LeaseNone
	return a
}

// showKept shows what a removed file held.
func (f *File) showKept(show func(data []byte)) bool {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.content.gone || n.content.kept == nil {
		return false
	}
	show(n.content.kept)
	return true
}

// WritesAlone tells whether nobody but this client can change the file at this moment.
func (f *File) WritesAlone() bool { return f.node.leased(f.fs) }

// leased tells whether changes of a file need not be told at once.
func (n *inode) leased(fs *FS) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lease.state == leaseHeld && fs.cache.Valid()
}
