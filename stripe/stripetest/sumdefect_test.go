package stripetest

import (
	"context"
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// zeroIsZero believes that the sum of zeroes is zero.
type zeroIsZero struct{ sound }

func (d zeroIsZero) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	err := d.sound.ReadSums(ctx, id, bufs, off, sums)
	for i, s := range sums {
		if s == 0x98f94189 {
			sums[i] = 0
		}
	}
	return err
}

// seeded shows sums as a store keeps them: with the block's place folded in.
type seeded struct{ sound }

func (d seeded) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	err := d.sound.ReadSums(ctx, id, bufs, off, sums)
	for i := range sums {
		sums[i] ^= uint32(off/4096) + uint32(i)
	}
	return err
}

// anySums takes sums of parts of blocks.
type anySums struct{ sound }

func (d anySums) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	_ []uint32, stamps []wire.Stamp, du stripe.Durability) error {
	return d.sound.WriteSums(ctx, id, bufs, off, nil, stamps, du)
}

// forgetsMerged remembers the write's own request only.
type forgetsMerged struct{ sound }

func (d forgetsMerged) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, du stripe.Durability) error {
	if n := len(stamps) - 1; n > 0 && n <= stripe.StampsMax {
		stamps = stamps[:1]
	}
	return d.sound.WriteSums(ctx, id, bufs, off, sums, stamps, du)
}

// forgetsLast loses the last one of many.
type forgetsLast struct{ sound }

func (d forgetsLast) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, du stripe.Durability) error {
	if n := len(stamps) - 1; n > 100 && n <= stripe.StampsMax {
		stamps = stamps[:n]
	}
	return d.sound.WriteSums(ctx, id, bufs, off, sums, stamps, du)
}

// checksMerged takes a write for a repeat because a request that it includes is one.
type checksMerged struct{ sound }

func (d checksMerged) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, du stripe.Durability) error {
	for _, st := range stamps {
		if known, err := d.Admit(ctx, id, off, 0, st, 0); known && err == nil {
			return nil
		}
	}
	return d.sound.WriteSums(ctx, id, bufs, off, sums, stamps, du)
}

// notesRefused remembers the requests of a write that it has refused.
type notesRefused struct{ sound }

func (d notesRefused) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, du stripe.Durability) error {
	err := d.sound.WriteSums(ctx, id, bufs, off, sums, stamps, du)
	if errors.Is(err, errs.Stale) {
		elsewhere := stripe.ObjectID{File: 1 << 62}
		_ = d.sound.WriteSums(ctx, elsewhere, nil, 0, nil, append([]wire.Stamp{{}}, stamps...), du)
	}
	return err
}

// admitsAll looks at nothing.
type admitsAll struct{ sound }

func (d admitsAll) Admit(context.Context, stripe.ObjectID, int64, int64, wire.Stamp,
	int64) (bool, error) {
	return false, nil
}

// admitsRepeats knows who may write, and no numbers.
type admitsRepeats struct{ sound }

func (d admitsRepeats) Admit(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	space int64) (bool, error) {
	st.Session = 0
	return d.sound.Admit(ctx, id, off, n, st, space)
}

// admitsTooMuch counts no space.
type admitsTooMuch struct{ sound }

func (d admitsTooMuch) Admit(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	_ int64) (bool, error) {
	return d.sound.Admit(ctx, id, off, n, st, 0)
}

// admitDoes brings to life what it is asked about.
type admitDoes struct{ sound }

func (d admitDoes) Admit(ctx context.Context, id stripe.ObjectID, off, n int64, st wire.Stamp,
	space int64) (bool, error) {
	known, err := d.sound.Admit(ctx, id, off, n, st, space)
	if err == nil && !known {
		err = d.sound.WriteAt(ctx, id, nil, 0, st, stripe.Volatile)
	}
	return known, err
}

// farMember names a member that does not exist.
type farMember struct{ sound }

func (d farMember) Place(id stripe.ObjectID, off int64) (int, int64) {
	return int(off/(1<<20)) % 2, 1<<20 - off%(1<<20)
}

// shortRun forgets how much of a run is left.
type shortRun struct{ sound }

func (d shortRun) Place(stripe.ObjectID, int64) (int, int64) { return 0, 1 << 20 }

func sumDefects() []planted {
	return []planted{
		{"takes the sum of zeroes for zero", "sums are those of the bytes that are read",
			func(s sound) stripe.Engine { return zeroIsZero{s} }},
		{"shows its seeds", "given sums are kept over a restart",
			func(s sound) stripe.Engine { return seeded{s} }},
		{"takes sums of parts", "sums are of whole blocks",
			func(s sound) stripe.Engine { return anySums{s} }},
		{"forgets merged requests", "requests that a write includes are remembered",
			func(s sound) stripe.Engine { return forgetsMerged{s} }},
		{"forgets the last of many", "requests that a large write includes are remembered",
			func(s sound) stripe.Engine { return forgetsLast{s} }},
		{"checks merged requests", "requests that a write includes are not checked",
			func(s sound) stripe.Engine { return checksMerged{s} }},
		{"notes refused requests", "requests of a refused write are not remembered",
			func(s sound) stripe.Engine { return notesRefused{s} }},
		{"forgets the requests of nothing", "a write of nothing remembers its requests",
			func(s sound) stripe.Engine { return forgetsMerged{s} }},
		{"admits everything", "what a write would be told is told in advance",
			func(s sound) stripe.Engine { return admitsAll{s} }},
		{"admits by doing", "what a write would be told is told in advance",
			func(s sound) stripe.Engine { return admitDoes{s} }},
		{"admits repeats", "a repeat is known in advance",
			func(s sound) stripe.Engine { return admitsRepeats{s} }},
		{"admits too much", "a full store is known in advance",
			func(s sound) stripe.Engine { return admitsTooMuch{s} }},
		{"names a member that is none", "places cover every object",
			func(s sound) stripe.Engine { return farMember{s} }},
		{"names runs that are too long", "places cover every object",
			func(s sound) stripe.Engine { return shortRun{s} }},
	}
}
