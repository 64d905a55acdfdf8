package stripetest

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func reserveCases() []Case {
	return []Case{
		{"what is reserved reads as before and counts", reserveReads},
		{"a reservation is undone by its pieces", reserveUndo},
		{"a reservation names as many pieces as it may", reservePieces},
		{"what is reserved is written in a full store", reserveFull},
		{"what does not fit is not reserved at all", reserveNothing},
		{"a reservation leaves what was promised", reserveLeaves},
		{"punch, truncate and remove give reserved space back", reserveGone},
		{"blank keeps the space", blankKeeps},
		{"a reservation of before a truncation is stale", reserveStale},
	}
}

// reserve reserves all of a range.
func (r *rig) reserve(id stripe.ObjectID, off, n int64, extend bool) []seg.Piece {
	r.Helper()
	end, fresh, err := r.e.Reserve(r.ctx, id, stripe.Reservation{Off: off, Len: n, Extend: extend,
		PiecesMax: 1 << 20}, wire.Stamp{})
	r.ok(err)
	if end != off+n {
		r.Fatalf("reserving [%d, +%d) ended at %d", off, n, end)
	}
	r.haveSpace(id, off, n)
	return fresh
}

// haveSpace checks that the map shows space for all of a range. Of the unit that the object ends in
// it may show only what lies before the end.
func (r *rig) haveSpace(id stripe.ObjectID, off, n int64) {
	r.Helper()
	u, size := r.cfg.HoleBytes, r.stat(id).Size
	for _, x := range r.extents(id, off, n) {
		if unit := (size + u - 1) / u * u; x.Off >= size && x.Off < unit {
			rest := min(x.Len, unit-x.Off)
			x.Off, x.Len = x.Off+rest, x.Len-rest
		}
		if x.Hole && !x.Reserved && x.Len > 0 {
			r.Fatalf("object %v: %+v of [%d, +%d) has no space", id, x, off, n)
		}
	}
}

func (r *rig) allocated(id stripe.ObjectID, least, most int64) {
	r.Helper()
	if got := r.stat(id).Allocated; got < least || got > most {
		r.Fatalf("object %v takes %d bytes, want %d to %d", id, got, least, most)
	}
}

// reservedIn adds up what the map calls reserved.
func (r *rig) reservedIn(id stripe.ObjectID, off, n int64) (sum int64) {
	r.Helper()
	for _, x := range r.extents(id, off, n) {
		if x.Reserved {
			if !x.Hole {
				r.Fatalf("%+v is data and reserved", x)
			}
			sum += x.Len
		}
	}
	return sum
}

func reserveReads(t testing.TB, c Config) {
	r := newRig(t, c)
	r.reserve(alpha, 100_000, 3<<20, false)
	r.size(alpha, 0)
	r.allocated(alpha, 3<<20, 3<<20+3*c.HoleBytes)
	r.holds(alpha, 0, make([]byte, 4<<20))
	r.write(alpha, 200_000, fill(5000, 1))
	want := append(make([]byte, 200_000), fill(5000, 1)...)
	for range 3 {
		r.size(alpha, 205_000)
		r.holds(alpha, 0, append(want, make([]byte, 3<<20)...))
		r.allocated(alpha, 3<<20, 3<<20+3*c.HoleBytes)
		r.haveSpace(alpha, 100_000, 3<<20)
		if n := r.reservedIn(alpha, 0, 8<<20); n < 2<<20 || n > 3<<20+2*c.HoleBytes-5000 {
			t.Fatalf("%d bytes are reserved and not written", n)
		}
		r.reopen()
	}
	r.reserve(alpha, 0, 5<<20, true)
	r.size(alpha, 5<<20)
	r.holds(alpha, 0, append(want, make([]byte, 5<<20-205_000)...))
	r.reserve(alpha, 0, 1<<20, true) // below its end
	r.reserve(alpha, 0, 0, true)
	r.size(alpha, 5<<20)
	r.write(alpha, 0, fill(5<<20, 2))
	if n := r.reservedIn(alpha, 0, 8<<20); n > 0 {
		t.Fatalf("%d bytes are reserved of what was written", n)
	}
	r.reopen()
	r.holds(alpha, 0, fill(5<<20, 2))
	r.allocated(alpha, 5<<20, 5<<20+c.HoleBytes)
}

func reserveUndo(t testing.TB, c Config) {
	r := newRig(t, c)
	u := c.HoleBytes
	r.write(alpha, 4*u, fill(int(2*u), 1))
	r.reserve(alpha, 10*u, 2*u, false)
	before := r.extents(alpha, 0, 40*u)
	space := r.stat(alpha).Allocated
	fresh := r.reserve(alpha, u/2, 30*u, false)
	if len(fresh) != 3 {
		t.Fatalf("the pieces are %+v", fresh)
	}
	r.write(alpha, 20*u, fill(int(u), 2)) // it is no reservation any more
	r.reopen()
	for _, p := range fresh {
		r.ok(r.e.Release(r.ctx, alpha, p.Off, p.Len, wire.Stamp{}))
	}
	for range 2 {
		r.allocated(alpha, space+u, space+u)
		after := r.extents(alpha, 0, 40*u)
		if got, want := len(after), len(before)+2; got != want {
			t.Fatalf("%+v became %+v", before, after)
		}
		r.holds(alpha, 4*u, fill(int(2*u), 1))
		r.holds(alpha, 20*u, fill(int(u), 2))
		r.haveSpace(alpha, 10*u, 2*u)
		r.reopen()
	}
	r.ok(r.e.Release(r.ctx, stripe.ObjectID{File: 99}, 0, 1<<40, wire.Stamp{}))
	if len(r.list()) != 1 {
		t.Fatal("releasing brought an object to life")
	}
}

func reservePieces(t testing.TB, c Config) {
	r := newRig(t, c)
	u := c.HoleBytes
	for i := range int64(20) {
		r.write(alpha, 2*i*u, fill(int(u), byte(i)))
	}
	var pieces int
	for at := int64(0); at < 40*u; {
		end, fresh, err := r.e.Reserve(r.ctx, alpha, stripe.Reservation{Off: at, Len: 40*u - at,
			PiecesMax: 3}, wire.Stamp{})
		r.ok(err)
		if end <= at || len(fresh) > 3 {
			t.Fatalf("at %d it came to %d with %d pieces", at, end, len(fresh))
		}
		pieces += len(fresh)
		r.haveSpace(alpha, at, end-at)
		at = end
	}
	if pieces != 20 {
		t.Fatalf("%d pieces for 20 gaps", pieces)
	}
	end, fresh, err := r.e.Reserve(r.ctx, alpha, stripe.Reservation{Len: 80 * u}, wire.Stamp{})
	if err != nil || end != 80*u || len(fresh) > 0 {
		t.Fatalf("without names: %d, %+v, %v", end, fresh, err)
	}
	r.haveSpace(alpha, 0, 80*u)
}

var beta = stripe.ObjectID{File: 9, Gen: 1}

// fullWith reserves room for beta in an empty small engine and then fills it with alpha.
func fullWith(t testing.TB, c Config, n int64) *rig {
	if c.OpenSmall == nil {
		t.Log("the engine has no small form")
		return nil
	}
	small := c
	small.Open = c.OpenSmall
	r := newRig(t, small)
	r.reserve(beta, 0, n, false)
	for off, step := int64(0), int64(1<<20); step >= 4096; {
		err := r.e.WriteAt(r.ctx, alpha, [][]byte{fill(int(step), 7)}, off, wire.Stamp{},
			stripe.Volatile)
		if errs.KindOf(err) == errs.NoSpace {
			step /= 4
			continue
		}
		r.ok(err)
		off += step
	}
	return r
}

func reserveFull(t testing.TB, c Config) {
	const n = 1 << 20
	r := fullWith(t, c, n)
	if r == nil {
		return
	}
	r.refused(r.e.WriteAt(r.ctx, beta, [][]byte{fill(1<<20, 1)}, 4<<20, wire.Stamp{}, 0), errs.NoSpace)
	want := make([]byte, n)
	for i, x := range []struct{ off, n int64 }{
		{5, 100}, {4096, 4096}, {100_000, 300_000}, {1 << 19, 1 << 18}, {n - 1, 1}, {0, n}, {4000, 9000},
	} {
		p := fill(int(x.n), byte(i))
		copy(want[x.off:], p)
		r.ok(r.e.WriteAt(r.ctx, beta, [][]byte{p}, x.off, wire.Stamp{}, stripe.Durability(i%3)))
		r.holds(beta, 0, want)
		if i%2 == 0 {
			r.reopen()
		}
	}
	r.holds(beta, 0, want)
	// What was blanked has its space, and can be written again.
	r.ok(r.e.Blank(r.ctx, beta, 0, n, wire.Stamp{}, stripe.Durable))
	r.reopen()
	r.write(beta, 0, fill(n, 9))
	r.holds(beta, 0, fill(n, 9))
}

func reserveNothing(t testing.TB, c Config) {
	r := fullWith(t, c, 256<<10)
	if r == nil {
		return
	}
	r.ok(r.e.Punch(r.ctx, alpha, 0, 1<<20, wire.Stamp{}, stripe.Durable)) // something would fit
	sp, err := r.e.Space()
	r.ok(err)
	for _, n := range []int64{sp.Free + 4<<20, 1 << 40, 1 << 59} {
		for _, id := range []stripe.ObjectID{beta, {File: 55}} {
			before := r.stat(id)
			_, _, err = r.e.Reserve(r.ctx, id, stripe.Reservation{Len: n, Extend: true,
				PiecesMax: 1000}, wire.Stamp{})
			r.refused(err, errs.NoSpace)
			if after := r.stat(id); after.Size != before.Size || after.Allocated != before.Allocated {
				t.Fatalf("after it was refused %+v is %+v", before, after)
			}
		}
	}
	after, err := r.e.Space()
	r.ok(err)
	if after.Free < sp.Free {
		t.Fatalf("%+v became %+v", sp, after)
	}
	r.reopen()
	r.haveSpace(beta, 0, 256<<10)
	r.write(beta, 0, fill(256<<10, 3))
	r.holds(beta, 0, fill(256<<10, 3))
}

func reserveLeaves(t testing.TB, c Config) {
	if c.OpenSmall == nil {
		t.Log("the engine has no small form")
		return
	}
	c.Open = c.OpenSmall
	r := newRig(t, c)
	sp, err := r.e.Space()
	r.ok(err)
	_, _, err = r.e.Reserve(r.ctx, beta, stripe.Reservation{Len: 1 << 20, Leave: sp.Free},
		wire.Stamp{})
	r.refused(err, errs.NoSpace)
	r.allocated(beta, 0, 0)
	_, _, err = r.e.Reserve(r.ctx, beta, stripe.Reservation{Len: 1 << 20, Leave: 64 << 10},
		wire.Stamp{})
	r.ok(err)
	r.allocated(beta, 1<<20, 1<<20)
}

func reserveGone(t testing.TB, c Config) {
	r := newRig(t, c)
	u := c.HoleBytes
	r.reserve(alpha, 0, 32*u, false)
	r.write(alpha, 0, fill(100, 1))
	r.ok(r.e.Punch(r.ctx, alpha, 8*u, 8*u, wire.Stamp{}, stripe.Durable)) // behind its end
	r.allocated(alpha, 24*u, 24*u)
	r.ok(r.e.Punch(r.ctx, alpha, 0, 4*u, wire.Stamp{}, stripe.Durable))
	r.allocated(alpha, 20*u, 20*u)
	r.reopen()
	r.allocated(alpha, 20*u, 20*u)
	r.truncate(alpha, 20*u, seq(1))
	r.allocated(alpha, 8*u, 8*u)
	r.truncate(alpha, 0, seq(2))
	r.allocated(alpha, 0, 0)
	_, _, err := r.e.Reserve(r.ctx, alpha, stripe.Reservation{Len: 8 * u}, seq(2))
	r.ok(err)
	before, err := r.e.Space()
	r.ok(err)
	r.ok(r.e.Remove(r.ctx, alpha))
	after, err := r.e.Space()
	r.ok(err)
	if after.Free < before.Free+8*u {
		t.Fatalf("removing gave back %d bytes", after.Free-before.Free)
	}
	r.allocated(alpha, 0, 0)
}

func blankKeeps(t testing.TB, c Config) {
	r := newRig(t, c)
	u := c.HoleBytes
	want := fill(int(16*u)+100, 1)
	r.write(alpha, 0, want)
	space := r.stat(alpha).Allocated
	for _, x := range []struct{ off, n int64 }{{5, 10}, {u + 7, 6 * u}, {15*u + 3, 9 * u}} {
		r.ok(r.e.Blank(r.ctx, alpha, x.off, x.n, wire.Stamp{}, stripe.Durable))
		clear(want[x.off:min(x.off+x.n, int64(len(want)))])
		r.holds(alpha, 0, want)
		r.allocated(alpha, space, space)
		r.size(alpha, int64(len(want)))
		r.reopen()
	}
	r.holds(alpha, 0, want)
	r.haveSpace(alpha, 0, int64(len(want)))
	if n := r.reservedIn(alpha, 0, 16*u); n < 5*u {
		t.Fatalf("%d bytes are reserved after 6 units were blanked", n)
	}
	r.ok(r.e.Blank(r.ctx, beta, 0, 10*u, wire.Stamp{}, stripe.Volatile))
	if len(r.list()) != 1 {
		t.Fatal("blanking brought an object to life")
	}
}

func reserveStale(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100, 1))
	r.truncate(alpha, 50, seq(5))
	_, _, err := r.e.Reserve(r.ctx, alpha, stripe.Reservation{Len: 1 << 20}, seq(4))
	r.refused(err, errs.Stale)
	r.refused(r.e.Release(r.ctx, alpha, 0, 1<<20, seq(4)), errs.Stale)
	r.refused(r.e.Blank(r.ctx, alpha, 0, 1<<20, seq(4), stripe.Durable), errs.Stale)
	r.allocated(alpha, 1, c.HoleBytes)
	_, _, err = r.e.Reserve(r.ctx, alpha, stripe.Reservation{Off: -1, Len: 5}, seq(5))
	r.refused(err, errs.Invalid)
	_, _, err = r.e.Reserve(r.ctx, alpha, stripe.Reservation{Off: 1 << 60, Len: 5}, seq(5))
	r.refused(err, errs.TooBig)
}
