package remote

import (
	"context"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// ReserveSpace implements iod.Reserver. It is neither kept nor numbered: it is durable when it is
// acknowledged, and may be repeated.
func (r *Remote) ReserveSpace(ctx context.Context, t iod.Target, off, length int64, extend bool) (
	end int64, fresh []seg.Piece, err error) {
	return r.reserve(ctx, &t, &iod.Args{Off: off, Len: length, Extend: extend})
}

// ReleaseSpace implements iod.Reserver.
func (r *Remote) ReleaseSpace(ctx context.Context, t iod.Target, off, length int64) error {
	_, _, err := r.reserve(ctx, &t, &iod.Args{Off: off, Len: length, Release: true})
	return err
}

func (r *Remote) reserve(ctx context.Context, t *iod.Target, a *iod.Args) (end int64,
	fresh []seg.Piece, err error) {
	c := r.take(iod.OpReserve, t, a)
	defer r.put(c)
	if err := r.do(ctx, t, c); err != nil {
		return 0, nil, err
	}
	mark, end, fresh, err := iod.DecodeReserved(c.rep.Body)
	if err == nil {
		r.heard(c.srv, c.conn, mark)
	}
	return end, fresh, err
}

// Blank implements iod.Reserver.
func (r *Remote) Blank(ctx context.Context, t iod.Target, off, length int64) (iod.Mark, error) {
	args := iod.Args{Off: off, Len: length, Durability: stripe.Durable, Keep: true}
	c := r.take(0, &t, nil)
	defer r.put(c)
	return r.once(ctx, &t, c, iod.OpPunch, &args, nil)
}
