package unifier

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/unifier/internal/index"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// helpersMax is how many workers help to read the places of one fill.
const helpersMax = 7

// fetch reads all units of a fill, whose range is locked.
func (c *Cache) fetch(ctx context.Context, f *index.Fill) error {
	k := &c.workers
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.freeFetches.Get()
	t.fill, t.next, t.nextUnit, t.err, t.refs = f, 0, 0, nil, 1
	k.askLocked(t, min(len(f.Lock.Spans)-1, helpersMax))
	c.helpLocked(ctx, t)
	for t.active > 0 {
		_ = t.rest.Wait(context.Background(), &k.mu) // they end when the backing has answered
	}
	err := t.err
	t.fill = nil
	k.leaveLocked(t)
	return err
}

// helpLocked reads places until none is left. workers.mu is held, but not while the backing reads.
func (c *Cache) helpLocked(ctx context.Context, t *fetch) {
	if t.fill == nil {
		return
	}
	k, spans, o := &c.workers, t.fill.Lock.Spans, t.fill.Object()
	b := k.freeReads.Get()
	t.active++
	for t.err == nil && t.next < len(spans) {
		s := spans[t.next]
		n := int(s.Last - s.First + 1)
		units := t.fill.Units[t.nextUnit : t.nextUnit+n]
		t.next, t.nextUnit = t.next+1, t.nextUnit+n
		k.mu.Unlock()
		c.fills.Add(1)
		err := b.read(ctx, c.backing, o, s.First, units)
		k.mu.Lock()
		if t.err == nil {
			t.err = err
		}
	}
	if t.active--; t.active == 0 {
		t.rest.WakeAll()
	}
	clear(b.bufs)
	b.bufs = b.bufs[:0]
	k.freeReads.Put(b)
}

// read reads adjacent units, the first of which is given, in one step.
func (b *read) read(ctx context.Context, backing Backing, o *index.Object, first int64,
	units []*index.Unit) error {
	size := int(o.UnitBytes())
	per := size / memory.BlockBytes
	n := len(units) * per
	b.bufs, b.sums = b.bufs[:0], slices.Grow(b.sums[:0], n)[:n]
	var g memory.Gather
	for _, u := range units {
		b.bufs = g.Bytes(b.bufs, u.Block(), 0, size)
	}
	if err := backing.ReadSums(ctx, o.ID(), b.bufs, first*int64(size), b.sums); err != nil {
		return err
	}
	for i, u := range units {
		copy(u.Block().Sums(), b.sums[i*per:(i+1)*per])
	}
	return nil
}
