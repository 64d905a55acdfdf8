package stripetest

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// believes says that it has reserved something.
type believes struct{ sound }

func (d believes) Reserve(ctx context.Context, id stripe.ObjectID, r stripe.Reservation,
	st wire.Stamp) (int64, []seg.Piece, error) {
	end := r.Off + r.Len
	r.Len = 0
	_, _, err := d.sound.Reserve(ctx, id, r, st)
	return end, nil, err
}

// halfReserves leaves what it got when there was no more.
type halfReserves struct{ sound }

func (d halfReserves) Reserve(ctx context.Context, id stripe.ObjectID, r stripe.Reservation,
	st wire.Stamp) (int64, []seg.Piece, error) {
	end, fresh, err := d.sound.Reserve(ctx, id, r, st)
	for n := r.Len; errs.KindOf(err) == errs.NoSpace && n > 4096; {
		n /= 2
		part := stripe.Reservation{Off: r.Off, Len: n}
		if _, _, got := d.sound.Reserve(ctx, id, part, st); got == nil {
			break
		}
	}
	return end, fresh, err
}

// greedy leaves nothing to others.
type greedy struct{ sound }

func (d greedy) Reserve(ctx context.Context, id stripe.ObjectID, r stripe.Reservation,
	st wire.Stamp) (int64, []seg.Piece, error) {
	r.Leave = 0
	return d.sound.Reserve(ctx, id, r, st)
}

// blankPunches gives the space back.
type blankPunches struct{ sound }

func (d blankPunches) Blank(ctx context.Context, id stripe.ObjectID, off, length int64,
	st wire.Stamp, du stripe.Durability) error {
	return d.sound.Punch(ctx, id, off, length, st, du)
}

// releasesAll takes the data along.
type releasesAll struct{ sound }

func (d releasesAll) Release(ctx context.Context, id stripe.ObjectID, off, length int64,
	st wire.Stamp) error {
	if err := d.sound.Release(ctx, id, off, length, st); err != nil {
		return err
	}
	return d.sound.Punch(ctx, id, off, length, st, stripe.Durable)
}

func reserveDefects() []planted {
	return []planted{
		{"reserves nothing", "what is reserved reads as before and counts",
			func(s sound) stripe.Engine { return believes{s} }},
		{"reserves a half", "what does not fit is not reserved at all",
			func(s sound) stripe.Engine { return halfReserves{s} }},
		{"takes what was promised", "a reservation leaves what was promised",
			func(s sound) stripe.Engine { return greedy{s} }},
		{"blank punches", "blank keeps the space",
			func(s sound) stripe.Engine { return blankPunches{s} }},
		{"release takes data", "a reservation is undone by its pieces",
			func(s sound) stripe.Engine { return releasesAll{s} }},
	}
}
