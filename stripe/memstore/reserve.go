package memstore

import (
	"context"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Reserve implements stripe.Reserver. A page that is reserved counts and has no memory yet.
func (s *Store) Reserve(ctx context.Context, id stripe.ObjectID, r stripe.Reservation,
	st wire.Stamp) (int64, []seg.Piece, error) {
	const op = "memstore.Reserve"
	if err := stripe.CheckRange(ctx, op, id, r.Off, r.Len); err != nil {
		return r.Off, nil, err
	}
	o, err := s.enterWriter(op, id, st, true)
	if err != nil {
		return r.Off, nil, err
	}
	defer s.mu.RUnlock()
	end, fresh, err := o.reserve(id, r, s.unnumbered(st))
	if err != nil {
		return r.Off, nil, errs.Wrap(op, "object "+id.String(), err)
	}
	return end, fresh, nil
}

// Release implements stripe.Reserver.
func (s *Store) Release(ctx context.Context, id stripe.ObjectID, off, length int64,
	st wire.Stamp) error {
	const op = "memstore.Release"
	return s.changeRange(ctx, op, id, off, length, st, false, func(o *object) error {
		return o.release(id, off, length, s.unnumbered(st))
	})
}

// Blank implements stripe.Reserver.
func (s *Store) Blank(ctx context.Context, id stripe.ObjectID, off, length int64, st wire.Stamp,
	_ stripe.Durability) error {
	const op = "memstore.Blank"
	return s.changeRange(ctx, op, id, off, length, st, stripe.Numbered(st), func(o *object) error {
		return o.clear("memstore.Blank", id, off, length, s.numbered(st), true)
	})
}

// changeRange has fn change an object, if it exists or is to come to life.
func (s *Store) changeRange(ctx context.Context, op string, id stripe.ObjectID, off, length int64,
	st wire.Stamp, create bool, fn func(o *object) error) error {
	if err := stripe.CheckRange(ctx, op, id, off, length); err != nil {
		return err
	}
	o, err := s.enterWriter(op, id, st, create)
	if err != nil {
		return err
	}
	defer s.mu.RUnlock()
	if o == nil {
		return nil
	}
	return fn(o)
}

func (s *Store) unnumbered(st wire.Stamp) request {
	st.Session, st.Slot, st.Seq = 0, 0, 0
	return s.numbered(st)
}

func (o *object) reserve(id stripe.ObjectID, r stripe.Reservation, st request) (end int64,
	fresh []seg.Piece, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := stripe.CheckStamp("", id, o.truncSeq, st.Stamp); err != nil {
		return 0, nil, err
	}
	if r.Len > o.budget.total*pageBytes {
		return 0, nil, errs.NoSpace // and no walk over more pages than there can be
	}
	end = r.Off + r.Len
	var pages []int64
	for index := r.Off / pageBytes; index*pageBytes < end; index++ {
		if o.pages[index] != nil || o.held[index] {
			continue
		}
		k := len(fresh) - 1
		if touches := k >= 0 && fresh[k].End() == index*pageBytes; touches {
			fresh[k].Len += pageBytes
		} else if r.PiecesMax > 0 && len(fresh) == r.PiecesMax {
			end = index * pageBytes
			break
		} else {
			fresh = append(fresh, seg.Piece{Off: index * pageBytes, Len: pageBytes})
		}
		pages = append(pages, index)
	}
	leave := (r.Leave + pageBytes - 1) / pageBytes
	if !o.budget.take(int64(len(pages)) + leave) {
		return 0, nil, errs.NoSpace
	}
	o.budget.left.Add(leave)
	o.holdLocked(pages)
	if r.Extend && end == r.Off+r.Len {
		o.size = max(o.size, end)
	}
	o.changedLocked(st)
	return end, fresh[:min(len(fresh), max(r.PiecesMax, 0))], nil
}

func (o *object) holdLocked(pages []int64) {
	if o.held == nil && len(pages) > 0 {
		o.held = map[int64]bool{}
	}
	for _, index := range pages {
		o.held[index] = true
	}
}

func (o *object) release(id stripe.ObjectID, off, length int64, st request) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := stripe.CheckStamp("memstore.Release", id, o.truncSeq, st.Stamp); err != nil {
		return err
	}
	o.changedLocked(st)
	o.freeHeldLocked(off/pageBytes, (off+length+pageBytes-1)/pageBytes)
	return nil
}

// freeHeldLocked gives back reserved pages from one to before another.
func (o *object) freeHeldLocked(first, end int64) {
	for index := range o.held {
		if index >= first && index < end {
			delete(o.held, index)
			o.budget.left.Add(1)
		}
	}
}

// indexesLocked lists all pages in order, reserved ones too.
func (o *object) indexesLocked() []int64 {
	indexes := make([]int64, 0, len(o.pages)+len(o.held))
	for index := range o.pages {
		indexes = append(indexes, index)
	}
	for index := range o.held {
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	return indexes
}
