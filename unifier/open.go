package unifier

import (
	"context"

	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/writeback"
)

// New makes an empty cache on top of the backing.
//
// The shares of the memory add up: drafts have DraftShare, direct transfers an eighth, pending
// writes DirtyBytes, a sixteenth is left for units that are being merged, and loans have the rest.
// So what somebody is entitled to is free, or cached and not held, or will be in a moment.
func New(cfg Config, backing Backing) (*Cache, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	x, err := index.New(cfg.index(), cfg.memory())
	if err != nil {
		return nil, err
	}
	c := &Cache{cfg: cfg, backing: backing, index: x,
		back:  writeback.New(cfg.writeback(), x, backing),
		takes: gate.New(gate.Options{Bytes: cfg.takeBytes()})}
	c.stater, _ = backing.(stripe.Stater)
	c.workers.init(c.helpLocked, c.readAhead)
	return c, nil
}

// Close writes back what is pending, ends all work and gives the memory back. While loans, drafts
// or rooms are out it fails with errs.Busy and can be called again later; requests are refused from
// the first call on.
func (c *Cache) Close() error {
	x := c.index
	err := c.back.Flush(context.Background())
	x.Lock()
	x.Stop()
	x.Unlock()
	c.back.Stop()
	c.workers.stop()
	if err == nil { // what was published while the first part was under way
		err = c.back.Flush(context.Background())
	}
	x.Lock()
	if invariant.Enabled {
		wrong := x.Check(false)
		invariant.Check(wrong == nil, "unifier.Close: %v", wrong)
	}
	x.Clear()
	x.Unlock()
	if e := x.Memory.Close(); e != nil {
		return e
	}
	return err
}
