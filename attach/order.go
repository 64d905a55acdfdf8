package attach

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
)

// order keeps changes of the same bytes apart, over all connections of a device: a request that the
// kernel sends a second time waits for the first, where that is still under way, and so does what
// comes behind it. Without that an old write could land on a newer one: see the package's comment.
//
// A change that has begun is carried through, whatever becomes of its connection: whether servers
// have got it cannot be known. One that has not begun is given up with its connection. So what is
// left over of connections that have ended is at most changesMax requests, however long servers
// are away and however often the kernel sends all of them again.
type order struct {
	places chan struct{} // one for each change that has begun, or waits for one that has

	mu    sync.Mutex
	under map[*change]struct{} // have begun
}

// changesMax is how many changes are under way at a time: what the kernel sends through two
// connections with full queues of 128 each. Looking at all of them takes less than a request's
// system calls do.
const changesMax = 256

// change is some ranges of bytes that are being changed.
type change struct {
	list []span
	done chan struct{}
}

// span is a range of bytes.
type span struct{ off, length int64 }

func (s span) meets(t span) bool { return s.off < t.off+t.length && t.off < s.off+s.length }

func (c *change) meets(list []span) bool {
	for _, s := range c.list {
		for _, t := range list {
			if s.meets(t) {
				return true
			}
		}
	}
	return false
}

func newOrder() *order {
	return &order{places: make(chan struct{}, changesMax), under: make(map[*change]struct{})}
}

// run makes a change, behind all that has begun on the same bytes. link ends with the connection;
// fn is not told of that.
func (o *order) run(ctx, link context.Context, list []span, fn func(context.Context) error) error {
	select {
	case o.places <- struct{}{}:
		defer func() { <-o.places }()
	case <-link.Done():
		return errEnded
	}
	c := &change{list: list, done: make(chan struct{})}
	for {
		other := o.begin(c)
		if other == nil {
			break
		}
		select {
		case <-other.done:
		case <-link.Done():
			return errEnded
		}
	}
	defer o.finish(c)
	if link.Err() != nil {
		return errEnded
	}
	return fn(context.WithoutCancel(ctx))
}

// begin counts a change in, unless another one is in its way.
func (o *order) begin(c *change) (other *change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for other := range o.under {
		if other.meets(c.list) {
			return other
		}
	}
	o.under[c] = struct{}{}
	return nil
}

func (o *order) finish(c *change) {
	o.mu.Lock()
	delete(o.under, c)
	o.mu.Unlock()
	close(c.done)
}

// begun is how many changes have begun and not ended.
func (o *order) begun() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.under)
}

// errEnded is the answer to a request whose connection has ended; nobody reads it.
var errEnded = errs.Newf(errs.Disconnected, "attach", "", "the connection has ended")
