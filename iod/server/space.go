package server

import (
	"context"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// change carries out a request that changes an object without moving data, and replies.
func (s *Server) change(ctx context.Context, c *msg.Call, w *work, op iod.Op) error {
	if err := s.enterDisk(ctx, c, w, 0); err != nil {
		return err
	}
	err := s.alter(ctx, op, &w.req.Target, &w.req.Args)
	s.leaveDisk(w)
	w.time.enter(stateFin)
	return s.marked(c, w, err)
}

func (s *Server) alter(ctx context.Context, op iod.Op, t *iod.Target, a *iod.Args) error {
	store, cache := s.cfg.Store, s.cfg.Cache
	switch op {
	case iod.OpSync:
		return cache.Sync(ctx, t.Object)
	case iod.OpPunch:
		return s.punch(ctx, t, a)
	case iod.OpTruncate:
		// Writes of the old truncate sequence are refused once the store has changed, and the cache drops
		// the cut part before the reply.
		return cache.Change(ctx, t.Object, 0, stripe.MaxObjectBytes, func() error {
			return store.Truncate(ctx, t.Object, a.Len, t.Stamp)
		})
	case iod.OpRemove:
		return s.remove(ctx, t.Object)
	default:
		return s.fence(ctx, t)
	}
}

func (s *Server) punch(ctx context.Context, t *iod.Target, a *iod.Args) error {
	if err := s.writers.enter(t); err != nil {
		return err
	}
	defer s.writers.leave(t)
	if err := s.cfg.Cache.SettleStamp(ctx, t.Stamp); err != nil {
		return err
	}
	return s.cfg.Cache.Change(ctx, t.Object, a.Off, a.Len, func() error {
		if a.Again != 0 {
			return s.punchAgain(ctx, t, a)
		}
		clear := s.cfg.Store.Punch
		if a.Keep {
			clear = s.cfg.Store.Blank
		}
		err := clear(ctx, t.Object, a.Off, a.Len, t.Stamp, a.Durability)
		if err == nil {
			s.cfg.Cache.Wrote(t.Object, a.Off, a.Len)
		}
		return err
	})
}

// punchAgain repeats a punch, except where something was written since it was acknowledged first,
// see unifier.Again. The number is recorded last: the punch must not be repeated once more.
func (s *Server) punchAgain(ctx context.Context, t *iod.Target, a *iod.Args) error {
	store := s.cfg.Store
	repeated, err := store.Admit(ctx, t.Object, a.Off, a.Len, t.Stamp, 0)
	if err != nil || repeated {
		return err
	}
	newer, err := s.cfg.Cache.Newer(ctx, t.Object, a.Off, a.Len, t.Stamp)
	if err != nil {
		return err
	}
	if len(newer) == 0 {
		return store.Punch(ctx, t.Object, a.Off, a.Len, t.Stamp, a.Durability)
	}
	part := t.Stamp
	part.Session, part.Slot, part.Seq = 0, 0, 0
	at := a.Off
	for _, p := range append(newer, seg.Piece{Off: a.Off + a.Len}) {
		if err := store.Punch(ctx, t.Object, at, p.Off-at, part, stripe.Volatile); err != nil {
			return err
		}
		at = p.End()
	}
	err = store.WriteSums(ctx, t.Object, nil, a.Off, nil, []wire.Stamp{t.Stamp}, stripe.Volatile)
	if err != nil {
		return err
	}
	return store.Sync(ctx, t.Object)
}

func (s *Server) stat(ctx context.Context, c *msg.Call, w *work) error {
	id := w.req.Target.Object
	if err := s.cfg.Cache.Settle(ctx, id, 0, stripe.MaxObjectBytes); err != nil {
		return err
	}
	info, err := s.cfg.Store.Stat(ctx, id)
	if err != nil {
		return err
	}
	iod.AppendInfo(&w.reply, &info)
	return ignoreDead(c.Reply(w.reply.B, 0))
}

// mapSpan is how much of an object one request scans for extents. It bounds the work, since a
// client can make an object with any number of holes. The client asks for the rest by further
// requests.
const mapSpan = 256 << 30

func (s *Server) mapping(ctx context.Context, c *msg.Call, w *work) error {
	id, a := w.req.Target.Object, &w.req.Args
	if err := s.cfg.Cache.Settle(ctx, id, a.Off, a.Len); err != nil {
		return err
	}
	info, err := s.cfg.Store.Stat(ctx, id)
	if err != nil {
		return err
	}
	length := a.Len
	if info.Size-a.Off > mapSpan {
		length = min(length, mapSpan)
	}
	x, err := s.cfg.Store.Map(ctx, id, a.Off, length, iod.ExtentsMax)
	if err != nil {
		return err
	}
	iod.AppendExtents(&w.reply, x)
	return ignoreDead(c.Reply(w.reply.B, 0))
}
