package regcache

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
)

// Invalidate ends every registration that has a byte in common with memory, and every hint. It must
// be called, and return nil, before the memory is unmapped or given another meaning. It waits for
// those who hold such a registration; new ones are refused with errs.Busy while it does. When ctx
// ends before, registrations remain that are still held: the memory must stay, and Invalidate is
// to be called again. Whoever calls it while holding one of them itself waits for ever.
func (c *Cache) Invalidate(ctx context.Context, memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	ext := extentOf(memory)
	c.mu.Lock()
	c.blocked = append(c.blocked, ext)
	idle, ends := c.uncoverLocked(ext)
	c.mu.Unlock()
	c.deregister(idle)
	var err error
	for _, gone := range ends {
		select {
		case <-gone:
			continue
		default:
		}
		select {
		case <-gone:
		case <-ctx.Done():
			err = errs.New(errs.KindOf(ctx.Err()), "regcache.Invalidate", "", ctx.Err())
		}
		if err != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, b := range c.blocked {
		if b == ext {
			last := len(c.blocked) - 1
			c.blocked[i] = c.blocked[last]
			c.blocked = c.blocked[:last]
			break
		}
	}
	return err
}

// uncoverLocked makes everything on ext leave. It returns those registrations that can be ended at
// once, and the ends of all.
func (c *Cache) uncoverLocked(ext extent) (idle []*entry, ends []<-chan struct{}) {
	for hints := c.hints.overlapping(ext); len(hints) > 0; hints = c.hints.overlapping(ext) {
		c.hints.remove(hints[0].extent)
	}
	for on := c.cached.overlapping(ext); len(on) > 0; on = c.cached.overlapping(ext) {
		c.stats.Invalidated++
		idle = c.dropLocked(on[0].v, idle)
	}
	for e := range c.leaving {
		if e.overlaps(ext) {
			ends = append(ends, e.goneLocked())
		}
	}
	for e := range c.pending {
		if e.overlaps(ext) {
			e.doomed = true
			ends = append(ends, e.goneLocked())
		}
	}
	return idle, ends
}
