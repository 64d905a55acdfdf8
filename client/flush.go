package client

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// flushAfter is when small data that nobody has told for another reason is told, after the first
// write to it: twice that is the longest that a client's death can take from a program that does
// not sync.
const flushAfter = 400 * time.Millisecond

// flushing are the small files with data that the service does not have. Made by newFlushing.
type flushing struct {
	token chan struct{} // one token: there are some
	over  chan struct{} // closed by FS.Close: the worker is to end
	ended chan struct{} // closed when it has

	mu    sync.Mutex
	nodes map[*inode]struct{} // each with a reference
}

func newFlushing() flushing {
	return flushing{token: make(chan struct{}, 1), over: make(chan struct{}),
		ended: make(chan struct{}), nodes: map[*inode]struct{}{}}
}

// put sees to it that a file is told soon. The caller has a reference.
func (q *flushing) put(n *inode) {
	if !q.add(n) {
		return
	}
	select {
	case q.token <- struct{}{}:
	default:
	}
}

// add puts a file in, with a reference from that moment on: who takes it out gives that back. It is
// false where it was there.
func (q *flushing) add(n *inode) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, there := q.nodes[n]; there {
		return false
	}
	q.nodes[n] = struct{}{}
	n.refs++
	return true
}

func (q *flushing) take() []*inode {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]*inode, 0, len(q.nodes))
	for n := range q.nodes {
		all = append(all, n)
	}
	clear(q.nodes)
	return all
}

func (q *flushing) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.nodes) == 0
}

// flush works until the FS is closed, which waits for what is being told, and tells the rest by
// itself.
func (fs *FS) flush() {
	defer close(fs.flushing.ended)
	for {
		select {
		case <-fs.flushing.over:
			return
		case <-fs.life.Done():
			return
		case <-fs.flushing.token:
		}
		select {
		case <-fs.flushing.over:
			return
		case <-fs.life.Done():
			return
		case <-time.After(flushAfter):
		}
		fs.flushAll(fs.life, flushMax)
	}
}

// tellRest tells everything when the FS is closed, as long as there is time for that.
func (fs *FS) tellRest(ctx context.Context, limit time.Duration) error {
	close(fs.flushing.over)
	select {
	case <-fs.flushing.ended: // who tells a file keeps others from it
	case <-ctx.Done():
	}
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		_ = fs.tellAll(ctx) // it is tried again
		fs.flushEndings(ctx)
		fs.flushAll(ctx, limit)
		if fs.flushing.empty() && !fs.endings.untold() && fs.deferral.count.Load() == 0 {
			return nil
		}
		if !wait.Sleep(ctx, pause) {
			return errs.Newf(errs.TimedOut, "client.Close", "",
				"the metadata service could not be told of all that was written")
		}
	}
}

// flushesMax is how many files are told at once, and flushMax for how long one of them may wait for
// others: those that come behind it have waited for as long then.
const (
	flushesMax = 16
	flushMax   = 2 * time.Second
)

// flushAll tells all that is known to be untold. What fails for the moment, or would have to wait
// for longer than limit, is tried again later.
func (fs *FS) flushAll(ctx context.Context, limit time.Duration) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, flushesMax)
	for _, n := range fs.flushing.take() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := fs.flushOne(ctx, n, limit)
			if fs.flushesLater(ctx, err) {
				fs.flushing.put(n)
			} else if err != nil {
				fs.opts.Logger.Error("data of a small file could not be told", "ino", n.ino, "err", err)
				n.lose(err)
			}
			fs.unref(n)
		})
	}
	wg.Wait()
}

// flushesLater tells whether a file that could not be told is tried again: what failed may pass, or
// whoever wanted it has no more time, as HandOver, and the FS goes on.
func (fs *FS) flushesLater(ctx context.Context, err error) bool {
	k := errs.KindOf(err)
	if ctx.Err() == nil {
		return k.Passing()
	}
	select {
	case <-fs.flushing.over:
		return false
	default:
		return fs.life.Err() == nil && (k == errs.Canceled || interrupted(k))
	}
}

// flushOne tells what a file has to tell. Where somebody else is just telling it, that may fail: it
// waits for the outcome.
func (fs *FS) flushOne(ctx context.Context, n *inode, limit time.Duration) (err error) {
	if n.small.Load() && n.untold() {
		wait, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = fs.tellThen(patience{wait: wait, all: ctx}, n, func() {})
		if wait.Err() != nil && interrupted(errs.KindOf(err)) {
			err = errs.Wrap("client.flush", "", wait.Err()) // whatever it was waiting for
		}
	}
	if fs.endings.waits(n) {
		fs.endings.wake() // it may have waited for this
	}
	return err
}

func (n *inode) untoldSmall() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dirty && n.small.Load()
}
