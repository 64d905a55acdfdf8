package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/mem"
)

// take gets a buffer for somebody whose share of the memory is reserved: a free one, or that
// of the policy's victim. If there is none for the moment (all but the reserved memory is
// being merged) it waits, first come, first served.
func (c *Cache) take(ctx context.Context) (*mem.Buf, error) {
	if b := c.tryTake(); b != nil {
		return b, nil
	}
	// From here on whoever lets go of a unit evicts one. The second look sees what was let go
	// before that.
	c.starving.Add(1)
	defer c.starving.Add(-1)
	if b := c.tryTake(); b != nil {
		return b, nil
	}
	c.count(&c.stats.Waits)
	return c.pool.Take(ctx)
}

// count raises one of the numbers of Stats.
func (c *Cache) count(n *uint64) {
	c.mu.Lock()
	*n++
	c.mu.Unlock()
}

// tryTake is take that does not wait.
func (c *Cache) tryTake() *mem.Buf {
	for {
		if b := c.pool.TryTake(); b != nil {
			return b
		}
		c.mu.Lock()
		ok := c.evictLocked()
		c.mu.Unlock()
		if !ok {
			return nil
		}
	}
}

// evictLocked makes room for one buffer. It tells whether it found a victim.
func (c *Cache) evictLocked() bool {
	u := c.policy.victim()
	if u == nil {
		return false
	}
	o := u.obj
	c.stats.Evictions++
	c.removeLocked(u)
	c.tidyLocked(o)
	return true
}
