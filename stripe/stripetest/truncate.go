package stripetest

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func truncateCases() []Case {
	return []Case{
		{"truncate cuts, and growing shows zeroes", truncateShrink},
		{"truncate extends with zeroes", truncateExtend},
		{"truncate then write past the cut shows zeroes between", truncateThenWrite},
		{"truncate inside a block hides the block's rest", truncateInsideBlock},
		{"an older truncate is refused", truncateOld},
		{"a repeated truncate is harmless", truncateRepeat},
		{"a write from before the truncate is refused", staleWrite},
		{"truncate of an absent object", truncateAbsent},
		{"truncate survives a restart", truncateReopen},
		{"truncate without a sequence", truncateUnnumbered},
	}
}

func truncateShrink(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(300_000, 1))
	r.truncate(alpha, 100_001, seq(1))
	r.size(alpha, 100_001)
	want := append(fill(300_000, 1)[:100_001], make([]byte, 300_000)...)
	r.holds(alpha, 0, want)
	r.truncate(alpha, 400_000, seq(2))
	r.size(alpha, 400_000)
	r.holds(alpha, 0, want[:400_000])
	r.truncate(alpha, 0, seq(3))
	r.size(alpha, 0)
	r.truncate(alpha, 400_000, seq(4))
	r.holds(alpha, 0, make([]byte, 400_000))
}

func truncateExtend(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100, 1))
	r.truncate(alpha, 1<<34, seq(1))
	r.size(alpha, 1<<34)
	r.holds(alpha, 0, append(fill(100, 1), make([]byte, 10_000)...))
	r.holds(alpha, 1<<34-100, make([]byte, 200))
	if in := r.stat(alpha); in.Allocated > 1<<20 {
		t.Fatalf("extending allocated %d bytes", in.Allocated)
	}
}

func truncateThenWrite(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(300_000, 1))
	r.truncate(alpha, 10, seq(1))
	r.writeAs(alpha, 250_000, fill(10, 2), seq(1))
	want := make([]byte, 250_010)
	copy(want, fill(300_000, 1)[:10])
	copy(want[250_000:], fill(10, 2))
	r.holds(alpha, 0, want)
	r.size(alpha, 250_010)
}

func truncateInsideBlock(t testing.TB, c Config) {
	r := newRig(t, c)
	for i, cut := range []int64{1, 511, 4095, 4097, 65_535, 65_537} {
		n := uint64(2 * i)
		r.writeAs(alpha, 0, fill(80_000, byte(i+1)), seq(n))
		r.truncate(alpha, cut, seq(n+1))
		r.truncate(alpha, 80_000, seq(n+2))
		r.holds(alpha, 0, append(fill(80_000, byte(i+1))[:cut], make([]byte, 80_000-cut)...))
	}
}

func truncateOld(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(1000, 1))
	r.truncate(alpha, 500, seq(5))
	r.refused(r.e.Truncate(r.ctx, alpha, 100, seq(4)), errs.Stale)
	r.refused(r.e.Truncate(r.ctx, alpha, 2000, seq(0)), errs.Stale)
	r.refused(r.e.Punch(r.ctx, alpha, 0, 10, seq(4), stripe.Volatile), errs.Stale)
	r.holds(alpha, 0, append(fill(1000, 1)[:500], make([]byte, 100)...))
	r.size(alpha, 500)
	if got := r.stat(alpha).TruncSeq; got != 5 {
		t.Fatalf("TruncSeq is %d, want 5", got)
	}
}

func truncateRepeat(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(1000, 1))
	r.truncate(alpha, 500, seq(5))
	r.truncate(alpha, 500, seq(5))
	r.size(alpha, 500)
	// A repeat that was under way for long must not cut what was acknowledged since.
	r.writeAs(alpha, 700, fill(100, 2), seq(5))
	r.truncate(alpha, 500, seq(5))
	r.size(alpha, 800)
	r.holds(alpha, 700, fill(100, 2))
}

func staleWrite(t testing.TB, c Config) {
	r := newRig(t, c)
	r.writeAs(alpha, 0, fill(1000, 1), seq(1))
	r.truncate(alpha, 100, seq(2))
	p := [][]byte{fill(1000, 3)}
	r.refused(r.e.WriteAt(r.ctx, alpha, p, 0, seq(1), stripe.Volatile), errs.Stale)
	r.refused(r.e.WriteAt(r.ctx, alpha, p, 50_000, seq(0), stripe.Durable), errs.Stale)
	r.holds(alpha, 0, append(fill(1000, 1)[:100], make([]byte, 60_000)...))
	r.size(alpha, 100)
	r.writeAs(alpha, 50, fill(10, 4), seq(2))
	r.writeAs(alpha, 60, fill(10, 5), seq(9)) // the sender knows more than the object
	r.holds(alpha, 50, append(fill(10, 4), fill(10, 5)...))
	if got := r.stat(alpha).TruncSeq; got != 2 {
		t.Fatalf("a write changed TruncSeq to %d", got)
	}
}

func truncateAbsent(t testing.TB, c Config) {
	r := newRig(t, c)
	r.truncate(alpha, 1000, wire.Stamp{})
	r.size(alpha, 0)
	if n := len(r.list()); n != 0 {
		t.Fatalf("truncate with sequence 0 brought %d objects to life", n)
	}
	r.truncate(alpha, 1000, seq(3))
	r.size(alpha, 1000)
	r.refused(r.e.WriteAt(r.ctx, alpha, [][]byte{{1}}, 0, seq(2), stripe.Volatile), errs.Stale)
	if in := r.list()[alpha]; in.Size != 1000 || in.TruncSeq != 3 {
		t.Fatalf("List tells %+v", in)
	}
}

func truncateReopen(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(100_000, 1))
	r.truncate(alpha, 777, seq(8))
	r.reopen()
	r.size(alpha, 777)
	r.refused(r.e.WriteAt(r.ctx, alpha, [][]byte{{1}}, 0, seq(7), stripe.Volatile), errs.Stale)
	r.refused(r.e.Truncate(r.ctx, alpha, 1, seq(7)), errs.Stale)
	r.truncate(alpha, 100_000, seq(9))
	r.reopen()
	r.holds(alpha, 0, append(fill(100_000, 1)[:777], make([]byte, 100_000-777)...))
}

func truncateUnnumbered(t testing.TB, c Config) {
	r := newRig(t, c)
	r.write(alpha, 0, fill(1000, 1))
	r.truncate(alpha, 500, wire.Stamp{})
	r.size(alpha, 500)
	r.write(alpha, 500, fill(500, 2))
	r.truncate(alpha, 600, wire.Stamp{})
	r.size(alpha, 600)
	r.holds(alpha, 500, append(fill(500, 2)[:100], 0, 0))
}
