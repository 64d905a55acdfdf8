package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// The queue of handles that are to be closed; ending.go closes them.

// ending is a handle that nobody needs.
type ending struct {
	caller meta.Caller // with the opening's request id where nobody knows whether it was done
	handle uint64
	flags  meta.OpenFlags
	uid    uint32
	node   *inode // with a reference; nil where nobody knows whether it was opened
}

// endings is the queue. Made by newEndings.
type endings struct {
	token chan struct{} // one token: there is something in it
	round turn          // held while handles are being closed

	mu   sync.Mutex
	list []ending
	busy []ending // those that are being closed

	// How many handles that may write there are, so that who asks for one file does not look through
	// tens of thousands: in list, and in both by their session.
	waiting map[*inode]int
	writers map[writerOf]int
}

// writerOf is a file that a session may write.
type writerOf struct {
	node    *inode
	session uint64
}

func newEndings() endings {
	return endings{token: make(chan struct{}, 1), round: newTurn(),
		waiting: map[*inode]int{}, writers: map[writerOf]int{}}
}

// count adds to, or takes from, the numbers of one thing.
func count[K comparable](m map[K]int, k K, by int) {
	if m[k] += by; m[k] == 0 {
		delete(m, k)
	}
}

// writes tells whether a handle may write to a file that is known.
func (e *ending) writes() bool { return e.node != nil && e.flags&meta.OpenWrite != 0 }

func (e *ending) writer() writerOf { return writerOf{e.node, e.caller.Session} }

func (q *endings) put(e ending) {
	q.add(e)
	q.wake()
}

// add is put for who wakes nobody.
func (q *endings) add(e ending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, e)
	if e.writes() {
		count(q.waiting, e.node, 1)
		count(q.writers, e.writer(), 1)
	}
}

func (q *endings) wake() {
	select {
	case q.token <- struct{}{}:
	default:
	}
}

// rest is the pause after a round that has left something. A service that is away is not bothered
// meanwhile; what only waits for somebody of this client keeps nobody else waiting. false: ctx has
// ended.
func (q *endings) rest(ctx context.Context, pause time.Duration, refused bool) bool {
	defer q.wake()
	if refused {
		return wait.Sleep(ctx, pause)
	}
	timer := time.NewTimer(min(pause, pauseMax))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-q.token:
	case <-timer.C:
	}
	return true
}

// giveBack returns what is left of all that was taken.
func (q *endings) giveBack(left []ending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.busy {
		if e := &q.busy[i]; e.writes() {
			count(q.writers, e.writer(), -1)
		}
	}
	for i := range left {
		if e := &left[i]; e.writes() {
			count(q.waiting, e.node, 1)
			count(q.writers, e.writer(), 1)
		}
	}
	q.list, q.busy = append(left, q.list...), nil
}

// take takes all, or with n those of one file. Somebody must give back what is left.
func (q *endings) take(n *inode) []ending {
	q.mu.Lock()
	defer q.mu.Unlock()
	list, rest := q.list, []ending(nil)
	if n != nil {
		list = nil
		for _, e := range q.list {
			if e.node == n {
				list = append(list, e)
			} else {
				rest = append(rest, e)
			}
		}
	}
	q.list, q.busy = rest, slices.Clone(list)
	for i := range list {
		if e := &list[i]; e.writes() {
			count(q.waiting, e.node, -1)
		}
	}
	return list
}

// ended takes out what is not at the service any more, before all that was taken is given back: a
// service that is restarted meanwhile must not hear of it again.
func (q *endings) ended(items []item) {
	gone := make(map[uint64]bool, len(items)) // numbers of handles are random
	for i := range items {
		if items[i].gone {
			gone[items[i].handle] = true
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = slices.DeleteFunc(q.busy, func(e ending) bool {
		ended := e.node != nil && gone[e.handle]
		if ended && e.writes() {
			count(q.writers, e.writer(), -1)
		}
		return ended
	})
}

func (q *endings) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) + len(q.busy)
}

// all lists the queue, with what is being closed.
func (q *endings) all() []ending {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Concat(q.busy, q.list)
}

// untold tells whether something was written to a file in the queue that the service does not know.
func (q *endings) untold() bool {
	return slices.ContainsFunc(q.all(), func(e ending) bool {
		return e.writes() && e.node.untold()
	})
}

// waits tells whether a handle of a file that may write waits to be closed.
func (q *endings) waits(n *inode) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting[n] > 0
}

// handles appends those of a file that may write, and are of the session.
func (q *endings) handles(n *inode, session uint64, to []uint64) []uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.writers[writerOf{n, session}]
	for _, list := range [][]ending{q.busy, q.list} {
		for i := 0; i < len(list) && left > 0; i++ {
			if e := &list[i]; e.writes() && e.writer() == (writerOf{n, session}) {
				to = append(to, e.handle)
				left--
			}
		}
	}
	return to
}

// has tells whether a handle of a file that may write, and is of the session, is in the queue.
func (q *endings) has(n *inode, session uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writers[writerOf{n, session}] > 0
}
