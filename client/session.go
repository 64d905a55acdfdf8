package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// session is one session with the metadata service. It does not change: a lost one is replaced.
type session struct {
	id     uint64
	lease  time.Duration // how long the session lasts
	leases time.Duration // how long its leases on inodes last
	ready  chan struct{} // closed when the files of the one before it are open in this one
	acking atomic.Bool   // a goroutine says which recalls were carried out

	squashed, readOnly bool // what the service says of this client's rights

	current context.Context    // ends when it is replaced, or with the FS
	end     context.CancelFunc // ends that
}

// renewBatch is how many handles one Renew carries: 256 capabilities of width 8 are 128 KiB.
const renewBatch = 256

func (fs *FS) newSession(ctx context.Context) (*session, error) {
	info, err := fs.svc.NewSession(ctx, fs.name)
	if err != nil {
		return nil, errs.Wrap("client.NewSession", "", err)
	}
	fs.leases.begin(&info)
	s := &session{id: info.ID, lease: time.Duration(info.LeaseMs) * time.Millisecond,
		leases: time.Duration(info.LeaseTimeMs) * time.Millisecond, ready: make(chan struct{}),
		squashed: info.Squashed, readOnly: info.ReadOnly}
	s.current, s.end = context.WithCancel(fs.life)
	return s, nil
}

// Squashed tells whether the service does not believe this client to be root: then requests must be
// made as the users who ask (see identity.Squash).
func (fs *FS) Squashed() bool { return fs.sess.Load().squashed }

// ReadOnly tells whether the service lets this client change nothing.
func (fs *FS) ReadOnly() bool { return fs.sess.Load().readOnly }

// checkSession finds out whether an error means that the session is lost (it is refused, or its
// handles are unknown), and replaces it then. It returns true when the caller should try again.
func (fs *FS) checkSession(ctx context.Context, s *session, err error) bool {
	if k := errs.KindOf(err); k != errs.Stale && k != errs.Closed {
		return false
	}
	// Somebody else may have replaced it, or it has only just replaced another: what has failed may
	// be a file that is about to be opened again.
	now := fs.sess.Load()
	select {
	case <-now.ready:
		if now != s {
			return true
		}
	default:
		select {
		case <-now.ready:
			return true
		case <-ctx.Done():
			return false
		}
	}
	if k := errs.KindOf(fs.svc.KeepAlive(ctx, s.id)); k != errs.Stale && k != errs.NotFound {
		return false
	}
	if fs.replaceSession(ctx, s) != nil {
		return false
	}
	select {
	case <-fs.sess.Load().ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// replaceSession starts a new session in the place of old. Every file is opened again in it beside
// the caller, who may be the listener: other clients that do the same wait for what this one has
// opened already. When that is done ready says so.
func (fs *FS) replaceSession(ctx context.Context, old *session) error {
	if err := fs.remake.take(ctx); err != nil {
		return err
	}
	defer fs.remake.giveBack()
	if fs.sess.Load() != old {
		return nil
	}
	s, err := fs.newSession(ctx)
	if err != nil {
		return err
	}
	fs.sess.Store(s)
	old.end() // who listens in it must listen in this one, or its leases run out
	fs.noteSession(s.id)
	fs.dropLeases(false)
	if err := fs.listenOnce(ctx, s, false); err != nil { // who has not listened gets no leases
		fs.opts.Logger.Debug("a new session does not listen yet", "err", err)
	}
	fs.opts.Logger.Warn("the session was lost; files are opened again", "old", old.id, "new", s.id)
	if !fs.claimLocks(ctx, s, old.id) { // that waits for nobody
		fs.loseLocks(fs.locks.all()) // nothing is written through what may be lost
	}
	if !fs.background(func() { fs.reopenAll(fs.life, s, old) }) {
		fs.reopenAll(ctx, s, old) // for who closes the FS, and has something to tell
	}
	return nil
}

// reopenAll opens the files of a session that was lost in another one. A file that cannot be opened
// any more (it was unlinked and the service has let go of it) fails from then on; the others go on.
func (fs *FS) reopenAll(ctx context.Context, s, old *session) {
	defer close(s.ready)
	select {
	case <-old.ready: // it may have been lost so soon that its files are just being opened
	case <-ctx.Done():
		return
	}
	for _, f := range fs.openFiles() {
		var err error
		for try := 1; try <= openTries && fs.sess.Load() == s; try++ {
			g := f.grant.Load()
			if g.session == s.id {
				break // opened again already, or opened in the new session
			}
			if err = f.reopen(ctx, s, g); errs.KindOf(err) != errs.MaybeDone {
				break
			}
		}
		if err != nil {
			fs.opts.Logger.Warn("an open file could not be opened again", "ino", f.node.ino, "err", err)
		}
	}
}

func (fs *FS) openFiles() []*File {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	files := make([]*File, 0, len(fs.files))
	for f := range fs.files {
		files = append(files, f)
	}
	return files
}

// renewUsed renews the capabilities of those handles that were used since its last round. Idle
// handles are left alone: their first use finds the capability expired and renews it then.
func (fs *FS) renewUsed() {
	for wait.Sleep(fs.life, fs.renewEvery()) {
		var used []*File
		for _, f := range fs.openFiles() {
			if f.used.Swap(false) {
				used = append(used, f)
			}
		}
		for len(used) > 0 {
			n := min(len(used), renewBatch)
			if err := fs.renew(fs.life, used[:n]); err != nil {
				fs.opts.Logger.Warn("renewing capabilities failed", "err", err)
			}
			used = used[n:]
		}
	}
}

func (fs *FS) renewEvery() time.Duration {
	if d := fs.opts.RenewEvery; d > 0 {
		return d
	}
	return max(fs.sess.Load().lease*2/3, 10*time.Millisecond)
}

// renew fetches fresh capabilities for the files. Files whose handle the service does not know any
// more are opened again.
func (fs *FS) renew(ctx context.Context, files []*File) error {
	s := fs.sess.Load()
	ids := make([]uint64, 0, len(files))
	asked := make([]*File, 0, len(files))
	grants := make([]*grant, 0, len(files))
	for _, f := range files {
		if g := f.grant.Load(); g.session == s.id && g.handle != 0 {
			ids, asked, grants = append(ids, g.handle), append(asked, f), append(grants, g)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	handles, err := fs.svc.Renew(ctx, meta.Caller{Session: s.id}, ids)
	if err != nil {
		if fs.checkSession(ctx, s, err) {
			return nil // all files were opened again
		}
		return err
	}
	if len(handles) != len(ids) {
		return errs.Newf(errs.Protocol, "client.Renew", "", "%d handles asked for, %d renewed",
			len(ids), len(handles))
	}
	var failed error
	for i := range handles {
		if len(handles[i].Caps) > 0 {
			asked[i].adopt(grants[i], s.id, &handles[i])
		} else if err := asked[i].reopen(ctx, s, grants[i]); err != nil {
			failed = err
		}
	}
	return failed
}

// Statfs is the room of the file system; for an inode that belongs to a tree with a quota, that of
// the tree.
func (fs *FS) Statfs(ctx context.Context, ino meta.Ino) (meta.FSStat, error) {
	st, err := fs.svc.StatFS(ctx, ino)
	return st, errs.Wrap("client.Statfs", "", err)
}
