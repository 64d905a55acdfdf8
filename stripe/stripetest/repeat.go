package stripetest

import (
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func repeatCases() []Case {
	return []Case{
		{"a repeated request is recognised", repeatWrite},
		{"a repeated request is recognised after a restart", repeatReopen},
		{"every kind of request is recognised after a restart", repeatEveryKind},
		{"a repeat is recognised behind a truncation", repeatTruncated},
		{"a repeated punch of nothing is recognised", repeatAbsent},
		{"all of a large repeated request is recognised", repeatLarge},
		{"requests without a number are never repeats", repeatUnnumbered},
		{"a request that was refused was not applied", repeatRefused},
		{"zero is a write of zeroes", zeroRange},
		{"every durability gives the same bytes", durabilities},
		{"the epoch of the last change is kept", epochKept},
		{"statistics count", statsCount},
	}
}

func numbered(session uint64, slot uint16, n uint32) wire.Stamp {
	return wire.Stamp{Session: session, Slot: slot, Seq: n}
}

func repeatWrite(t testing.TB, c Config) {
	r := newRig(t, c)
	r.writeAs(alpha, 0, fill(100, 1), numbered(9, 2, 5))
	r.writeAs(alpha, 0, fill(100, 2), wire.Stamp{}) // somebody else's, later
	r.writeAs(alpha, 0, fill(100, 1), numbered(9, 2, 5))
	r.writeAs(alpha, 0, fill(100, 3), numbered(9, 2, 4)) // one that was on its way for long
	r.ok(r.e.Punch(r.ctx, alpha, 0, 50, numbered(9, 2, 5), stripe.Durable))
	r.ok(r.e.Zero(r.ctx, alpha, 0, 50, numbered(9, 2, 5), stripe.Volatile))
	r.holds(alpha, 0, fill(100, 2))
	r.writeAs(alpha, 0, fill(100, 4), numbered(9, 3, 5)) // another slot
	r.holds(alpha, 0, fill(100, 4))
	r.writeAs(alpha, 0, fill(100, 5), numbered(8, 2, 1)) // another session
	r.holds(alpha, 0, fill(100, 5))
	r.writeAs(alpha, 0, fill(100, 6), numbered(9, 2, 6)) // the next one
	r.holds(alpha, 0, fill(100, 6))
}

func repeatReopen(t testing.TB, c Config) {
	r := newRig(t, c)
	for slot := range uint16(40) {
		d := stripe.Durability(slot % 3)
		r.ok(r.e.WriteAt(r.ctx, alpha, [][]byte{fill(5000, byte(slot))}, int64(slot)*5000,
			numbered(7, slot, uint32(slot)+1), d))
	}
	r.writeAs(alpha, 0, fill(200_000, 99), wire.Stamp{})
	for range 2 {
		r.reopen()
		for slot := range uint16(40) {
			r.writeAs(alpha, int64(slot)*5000, fill(5000, 1), numbered(7, slot, uint32(slot)+1))
		}
		r.holds(alpha, 0, fill(200_000, 99))
	}
}

// repeatEveryKind repeats a truncate, a punch, a zero and a write, each on an object that was
// written again since: nothing may change.
func repeatEveryKind(t testing.TB, c Config) {
	r := newRig(t, c)
	want := fill(150_000, 9)
	for round := range 3 {
		for i, ask := range []func(id stripe.ObjectID, st wire.Stamp) error{
			func(id stripe.ObjectID, st wire.Stamp) error {
				return r.e.Truncate(r.ctx, id, 10, st)
			},
			func(id stripe.ObjectID, st wire.Stamp) error {
				return r.e.Punch(r.ctx, id, 5, 100_000, st, stripe.Grouped)
			},
			func(id stripe.ObjectID, st wire.Stamp) error {
				return r.e.Zero(r.ctx, id, 70_000, 100_000, st, stripe.Volatile)
			},
			func(id stripe.ObjectID, st wire.Stamp) error {
				return r.e.WriteAt(r.ctx, id, [][]byte{fill(140_000, 1)}, 3, st, stripe.Durable)
			},
		} {
			id := stripe.ObjectID{File: 20 + uint64(i), Gen: 1}
			if round == 0 {
				r.write(id, 0, fill(150_000, 8))
			}
			r.ok(ask(id, numbered(6, uint16(i), 7)))
			if round == 0 {
				r.truncate(id, 0, wire.Stamp{})
				r.write(id, 0, want)
			}
			r.holds(id, 0, want)
			r.size(id, 150_000)
		}
		r.reopen()
	}
}

// repeatAbsent repeats a punch of what was absent, on what has come to life since.
func repeatAbsent(t testing.TB, c Config) {
	r := newRig(t, c)
	r.ok(r.e.Punch(r.ctx, alpha, 0, 200_000, numbered(9, 1, 1), stripe.Durable))
	r.writeAs(alpha, 0, fill(200_000, 7), wire.Stamp{})
	for range 2 {
		r.ok(r.e.Punch(r.ctx, alpha, 0, 200_000, numbered(9, 1, 1), stripe.Durable))
		r.holds(alpha, 0, fill(200_000, 7))
		r.reopen()
	}
}

// repeatTruncated repeats what was applied before a truncation: it is a repeat, not stale, or else
// its sender would number it anew and have it applied twice.
func repeatTruncated(t testing.TB, c Config) {
	r := newRig(t, c)
	r.writeAs(alpha, 0, fill(9000, 1), numbered(9, 1, 1))
	r.ok(r.e.Punch(r.ctx, alpha, 0, 4096, numbered(9, 2, 1), stripe.Volatile))
	r.ok(r.e.Truncate(r.ctx, alpha, 20_000, wire.Stamp{TruncSeq: 1}))
	r.writeAs(alpha, 0, fill(9000, 2), wire.Stamp{TruncSeq: 1})
	repeated, err := r.e.Admit(r.ctx, alpha, 0, 9000, numbered(9, 1, 1), 0)
	if r.ok(err); !repeated {
		t.Error("a write that was applied before the truncation is admitted as a new one")
	}
	r.writeAs(alpha, 0, fill(9000, 1), numbered(9, 1, 1))
	r.ok(r.e.Punch(r.ctx, alpha, 0, 4096, numbered(9, 2, 1), stripe.Volatile))
	r.holds(alpha, 0, fill(9000, 2))
}

// repeatLarge is for engines that apply a large request in parts.
func repeatLarge(t testing.TB, c Config) {
	r := newRig(t, c)
	const off, n = 1<<20 - 100, 5 << 20
	r.writeAs(alpha, off, fill(n, 1), numbered(9, 2, 5))
	r.write(alpha, off, fill(n, 2))
	for range 2 {
		r.writeAs(alpha, off, fill(n, 1), numbered(9, 2, 5))
		r.holds(alpha, off, fill(n, 2))
		r.reopen()
	}
}

func repeatUnnumbered(t testing.TB, c Config) {
	r := newRig(t, c)
	for i := range byte(3) {
		r.writeAs(alpha, 0, fill(100, i), wire.Stamp{Session: 5, Slot: 1})
		r.holds(alpha, 0, fill(100, i))
		r.writeAs(alpha, 0, fill(100, i+50), wire.Stamp{Slot: 1, Seq: 3})
		r.holds(alpha, 0, fill(100, i+50))
	}
}

func repeatRefused(t testing.TB, c Config) {
	r := newRig(t, c)
	r.truncate(alpha, 10, seq(5))
	st := numbered(3, 0, 1)
	st.TruncSeq = 4
	if err := r.e.WriteAt(r.ctx, alpha, [][]byte{fill(10, 1)}, 0, st, 0); err == nil {
		t.Fatal("a stale write was acknowledged")
	}
	st.TruncSeq = 5 // refreshed, and sent again under the same number
	r.writeAs(alpha, 0, fill(10, 1), st)
	r.holds(alpha, 0, fill(10, 1))
}

func zeroRange(t testing.TB, c Config) {
	r := newRig(t, c)
	r.ok(r.e.Zero(r.ctx, alpha, 100, 300_000, wire.Stamp{}, stripe.Durable))
	r.size(alpha, 300_100)
	r.holds(alpha, 0, make([]byte, 301_000))
	want := fill(500_000, 1)
	r.write(alpha, 0, want)
	for _, x := range []struct{ off, n int64 }{
		{0, 1}, {4095, 2}, {8192, 4096}, {65_536, 65_536}, {140_001, 200_000}, {490_000, 20_000},
	} {
		r.ok(r.e.Zero(r.ctx, alpha, x.off, x.n, wire.Stamp{}, stripe.Volatile))
		clear(want[x.off:min(x.off+x.n, 500_000)])
		r.holds(alpha, 0, want)
	}
	r.size(alpha, 510_000)
	r.ok(r.e.Zero(r.ctx, alpha, 1<<40, 0, wire.Stamp{}, stripe.Volatile))
	r.size(alpha, 510_000)
	r.ok(r.e.Zero(r.ctx, alpha, 1<<40, 1<<40, wire.Stamp{}, stripe.Volatile))
	r.size(alpha, 1<<41)
	r.reopen()
	r.holds(alpha, 0, want)
	r.holds(alpha, 1<<41-5, make([]byte, 10))
}

func durabilities(t testing.TB, c Config) {
	r := newRig(t, c)
	want := make([]byte, 400_000)
	for i, d := range []stripe.Durability{
		stripe.Grouped, stripe.Volatile, stripe.Durable, stripe.Grouped, stripe.Durable,
	} {
		for j, n := range []int{3, 4096, 70_001, 131_072} {
			off := (i*37_000 + j*65_536) % 260_000
			p := fill(n, byte(i*4+j))
			r.ok(r.e.WriteAt(r.ctx, alpha, [][]byte{p}, int64(off), wire.Stamp{}, d))
			copy(want[off:], p)
		}
	}
	r.holds(alpha, 0, want)
	r.reopen()
	r.holds(alpha, 0, want)
}

func epochKept(t testing.TB, c Config) {
	r := newRig(t, c)
	r.writeAs(alpha, 0, fill(10, 1), wire.Stamp{Epoch: 4})
	if got := r.stat(alpha).Epoch; got != 4 {
		t.Fatalf("epoch is %d, want 4", got)
	}
	r.truncate(alpha, 5, wire.Stamp{Epoch: 6, TruncSeq: 1})
	r.reopen()
	if got := r.stat(alpha).Epoch; got != 6 {
		t.Fatalf("epoch is %d, want 6", got)
	}
}

func statsCount(t testing.TB, c Config) {
	r := newRig(t, c)
	before := r.e.Stats()
	r.writeAs(alpha, 0, fill(100_000, 1), numbered(4, 0, 1))
	r.writeAs(alpha, 0, fill(100_000, 1), numbered(4, 0, 1))
	r.read(alpha, 0, 5000)
	s := r.e.Stats()
	if s.Writes-before.Writes != 2 || s.WriteBytes-before.WriteBytes != 200_000 ||
		s.Reads-before.Reads != 1 || s.ReadBytes-before.ReadBytes != 5000 ||
		s.Repeats-before.Repeats != 1 || s.Objects != 1 {
		t.Fatalf("after two writes and a read: %+v, before: %+v", s, before)
	}
}
