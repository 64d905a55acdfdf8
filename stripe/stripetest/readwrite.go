package stripetest

import (
	"bytes"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func readWriteCases() []Case {
	return []Case{
		{"an absent object reads as zeroes", readAbsent},
		{"written bytes are read, holes are zeroes", readSparse},
		{"an overwrite replaces exactly its range", overwrite},
		{"buffers are gathered and scattered", gatherScatter},
		{"many small buffers in one request", manyBuffers},
		{"objects do not share bytes", apart},
		{"a write of nothing changes nothing", writeNothing},
		{"the caller's buffers are its own again", buffersReturned},
		{"what was written is there after a restart", survivesReopen},
		{"sync of one, of all, of an absent object", syncCases},
	}
}

func readAbsent(t testing.TB, c Config) {
	r := newRig(t, c)
	r.holds(alpha, 0, make([]byte, 100_000))
	r.holds(alpha, 1<<40+3, make([]byte, 5000))
	if n := len(r.list()); n != 0 {
		t.Fatalf("reading brought %d objects to life", n)
	}
}

func readSparse(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 1<<20+17, fill(10_000, 1))
	want := make([]byte, 1<<20+17+10_000+50_000)
	copy(want[1<<20+17:], fill(10_000, 1))
	r.holds(alpha, 0, want)
	r.write(alpha, 1<<33, fill(3, 2))
	r.holds(alpha, 1<<33-2, append([]byte{0, 0}, append(fill(3, 2), 0, 0, 0)...))
	r.size(alpha, 1<<33+3)
}

func overwrite(t testing.TB, c Config) {
	r := newRig(t, c)
	want := fill(200_000, 1)
	r.write(alpha, 0, want)
	for i, x := range []struct{ off, n int }{{0, 1}, {4095, 2}, {65_530, 70_000}, {199_999, 1}} {
		p := fill(x.n, byte(10+i))
		r.write(alpha, int64(x.off), p)
		copy(want[x.off:], p)
		r.holds(alpha, 0, want)
	}
	r.size(alpha, 200_000)
}

func gatherScatter(t testing.TB, c Config) {
	r := newRig(t, c)
	src := fill(150_000, 3)
	r.ok(r.e.WriteAt(r.ctx, alpha, [][]byte{src[:1], {}, src[1:70_000], nil, src[70_000:]}, 4097,
		wire.Stamp{}, stripe.Durable))
	r.holds(alpha, 4097, src)
	a, b, d := fill(4098, 9), fill(100_000, 9), fill(80_000, 9)
	r.ok(r.e.ReadAt(r.ctx, alpha, [][]byte{a, nil, b, {}, d}, 0))
	want := append(make([]byte, 4097), src...)
	want = append(want, make([]byte, 80_000)...)
	if !bytes.Equal(append(append(a, b...), d...), want[:4098+100_000+80_000]) {
		t.Fatal("scattered buffers do not hold the range in order")
	}
}

func manyBuffers(t testing.TB, c Config) {
	r := newRig(t, c)
	const pieces, each = 3000, 13
	src := fill(pieces*each, 4)
	var in, out [][]byte
	dst := make([]byte, len(src))
	for i := range pieces {
		in = append(in, src[i*each:(i+1)*each])
		out = append(out, dst[i*each:(i+1)*each])
	}
	r.ok(r.e.WriteAt(r.ctx, alpha, in, 99, wire.Stamp{}, stripe.Volatile))
	r.ok(r.e.ReadAt(r.ctx, alpha, out, 99))
	if !bytes.Equal(src, dst) {
		t.Fatal("bytes of many small buffers differ")
	}
}

func apart(t testing.TB, c Config) {
	r := newRig(t, c)
	ids := []stripe.ObjectID{
		{File: 1}, {Gen: 1}, {Stripe: 1}, {File: 1, Gen: 1}, {File: 1, Stripe: 1},
		{File: 1 << 40, Gen: 1, Stripe: 1}, {File: 1<<64 - 1, Gen: 1<<32 - 1, Stripe: 1<<32 - 1},
	}
	for i, id := range ids {
		r.write(id, int64(i), fill(5000, byte(i+1)))
	}
	for i, id := range ids {
		r.holds(id, 0, append(make([]byte, i), fill(5000, byte(i+1))...))
	}
	if n := len(r.list()); n != len(ids) {
		t.Fatalf("List names %d objects, want %d", n, len(ids))
	}
}

func writeNothing(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 1000, nil)
	r.size(alpha, 0)
	r.write(alpha, 0, fill(10, 1))
	r.ok(r.e.WriteAt(r.ctx, alpha, [][]byte{{}, nil}, 1<<20, wire.Stamp{}, stripe.Durable))
	r.size(alpha, 10)
	r.ok(r.e.ReadAt(r.ctx, alpha, nil, 5))
}

func buffersReturned(t testing.TB, c Config) {
	r := newRig(t, c)
	p := fill(70_000, 5)
	r.write(alpha, 0, p)
	if !bytes.Equal(p, fill(70_000, 5)) {
		t.Fatal("a write changed the caller's buffer")
	}
	clear(p)
	r.holds(alpha, 0, fill(70_000, 5))
}

func survivesReopen(t testing.TB, c Config) {
	r := newRig(t, c)
	beta := stripe.ObjectID{File: 7, Gen: 3, Stripe: 2}
	r.write(alpha, 5, fill(100_000, 6))
	r.ok(r.e.WriteAt(r.ctx, beta, [][]byte{fill(5000, 7)}, 1<<22, wire.Stamp{}, stripe.Durable))
	for range 2 {
		r.reopen()
		r.holds(alpha, 0, append(make([]byte, 5), fill(100_000, 6)...))
		r.holds(beta, 1<<22-5, append(make([]byte, 5), fill(5000, 7)...))
		r.size(beta, 1<<22+5000)
		r.write(alpha, 50, fill(10, 6+45))
		r.write(alpha, 50, fill(100_000, 6)[45:55])
	}
}

func syncCases(t testing.TB, c Config) {
	r := newRig(t, c)
	r.ok(r.e.Sync(r.ctx, alpha))
	r.ok(r.e.Sync(r.ctx, stripe.ObjectID{}))
	r.write(alpha, 0, fill(10, 1))
	r.ok(r.e.Sync(r.ctx, alpha))
	r.write(alpha, 10, fill(10, 2))
	r.ok(r.e.Sync(r.ctx, stripe.ObjectID{}))
	r.holds(alpha, 0, append(fill(10, 1), fill(10, 2)...))
	r.refused(r.e.WriteAt(r.ctx, stripe.ObjectID{}, [][]byte{{1}}, 0, wire.Stamp{}, 0), errs.Invalid)
	r.refused(r.e.ReadAt(r.ctx, stripe.ObjectID{}, [][]byte{{1}}, 0), errs.Invalid)
}
