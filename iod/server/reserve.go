package server

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// reserve gives a range its space, or takes it back. The cache knows nothing of it: no byte
// changes, and a write that finds no room is written through, where the store knows that it has its
// space.
func (s *Server) reserve(ctx context.Context, c *msg.Call, w *work) error {
	t, a := &w.req.Target, &w.req.Args
	if err := s.enterDisk(ctx, c, w, 0); err != nil {
		return err
	}
	end, fresh, err := int64(0), []seg.Piece(nil), error(nil)
	if a.Release {
		err = s.cfg.Store.Release(ctx, t.Object, a.Off, a.Len, t.Stamp)
	} else {
		end, fresh, err = s.takeSpace(ctx, t, a)
	}
	s.leaveDisk(w)
	if err != nil {
		return err
	}
	w.time.enter(stateFin)
	iod.AppendReserved(&w.reply, s.mark(), end, fresh)
	return ignoreDead(c.Reply(w.reply.B, 0))
}

// takeSpace reserves what one request may, and leaves what pending writes were promised. These are
// promised more than most of them need: where that is too much they are written first.
func (s *Server) takeSpace(ctx context.Context, t *iod.Target, a *iod.Args) (int64, []seg.Piece,
	error) {
	cache := s.cfg.Cache
	r := stripe.Reservation{Off: a.Off, Len: min(a.Len, iod.ReserveMax), PiecesMax: iod.ExtentsMax,
		Leave: cache.Promised()}
	r.Extend = a.Extend && r.Len == a.Len
	end, fresh, err := s.cfg.Store.Reserve(ctx, t.Object, r, t.Stamp)
	if errs.KindOf(err) != errs.NoSpace || r.Leave == 0 {
		return end, fresh, err
	}
	if err := cache.Settle(ctx, stripe.ObjectID{}, 0, stripe.MaxObjectBytes); err != nil {
		return 0, nil, err
	}
	r.Leave = cache.Promised()
	return s.cfg.Store.Reserve(ctx, t.Object, r, t.Stamp)
}
