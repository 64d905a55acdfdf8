package client

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Every handle at the metadata service has one owner here: the File whose grant names it, or this
// queue. A File gives its handle up when it is closed; a handle that was opened for a File
// which is closed by then, or has another one, goes to the queue, and so does one that could not be
// closed, or of which nobody knows whether it was opened. The queue asks the service until it says
// that the handle is gone, or that the session is.

// endingsMax is how many handles may wait in the queue before nothing more is opened.
const endingsMax = 64 << 10

// endPauseMax is the longest pause between two attempts to close what could not be closed.
const endPauseMax = 5 * time.Second

// ending is a handle that nobody needs.
type ending struct {
	caller meta.Caller // with the opening's request id where nobody knows whether it was done
	handle uint64
	dirty  bool // there is something to be told
	change change
	node   *inode // of a writer, which may have left holes; nil: none
}

// endings is the queue. The zero value needs a token channel.
type endings struct {
	token chan struct{} // one token: there is something in it

	mu   sync.Mutex
	list []ending
	busy int // those that are being closed
}

func (q *endings) put(e ending) {
	q.mu.Lock()
	q.list = append(q.list, e)
	q.mu.Unlock()
	q.wake()
}

func (q *endings) wake() {
	select {
	case q.token <- struct{}{}:
	default:
	}
}

// giveBack returns what is left of all that was taken.
func (q *endings) giveBack(left []ending) {
	q.mu.Lock()
	q.list, q.busy = append(left, q.list...), 0
	q.mu.Unlock()
	if len(left) > 0 {
		q.wake()
	}
}

// take takes all. Somebody must give back what is left.
func (q *endings) take() []ending {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list, q.busy = nil, len(list)
	return list
}

func (q *endings) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) + q.busy
}

// closeEndings works through the queue until the FS is closed, whose session takes the rest along.
func (fs *FS) closeEndings() {
	for pause := pauseFirst; ; {
		select {
		case <-fs.life.Done():
			return
		case <-fs.endings.token:
		}
		var left []ending
		for _, e := range fs.endings.take() {
			if len(left) > 0 || !fs.closeEnding(&e) {
				left = append(left, e) // whoever refuses one is asked again later, not once for each
			}
		}
		fs.endings.giveBack(left)
		if len(left) == 0 {
			pause = pauseFirst
			continue
		}
		if !wait.Sleep(fs.life, pause) {
			return
		}
		pause = min(2*pause, endPauseMax)
	}
}

// closeEnding tells whether the handle is known to be gone.
func (fs *FS) closeEnding(e *ending) bool {
	ctx, cancel := context.WithTimeout(fs.life, fs.opts.WaitMax)
	defer cancel()
	err := fs.endHandle(ctx, e)
	switch errs.KindOf(err) {
	case errs.OK, errs.Closed, errs.Stale, errs.NotFound:
		return true
	}
	fs.opts.Logger.Debug("a handle could not be closed", "handle", e.handle, "err", err)
	return false
}

// endHandle closes a handle, and tells first what must be known of what was written.
func (fs *FS) endHandle(ctx context.Context, e *ending) error {
	if e.node != nil {
		if err := fs.tellHoles(ctx, e.node); err != nil {
			return err
		}
	}
	return fs.svc.Close(ctx, e.caller, e.handle, e.dirty, e.change.size, e.change.truncSeq,
		e.change.mtime)
}

// openIn opens a file in a session. Where the answer leaves open whether there is a handle now, the
// opening is taken back.
func (fs *FS) openIn(ctx context.Context, s *session,
	get func(context.Context, meta.Caller) (meta.Handle, error)) (meta.Handle, error) {
	if n := fs.endings.count(); n >= endingsMax {
		return meta.Handle{}, errs.Newf(errs.Again, "client.Open", "",
			"%d files wait to be closed at the metadata service", n)
	}
	c := meta.Caller{Session: s.id}
	for meta.HandleOf(c.ReqID) == 0 {
		rand.Read(c.ReqID[:])
	}
	h, err := get(ctx, c)
	if err != nil && !refusal(errs.KindOf(err)) {
		fs.endings.put(ending{caller: c, handle: meta.HandleOf(c.ReqID)})
	}
	return h, err
}

// refusal tells whether an opening that failed like that was not done.
func refusal(k errs.Kind) bool {
	switch k {
	case errs.NotFound, errs.Exists, errs.NotDir, errs.IsDir, errs.Access, errs.Perm, errs.Invalid,
		errs.NameTooLong, errs.Stale, errs.Loop, errs.Unsupported, errs.NoMemory, errs.TooManyOpen:
		return true
	}
	return false
}
