package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Nobody waits in a circle for memory. A request gets all the memory that it needs in one step,
// before it holds anything that others could wait for; whoever holds memory comes to its end
// without asking for more. Those who cannot be served at once stand in one queue, in the order in
// which they came; only the first one collects, and what becomes free is his. So the first one is
// served when enough of the others have ended, and nobody is passed over for ever.
//
// The one thing that could keep memory from him is a crowd of readers that holds the same units
// again and again: when he has waited for queueMax, new loans wait until he is served.

// need is a request for memory, or a place in one of the lines.
type need struct {
	shift  uint8 // class of the first count blocks
	count  int
	small  uint8 // class of some more
	more   int
	got    []block       // what was collected so far, in this order
	ready  chan struct{} // a token when the wait is over
	failed error
	place  list.Link[need] // in a line, or in Cache.spareNeeds
}

// line is a queue of needs. Guarded by Cache.mu.
type line struct{ list.List[need] }

func (q *line) push(n *need) { q.PushLast(&n.place, n) }

func (q *line) remove(n *need) { q.Remove(&n.place) }

// wake ends the wait, or the next one if nobody waits now.
func (n *need) wake() {
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

// arm makes the need ready to wait with.
func (n *need) arm() {
	if n.ready == nil {
		n.ready = make(chan struct{}, 1)
	}
	select {
	case <-n.ready:
	default:
	}
	n.failed = nil
}

// standLocked waits in a line until somebody takes the need out of it and wakes it.
func (c *Cache) standLocked(ctx context.Context, q *line, n *need) error {
	if n.place.In() {
		c.pressLocked()
	}
	return c.stayLocked(ctx, q, n)
}

// stayLocked is standLocked for what does not become better by writing back.
func (c *Cache) stayLocked(ctx context.Context, q *line, n *need) error {
	if !n.place.In() {
		return n.failed
	}
	c.mu.Unlock()
	_, ok := wait.For(ctx, n.ready)
	c.mu.Lock()
	if !n.place.In() {
		return n.failed
	}
	q.remove(n)
	if ok {
		return nil
	}
	return ctx.Err()
}

// attendLocked waits in a line until dismiss.
func (c *Cache) attendLocked(ctx context.Context, q *line) error {
	n := c.spareNeeds.First()
	if n == nil {
		n = &need{}
	} else {
		c.spareNeeds.Remove(&n.place)
	}
	n.arm()
	q.push(n)
	err := c.stayLocked(ctx, q, n)
	c.spareNeeds.PushFirst(&n.place, n)
	return err
}

// dismiss ends the waiting of all in the line.
func (q *line) dismiss() {
	for n := q.First(); n != nil; n = q.First() {
		q.remove(n)
		n.wake()
	}
}

// obtainLocked gets all the memory of the need, waiting behind others. It lets go of the lock
// meanwhile, so that nothing that was seen before holds afterwards.
func (c *Cache) obtainLocked(ctx context.Context, n *need) error {
	if c.tryObtainLocked(n) {
		return nil
	}
	if c.closed {
		return errs.New(errs.Closed, "unifier", "", nil)
	}
	c.stats.Waits++
	n.arm()
	c.queue.push(n)
	if c.queue.First() == n {
		c.queueSince = c.now()
	}
	c.growLocked()
	c.feedLocked()
	err := c.standLocked(ctx, &c.queue, n)
	if err != nil {
		c.giveLocked(n)
		c.feedLocked()
	}
	return err
}

// tryObtainLocked is obtainLocked that does not wait; it leaves nothing behind when it says no.
func (c *Cache) tryObtainLocked(n *need) bool {
	if c.queue.Empty() && c.collectLocked(n, false) {
		return true
	}
	c.giveLocked(n)
	return false
}

// giveLocked gives back what was collected.
func (c *Cache) giveLocked(n *need) {
	for _, b := range n.got {
		c.memory.give(b)
	}
	n.got = n.got[:0]
}

// collectLocked takes what is free, then what can be evicted. While there is more to map it
// evicts nothing. A guess takes nothing from units that have proved to be useful.
func (c *Cache) collectLocked(n *need, guess bool) bool {
	var last block
	if len(n.got) > 0 {
		last = n.got[len(n.got)-1]
	}
	for len(n.got) < n.count+n.more {
		shift := n.shift
		if len(n.got) >= n.count {
			shift = n.small
		}
		b, ok := c.memory.take(shift, last)
		if ok {
			n.got = append(n.got, b)
			last = b
			continue
		}
		if c.mapping || c.growthLocked() > 0 || !c.evictLocked(shift, guess) {
			return false
		}
	}
	return true
}

// evictLocked makes room. It tells whether it found a victim. Where the victim was of another
// class, its neighbours in the slab go too if nobody holds one of them: then the slab is free.
func (c *Cache) evictLocked(shift uint8, guess bool) bool {
	u := c.policy.victim(guess)
	if u == nil {
		return false
	}
	was := c.feeding
	c.feeding = true
	s := u.blk.slab
	other := s.shift != shift
	c.evictUnitLocked(u)
	if other && s.shift != classFree && s.idle() {
		for _, mate := range s.owners {
			if mate != nil {
				c.evictUnitLocked(mate)
			}
		}
	}
	c.feeding = was
	return true
}

// idle tells whether all that is out of the slab are units that can be evicted.
func (s *slab) idle() bool {
	for part, u := range s.owners {
		if s.used&(1<<part) != 0 && (u == nil || u.pins > 0) {
			return false
		}
	}
	return true
}

func (c *Cache) evictUnitLocked(u *unit) {
	o := u.obj
	c.stats.Evictions++
	c.policy.bury(u)
	c.removeLocked(u)
	c.tidyLocked(o)
}

// feedLocked serves the queue from what is there.
func (c *Cache) feedLocked() {
	if c.feeding || c.queue.Empty() {
		return
	}
	c.feeding = true
	for n := c.queue.First(); n != nil && c.collectLocked(n, false); n = c.queue.First() {
		c.queue.remove(n)
		n.wake()
		c.queueSince = c.now()
	}
	c.feeding = false
	c.admitLocked()
}

// admitLocked lets the longest waiting loan try again.
func (c *Cache) admitLocked() {
	if n := c.gate.First(); n != nil {
		c.gate.remove(n)
		n.wake()
	}
}
