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
}

func newEndings() endings {
	return endings{token: make(chan struct{}, 1), round: newTurn()}
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
	q.busy = slices.DeleteFunc(q.busy, func(e ending) bool { return e.node != nil && gone[e.handle] })
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
		return e.node != nil && e.flags&meta.OpenWrite != 0 && e.node.untold()
	})
}

// waits tells whether a handle of a file that may write waits to be closed.
func (q *endings) waits(n *inode) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.list, func(e ending) bool {
		return e.node == n && e.flags&meta.OpenWrite != 0
	})
}

// has tells whether a handle of a file that may write, and is of the session, is in the queue.
func (q *endings) has(n *inode, session uint64) bool {
	for _, e := range q.all() {
		if e.node == n && e.flags&meta.OpenWrite != 0 && e.caller.Session == session {
			return true
		}
	}
	return false
}
