package stripetest

import (
	"bytes"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func sumCases() []Case {
	return []Case{
		{"sums are those of the bytes that are read", sumsRead},
		{"given sums are kept over a restart", sumsGiven},
		{"sums are of whole blocks", sumsWhole},
		{"requests that a write includes are remembered", mergedRemembered},
		{"requests that a large write includes are remembered", mergedLarge},
		{"requests that a write includes are not checked", mergedUnchecked},
		{"requests of a refused write are not remembered", mergedRefused},
		{"a write of nothing remembers its requests", mergedNothing},
	}
}

// sumsOf sums p block by block.
func sumsOf(p []byte) []uint32 {
	var sums []uint32
	for ; len(p) > 0; p = p[crc32c.BlockBytes:] {
		sums = append(sums, crc32c.Sum(p[:crc32c.BlockBytes]))
	}
	return sums
}

// holdsSums checks bytes and sums at off, read into buffers of odd lengths.
func (r *rig) holdsSums(id stripe.ObjectID, off int64, want []byte) {
	r.Helper()
	p := fill(len(want), 0x55)
	sums := make([]uint32, len(want)/crc32c.BlockBytes)
	for i := range sums {
		sums[i] = 0xdeadbeef
	}
	cut := min(len(p), 5001)
	r.ok(r.e.ReadSums(r.ctx, id, [][]byte{p[:cut], nil, p[cut:]}, off, sums))
	if !bytes.Equal(p, want) {
		r.Fatalf("object %v differs at offset %d and on", id, off)
	}
	for i, s := range sumsOf(want) {
		if sums[i] != s {
			r.Fatalf("object %v: the block at %d has sum %08x, want %08x", id,
				off+int64(i)*crc32c.BlockBytes, sums[i], s)
		}
	}
}

// writeSums stores p with its sums and stamps.
func (r *rig) writeSums(id stripe.ObjectID, off int64, p []byte, stamps ...wire.Stamp) {
	r.Helper()
	r.ok(r.e.WriteSums(r.ctx, id, [][]byte{p}, off, sumsOf(p), stamps, stripe.Volatile))
}

func sumsRead(t testing.TB, c Config) {
	r := newRig(t, c)
	r.holdsSums(alpha, 1<<30, make([]byte, 5*4096))
	want := make([]byte, 4<<20)
	for i, x := range []struct{ off, n int }{
		{4096, 4096}, {10_000, 7}, {65_536, 65_536}, {200_000, 300_001}, {1<<20 - 5, 10},
		{1 << 20, 2 << 20}, {3<<20 + 1, 5000},
	} {
		p := fill(x.n, byte(i))
		copy(want[x.off:], p)
		r.write(alpha, int64(x.off), p)
		r.holdsSums(alpha, int64(x.off)&^4095, want[x.off&^4095:(x.off+x.n+4095)&^4095])
	}
	r.ok(r.e.Punch(r.ctx, alpha, 66_000, 70_000, wire.Stamp{}, stripe.Volatile))
	clear(want[66_000:136_000])
	for range 3 {
		r.holdsSums(alpha, 0, want)
		r.holdsSums(alpha, 8192, want[8192:8192])
		r.holdsSums(alpha, 8192, want[8192:12288])
		r.holdsSums(alpha, 65_536, want[65_536:3<<20])
		r.reopen()
	}
}

func sumsGiven(t testing.TB, c Config) {
	r := newRig(t, c)
	want := make([]byte, 7<<20)
	for i, x := range []struct{ off, n int }{
		{0, 4096}, {4096, 8192}, {8192, 65_536}, {131_072, 131_072}, {204_800, 1 << 20},
		{1<<20 + 4096, 5 << 20}, {6<<20 + 65_536, 4096}, {6<<20 + 69_632, 61_440},
	} {
		p := fill(x.n, byte(i+40))
		copy(want[x.off:], p)
		cut := min(3000, len(p))
		r.ok(r.e.WriteSums(r.ctx, alpha, [][]byte{p[:cut], {}, p[cut:]}, int64(x.off), sumsOf(p), nil,
			stripe.Durability(i%3)))
	}
	last := int64(6<<20 + 131_072)
	for range 3 {
		r.holds(alpha, 0, want)
		r.holdsSums(alpha, 0, want)
		r.size(alpha, last)
		r.reopen()
	}
	r.ok(r.e.WriteSums(r.ctx, alpha, [][]byte{{1, 2, 3}}, 77, nil, nil, stripe.Volatile))
	copy(want[77:], []byte{1, 2, 3})
	r.holdsSums(alpha, 0, want)
}

func sumsWhole(t testing.TB, c Config) {
	r := newRig(t, c)
	for _, x := range []struct {
		off  int64
		n    int
		sums int
	}{{1, 4096, 1}, {0, 4095, 1}, {0, 4096, 0}, {0, 4096, 2}, {4096, 8192, 1}, {100, 0, 0}} {
		sums := make([]uint32, x.sums)
		bufs := [][]byte{make([]byte, x.n)}
		r.refused(r.e.ReadSums(r.ctx, alpha, bufs, x.off, sums), errs.Invalid)
		r.refused(r.e.WriteSums(r.ctx, alpha, bufs, x.off, sums, nil, 0), errs.Invalid)
	}
	r.refused(r.e.WriteSums(r.ctx, alpha, [][]byte{{1}}, 0, nil,
		make([]wire.Stamp, stripe.StampsMax+2), 0), errs.Invalid)
	if len(r.list()) != 0 {
		t.Fatal("a refused write brought an object to life")
	}
}

func mergedRemembered(t testing.TB, c Config) {
	r := newRig(t, c)
	stamps := []wire.Stamp{{Epoch: 3}, numbered(9, 1, 5), numbered(9, 2, 6), numbered(8, 1, 7)}
	r.writeSums(alpha, 0, fill(12_288, 1), stamps...)
	r.writeAs(alpha, 0, fill(12_288, 2), wire.Stamp{Epoch: 4}) // somebody else's, later
	for range 3 {
		for i, st := range stamps[1:] {
			r.writeAs(alpha, int64(i)*4096, fill(4096, 1), st)
			st.Seq--
			r.writeAs(alpha, int64(i)*4096, fill(4096, 1), st)
		}
		r.holds(alpha, 0, fill(12_288, 2))
		r.reopen()
	}
	r.writeAs(alpha, 0, fill(4096, 3), numbered(9, 2, 7)) // the next one is none
	r.holds(alpha, 0, fill(4096, 3))
	if got := r.stat(alpha).Epoch; got != 0 {
		t.Fatalf("epoch is %d, want that of the last write, 0", got)
	}
}

// mergedLarge writes more than one commit, and on every member, with as many requests as may be.
func mergedLarge(t testing.TB, c Config) {
	r := newRig(t, c)
	stamps := make([]wire.Stamp, 1+stripe.StampsMax)
	for i := range stamps[1:] {
		stamps[1+i] = numbered(50, uint16(i), uint32(i)+1)
	}
	p := fill(5<<20, 1)
	r.writeSums(alpha, 1<<20-4096, p, stamps...)
	r.write(alpha, 1<<20-4096, fill(5<<20, 2))
	for range 2 {
		r.reopen()
		for i, st := range stamps[1:] {
			off := 1<<20 - 4096 + int64(i)*(5<<20/stripe.StampsMax)
			r.writeAs(alpha, off, fill(3000, 3), st)
		}
		r.holds(alpha, 1<<20-4096, fill(5<<20, 2))
	}
}

func mergedUnchecked(t testing.TB, c Config) {
	r := newRig(t, c)
	r.writeAs(alpha, 0, fill(100, 1), numbered(9, 1, 5))
	r.writeSums(alpha, 0, fill(4096, 2), wire.Stamp{}, numbered(9, 1, 5), numbered(9, 2, 1))
	r.holds(alpha, 0, fill(4096, 2))
	// The write's own number is checked, as ever.
	r.writeSums(alpha, 0, fill(4096, 3), numbered(9, 2, 1), numbered(9, 3, 1))
	r.holds(alpha, 0, fill(4096, 2))
}

func mergedRefused(t testing.TB, c Config) {
	r := newRig(t, c)
	r.truncate(alpha, 10, seq(5))
	p := fill(4096, 1)
	stamps := []wire.Stamp{seq(4), numbered(9, 1, 5)}
	r.refused(r.e.WriteSums(r.ctx, alpha, [][]byte{p}, 0, sumsOf(p), stamps, 0), errs.Stale)
	st := numbered(9, 1, 5)
	st.TruncSeq = 5
	r.writeAs(alpha, 0, fill(100, 2), st)
	r.holds(alpha, 0, fill(100, 2))
}

func mergedNothing(t testing.TB, c Config) {
	r := newRig(t, c)
	r.ok(r.e.WriteSums(r.ctx, alpha, nil, 0, nil, []wire.Stamp{{}, numbered(9, 1, 5)}, 0))
	r.reopen()
	r.writeAs(alpha, 0, fill(100, 1), numbered(9, 1, 5))
	r.size(alpha, 0)
}
