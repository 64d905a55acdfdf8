package stripetest

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func admitCases() []Case {
	return []Case{
		{"what a write would be told is told in advance", admitTells},
		{"a repeat is known in advance", admitRepeat},
		{"a full store is known in advance", admitFull},
		{"places cover every object", placeCovers},
	}
}

func (r *rig) admit(id stripe.ObjectID, off, n int64, st wire.Stamp) (bool, error) {
	return r.e.Admit(r.ctx, id, off, n, st, stripe.GrainBytes)
}

func admitTells(t testing.TB, c Config) {
	r := newRig(t, c)
	for _, st := range []wire.Stamp{{}, seq(3), numbered(1, 1, 1)} {
		if repeated, err := r.admit(alpha, 0, 5000, st); repeated || err != nil {
			t.Fatalf("a first write: repeated %v, %v", repeated, err)
		}
	}
	if len(r.list()) != 0 {
		t.Fatal("asking brought an object to life")
	}
	r.writeAs(alpha, 0, fill(10, 1), numbered(1, 1, 1)) // asking was not doing
	r.holds(alpha, 0, fill(10, 1))
	r.truncate(alpha, 10, seq(5))
	_, err := r.admit(alpha, 0, 10, seq(4))
	r.refused(err, errs.Stale)
	_, err = r.admit(alpha, 0, 10, seq(5))
	r.ok(err)
	r.ok(r.e.SetMinGeneration(r.ctx, alpha.File, alpha.Gen+1))
	_, err = r.admit(alpha, 0, 10, seq(5))
	r.refused(err, errs.Fenced)
	_, err = r.admit(stripe.ObjectID{}, 0, 10, seq(5))
	r.refused(err, errs.Invalid)
	_, err = r.admit(stripe.ObjectID{File: 1}, stripe.MaxObjectBytes, 1, wire.Stamp{})
	r.refused(err, errs.TooBig)
	r.ok(r.e.Close())
	_, err = r.admit(stripe.ObjectID{File: 99}, 0, 10, wire.Stamp{})
	r.refused(err, errs.Closed)
}

func admitRepeat(t testing.TB, c Config) {
	r := newRig(t, c)
	const off, n = 1<<20 - 8192, 3 << 20
	p := fill(n, 1)
	r.writeSums(alpha, off, p, numbered(9, 1, 5), numbered(9, 2, 3))
	for range 3 {
		for _, x := range []struct {
			st   wire.Stamp
			want bool
		}{
			{numbered(9, 1, 5), true}, {numbered(9, 1, 4), true}, {numbered(9, 1, 6), false},
			{numbered(9, 2, 3), true}, {numbered(9, 2, 4), false}, {numbered(9, 3, 1), false},
			{numbered(8, 1, 5), false}, {wire.Stamp{}, false},
		} {
			for _, at := range []int64{off, off + n - 4096} {
				got, err := r.admit(alpha, at, 4096, x.st)
				r.ok(err)
				if got != x.want {
					t.Fatalf("%+v at %d: repeated %v", x.st, at, got)
				}
			}
			got, err := r.admit(alpha, off, n, x.st)
			r.ok(err)
			if got != x.want {
				t.Fatalf("%+v: repeated %v", x.st, got)
			}
		}
		r.reopen()
	}
}

func admitFull(t testing.TB, c Config) {
	r, size := fullRig(t, c)
	if r == nil {
		return
	}
	ask := func(space int64) error {
		_, err := r.e.Admit(r.ctx, alpha, size, 4096, wire.Stamp{}, space)
		return err
	}
	r.refused(ask(1<<40), errs.NoSpace)
	r.refused(ask(128<<20), errs.NoSpace)
	r.ok(r.e.Remove(r.ctx, alpha))
	r.ok(r.e.Sync(r.ctx, stripe.ObjectID{}))
	other := stripe.ObjectID{File: 8}
	// What is admitted is then taken.
	p := fill(64<<10, 1)
	for at := int64(0); ; at += 64 << 10 {
		_, err := r.e.Admit(r.ctx, other, at, 64<<10, wire.Stamp{}, stripe.GrainBytes)
		if errs.KindOf(err) == errs.NoSpace {
			return
		}
		r.ok(err)
		r.write(other, at, p)
		if at > 256<<20 {
			t.Fatal("the store is not small")
		}
	}
}

func placeCovers(t testing.TB, c Config) {
	r := newRig(t, c)
	members := r.e.Members()
	if members < 1 {
		t.Fatalf("%d members", members)
	}
	for file := range uint64(5) {
		id := stripe.ObjectID{File: file + 1, Gen: 1}
		met := map[int]bool{}
		for off := int64(0); off < 200<<20 && off < stripe.MaxObjectBytes; {
			m, run := r.e.Place(id, off)
			if m < 0 || m >= members || run < 1 {
				t.Fatalf("offset %d: member %d of %d, run %d", off, m, members, run)
			}
			met[m] = true
			for _, in := range []int64{0, run / 2, run - 1} { // all of the run says the same
				if k, rest := r.e.Place(id, off+in); k != m || rest != run-in {
					t.Fatalf("offset %d in the run at %d: member %d, run %d", off+in, off, k, rest)
				}
			}
			off += run
		}
		if len(met) != members {
			t.Fatalf("object %v meets %d members of %d", id, len(met), members)
		}
	}
	if m, run := r.e.Place(alpha, stripe.MaxObjectBytes-1); m >= members || run < 1 {
		t.Fatalf("the last byte is on %d of %d, run %d", m, members, run)
	}
}
