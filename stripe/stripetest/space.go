package stripetest

import (
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func spaceCases() []Case {
	return []Case{
		{"stat tells size and space", statSize},
		{"punch makes zeroes and keeps the size", punchRange},
		{"punch of an absent object and past the end", punchNothing},
		{"the map covers its range exactly", mapCovers},
		{"the map obeys its limit", mapLimit},
		{"list names every object once", listAll},
		{"remove forgets, and again", removeTwice},
		{"space is sane", spaceSane},
	}
}

func statSize(t testing.TB, c Config) {
	r := newRig(t, c)
	if in := r.stat(alpha); in != (stripe.Info{ID: alpha}) {
		t.Fatalf("an absent object has %+v", in)
	}
	r.write(alpha, 10, fill(100, 1))
	r.size(alpha, 110)
	r.write(alpha, 0, fill(5, 1))
	r.size(alpha, 110)
	r.write(alpha, 1<<30, fill(64<<10, 2))
	r.size(alpha, 1<<30+64<<10)
	if in := r.stat(alpha); in.Allocated < 64<<10 || in.Allocated > 8<<20 {
		t.Fatalf("two small runs allocate %d bytes", in.Allocated)
	}
}

func punchRange(t testing.TB, c Config) {
	r := newRig(t, c)
	want := fill(1<<20, 1)
	r.write(alpha, 0, want)
	before := r.stat(alpha).Allocated
	for _, x := range []struct{ off, n int64 }{
		{5, 1}, {4000, 200}, {100_001, 600_000}, {1<<20 - 9, 9},
	} {
		r.ok(r.e.Punch(r.ctx, alpha, x.off, x.n, wire.Stamp{}, stripe.Durable))
		clear(want[x.off : x.off+x.n])
		r.holds(alpha, 0, want)
	}
	r.size(alpha, 1<<20)
	if after := r.stat(alpha).Allocated; after >= before {
		t.Fatalf("punching 600000 bytes left %d of %d bytes allocated", after, before)
	}
	r.write(alpha, 300_000, fill(1000, 2))
	copy(want[300_000:], fill(1000, 2))
	r.reopen()
	r.holds(alpha, 0, want)
}

func punchNothing(t testing.TB, c Config) {
	r := newRig(t, c)
	r.ok(r.e.Punch(r.ctx, alpha, 0, 1<<40, wire.Stamp{}, stripe.Volatile))
	if n := len(r.list()); n != 0 {
		t.Fatalf("punching brought %d objects to life", n)
	}
	r.write(alpha, 0, fill(1000, 1))
	r.ok(r.e.Punch(r.ctx, alpha, 900, 1<<40, wire.Stamp{}, stripe.Volatile))
	r.ok(r.e.Punch(r.ctx, alpha, 1<<30, 1<<40, wire.Stamp{}, stripe.Volatile))
	r.ok(r.e.Punch(r.ctx, alpha, 10, 0, wire.Stamp{}, stripe.Volatile))
	r.size(alpha, 1000)
	r.holds(alpha, 0, append(fill(1000, 1)[:900], make([]byte, 200)...))
}

// allOf tells whether the map calls every byte of [off, off+n) a hole, or data.
func allOf(list []stripe.Extent, off, n int64, hole bool) bool {
	for _, x := range list {
		if x.Off < off+n && off < x.Off+x.Len && x.Hole != hole {
			return false
		}
	}
	return true
}

func mapCovers(t testing.TB, c Config) {
	r := newRig(t, c)
	u := c.HoleBytes
	if list := r.extents(alpha, 3, 1000); len(list) != 1 || !list[0].Hole {
		t.Fatalf("an absent object is %+v", list)
	}
	r.write(alpha, 4*u, fill(int(2*u), 1))
	r.write(alpha, 16*u, fill(100, 2))
	list := r.extents(alpha, 0, 64*u)
	if !allOf(list, 4*u, 2*u, false) || !allOf(list, 16*u, 100, false) {
		t.Fatalf("written bytes are called a hole: %+v", list)
	}
	if !allOf(list, 0, 3*u, true) || !allOf(list, 8*u, 7*u, true) || !allOf(list, 18*u, 46*u, true) {
		t.Fatalf("a wide gap is called data: %+v", list)
	}
	if list := r.extents(alpha, 4*u+5, 100); len(list) != 1 || list[0].Hole {
		t.Fatalf("the inside of data is %+v", list)
	}
	if list := r.extents(alpha, 5*u, 0); len(list) != 0 {
		t.Fatalf("an empty range has extents %+v", list)
	}
	r.ok(r.e.Punch(r.ctx, alpha, 4*u, 2*u, wire.Stamp{}, stripe.Volatile))
	if list := r.extents(alpha, 0, 16*u); len(list) != 1 || !list[0].Hole {
		t.Fatalf("after the punch the map is %+v", list)
	}
}

func mapLimit(t testing.TB, c Config) {
	r := newRig(t, c)
	u := c.HoleBytes
	for i := range int64(6) {
		r.write(alpha, (8*i+2)*u, fill(100, 1))
	}
	full := r.extents(alpha, 0, 64*u)
	if len(full) != 13 {
		t.Fatalf("six runs make %d extents: %+v", len(full), full)
	}
	for max := range 14 {
		list, err := r.e.Map(r.ctx, alpha, 0, 64*u, max)
		r.ok(err)
		if len(list) != min(max, len(full)) {
			t.Fatalf("limit %d gives %d extents", max, len(list))
		}
		for i, x := range list {
			if x != full[i] {
				t.Fatalf("limit %d: extent %d is %+v, want %+v", max, i, x, full[i])
			}
		}
	}
}

func listAll(t testing.TB, c Config) {
	r := newRig(t, c)
	want := map[stripe.ObjectID]int64{}
	for i := range 100 {
		id := stripe.ObjectID{File: uint64(i / 4), Gen: 1, Stripe: uint32(i % 4)}
		want[id] = int64(100 + i)
		r.write(id, 0, fill(100+i, byte(i)))
	}
	for range 2 {
		got := r.list()
		for id, size := range want {
			if got[id].Size != size {
				t.Fatalf("List tells %+v of %v, want size %d", got[id], id, size)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("List names %d objects, want %d", len(got), len(want))
		}
		r.reopen()
	}
	seen := 0
	r.ok(r.e.List(r.ctx, func(stripe.Info) bool { seen++; return seen < 5 }))
	if seen != 5 {
		t.Fatalf("List went on to %d after fn said stop at 5", seen)
	}
}

func removeTwice(t testing.TB, c Config) {
	r := newRig(t, c)
	r.ok(r.e.Remove(r.ctx, alpha))
	r.write(alpha, 0, fill(100_000, 1))
	r.truncate(alpha, 90_000, seq(3))
	for range 2 {
		r.ok(r.e.Remove(r.ctx, alpha))
		r.holds(alpha, 0, make([]byte, 100_000))
		if in := r.stat(alpha); in != (stripe.Info{ID: alpha}) {
			t.Fatalf("a removed object has %+v", in)
		}
	}
	r.reopen()
	if n := len(r.list()); n != 0 {
		t.Fatalf("%d objects are left", n)
	}
	r.write(alpha, 50_000, fill(10, 2)) // a new life, which knows nothing of the old one
	r.holds(alpha, 0, append(make([]byte, 50_000), fill(10, 2)...))
}

func spaceSane(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100_000, 1))
	sp, err := r.e.Space()
	r.ok(err)
	if sp.Total <= 0 || sp.Free <= 0 || sp.Free > sp.Total {
		t.Fatalf("space is %+v", sp)
	}
}
