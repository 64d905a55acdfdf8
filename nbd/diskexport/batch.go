package diskexport

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/stripe/device"
)

// Batches is true where reads go straight to the device: one system call hands all of them to the
// kernel, and one thread waits instead of one for each.
func (e *Export) Batches() bool { return e.mode == Direct || e.mode == CachedWrites }

// suits tells whether a span can be moved as it lies.
func (d *disk) suits(s *nbd.Span) bool {
	n := int64(len(s.Data))
	list := [1][]byte{s.Data}
	return (s.Off|n)&(d.grain-1) == 0 && s.Off+n <= d.whole && aligned(list[:], d.grain)
}

// ReadMany reads all spans at the same time.
func (e *Export) ReadMany(ctx context.Context, list []nbd.Span) error {
	d := e.d
	t := transfers.Get().(*transfer)
	defer t.end()
	for i := range list {
		s := &list[i]
		if !d.suits(s) || e.readsCache() {
			if err := e.ReadAt(ctx, s.Data, s.Off); err != nil {
				return err
			}
			continue
		}
		if err := d.settled(ctx, s.Off, int64(len(s.Data))); err != nil {
			return err
		}
		d.plan(t, device.Read, [][]byte{s.Data}, s.Off, int64(len(s.Data)), false)
	}
	return d.finish(t)
}

// WriteMany writes all spans at the same time.
func (e *Export) WriteMany(ctx context.Context, list []nbd.Span) error {
	d := e.d
	if e.readOnly {
		return errs.New(errs.ReadOnly, "diskexport.Write", d.name, nil)
	}
	d.way.RLock()
	together := !d.caching.Load() && !e.mode.caches()
	if together {
		defer d.way.RUnlock()
	} else {
		d.way.RUnlock()
	}
	t := transfers.Get().(*transfer)
	defer t.end()
	held := make([]*heldRange, 0, len(list))
	for i := range list {
		s := &list[i]
		if together && d.suits(s) {
			h := pagesOf(s.Off, int64(len(s.Data)), directly)
			held = append(held, &h)
			d.plan(t, device.Write, [][]byte{s.Data}, s.Off, int64(len(s.Data)), false)
		}
	}
	if together {
		if err := d.writeAll(t, held); err != nil {
			return err
		}
	}
	for i := range list {
		s := &list[i]
		if together && d.suits(s) {
			continue
		}
		if err := e.writeOne(ctx, s, together); err != nil {
			return err
		}
	}
	return nil
}

// writeAll carries out writes whose ranges are not held yet.
func (d *disk) writeAll(t *transfer, held []*heldRange) error {
	d.ranges.lockAll(held)
	defer func() {
		for _, h := range held {
			d.ranges.unlock(h)
		}
	}()
	return d.finish(t)
}

// writeOne writes a span that cannot be written with others. way: the caller has disk.way.
func (e *Export) writeOne(ctx context.Context, s *nbd.Span, way bool) error {
	if !way {
		return e.WriteAt(ctx, s.Data, s.Off, false)
	}
	return e.d.writeDirect([][]byte{s.Data}, s.Off, int64(len(s.Data)), false)
}

// finish carries a transfer out.
func (d *disk) finish(t *transfer) error {
	if t.used == 0 {
		return nil
	}
	d.carryOut(t)
	_, err := d.outcome(t)
	return err
}
