package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// listenForLocks starts the listener, if it does not run. The first one who asks for a lock learns
// the number of the service's life before, so that a restart behind that is noticed.
func (fs *FS) listenForLocks(ctx context.Context) error {
	if fs.locks.lifeOf() != 0 {
		return nil
	}
	if err := fs.locks.listening.take(ctx); err != nil {
		return err
	}
	defer fs.locks.listening.giveBack()
	if fs.locks.lifeOf() != 0 {
		return nil
	}
	s := fs.sess.Load()
	news, err := fs.svc.AwaitLocks(ctx, meta.Caller{Session: s.id}, 0, 0, 0)
	if err != nil && fs.checkSession(ctx, s, err) {
		s = fs.sess.Load()
		news, err = fs.svc.AwaitLocks(ctx, meta.Caller{Session: s.id}, 0, 0, 0)
	}
	if err != nil {
		return err
	}
	fs.locks.setLife(news.Life)
	if !fs.background(func() { fs.hearLocks(s, news) }) {
		return errs.New(errs.Closed, "client.Lock", "", nil)
	}
	return nil
}

// hearLocks listens until the FS is closed.
func (fs *FS) hearLocks(s *session, heard meta.LockNews) {
	for pause := pauseFirst; fs.life.Err() == nil; {
		if now := fs.sess.Load(); now != s {
			select { // its locks are claimed before
			case <-now.ready:
			case <-fs.life.Done():
				return
			}
			s, heard.Next = now, 0
			fs.askAgain(s)
		}
		news, err := fs.svc.AwaitLocks(fs.life, meta.Caller{Session: s.id}, heard.Life, heard.Next,
			meta.LockAwaitMax)
		switch {
		case err != nil:
			if !fs.checkSession(fs.life, s, err) && !wait.Sleep(fs.life, pause) {
				return
			}
			pause = min(2*pause, pauseMax)
			continue
		case news.Life != heard.Life:
			if !fs.claimLocks(fs.life, s, s.id) {
				continue // the session is lost too, or the service is away again
			}
			fs.locks.setLife(news.Life)
			fs.askAgain(s)
		}
		pause, heard = pauseFirst, news
		for _, v := range news.Events {
			var outcome error
			if v.Kind != errs.OK {
				outcome = errs.New(v.Kind, "client.Lock", "", nil)
			}
			fs.locks.end(v.ID, outcome)
		}
	}
}

// claimLocks claims what is held, in a session that may have taken the place of old; false if that
// could not be done. What is lost is lost for its holders.
func (fs *FS) claimLocks(ctx context.Context, s *session, old uint64) bool {
	if fs.locks.lifeOf() == 0 {
		return true
	}
	fs.locks.newRound()
	held := fs.locks.all()
	lost, err := fs.svc.ClaimLocks(ctx, meta.Caller{Session: s.id}, old, held, false)
	if err != nil {
		fs.opts.Logger.Warn("locks could not be claimed", "locks", len(held), "err", err)
		return false
	}
	fs.locks.newRound()
	fs.loseLocks(lost)
	for i := range held { // what was released in between must not come back
		if l := held[i]; !fs.locks.has(&l) {
			fs.background(func() { fs.restoreLater(s.id, l) })
		}
	}
	return true
}

// loseLocks makes the handles of files whose locks are lost fail.
func (fs *FS) loseLocks(lost []meta.Lock) {
	files := map[meta.Ino]bool{}
	for i := range lost {
		fs.locks.forget(&lost[i])
		files[lost[i].Ino] = true
		fs.opts.Logger.Error("a lock is lost: others may have had it; the file must be opened again",
			"ino", lost[i].Ino, "owner", lost[i].Owner)
	}
	if len(files) == 0 {
		return
	}
	for _, f := range fs.openFiles() {
		if files[f.node.ino] {
			f.loseLock()
		}
	}
}

// loseLock makes all further reads and writes of a handle fail.
func (f *File) loseLock() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead == nil {
		f.dead = errs.Newf(errs.IO, "client.File", "", "a lock of the file was lost with the session")
	}
}

// askAgain sends the requests that wait once more, with their old ids, to a service or in a session
// that does not know them.
func (fs *FS) askAgain(s *session) {
	for id, l := range fs.locks.waiting() {
		c := meta.Caller{Session: s.id, ReqID: id}
		state, err := fs.svc.Lock(fs.life, c, l, meta.LockWait)
		if err != nil || state == meta.LockGranted {
			fs.locks.end(id, err)
		}
		if !fs.locks.awaited(id) { // its caller has given up meanwhile, maybe in the old session
			fs.background(func() { fs.takeBackLater(c, l) })
		}
	}
}

func (x *locks) awaited(id [16]byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.waits[id] != nil
}

func (x *locks) lifeOf() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.life
}

func (x *locks) setLife(life uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.life = life
}
