package capability

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

var (
	cluster = Key{1, 2, 3}
	now     = time.UnixMilli(1_800_000_000_000)
	good    = Capability{File: 7, Gen: 2, Rights: Read | Write, Session: 9, Server: 3,
		Layout: 5, Expiry: now.Add(TTLMax), TTL: TTLMax}
	need = Need{File: 7, Gen: 2, Rights: Write, Session: 9, Server: 3, Layout: 5}
)

func TestSignedCapabilityVerifies(t *testing.T) {
	k := cluster.ServerKey(3)
	b := k.Sign(&good)
	c, err := k.Verify(b[:])
	if err != nil || c != good {
		t.Fatalf("%v: %+v", err, c)
	}
	if err := c.Check(need, now); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	k := cluster.ServerKey(3)
	b := k.Sign(&good)
	for i := range len(b) * 8 {
		forged := b
		forged[i/8] ^= 1 << (i % 8)
		want := []errs.Kind{errs.Forged}
		if i/8 >= keyAt && i/8 < keyAt+4 { // another key, which is not there yet, or any more
			want = []errs.Kind{errs.Again, errs.Forged}
		}
		if _, err := k.Verify(forged[:]); !slices.Contains(want, errs.KindOf(err)) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	if _, err := cluster.ServerKey(4).Verify(b[:]); errs.KindOf(err) != errs.Forged {
		t.Fatal("another server's key accepts it")
	}
	if _, err := k.Verify(b[:40]); errs.KindOf(err) != errs.Forged {
		t.Fatal("a short one is accepted")
	}
}

func TestCheckNamesTheRemedy(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(n *Need, now *time.Time)
		want   errs.Kind
	}{
		{"as granted", func(*Need, *time.Time) {}, errs.OK},
		{"other file", func(n *Need, _ *time.Time) { n.File++ }, errs.Perm},
		{"other server", func(n *Need, _ *time.Time) { n.Server++ }, errs.Perm},
		{"other session", func(n *Need, _ *time.Time) { n.Session++ }, errs.Perm},
		{"more rights", func(n *Need, _ *time.Time) { n.Rights |= Manage }, errs.Perm},
		{"other generation", func(n *Need, _ *time.Time) { n.Gen++ }, errs.Stale},
		{"other layout", func(n *Need, _ *time.Time) { n.Layout++ }, errs.Stale},
		{"too late", func(_ *Need, at *time.Time) { *at = good.Expiry }, errs.Expired},
		{"signed by another clock", func(_ *Need, at *time.Time) { *at = at.Add(-time.Hour) },
			errs.Expired},
	} {
		n, at := need, now
		c.change(&n, &at)
		if got := errs.KindOf(good.Check(n, at)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// host is a host's clock.
type host struct{ now time.Time }

func (h *host) pass(d time.Duration) { h.now = h.now.Add(d) }

// TestClocksMayDiffer: what counts is the time that has passed at the service since it signed,
// whatever the I/O server's own clock says, however far the two are from each other.
func TestClocksMayDiffer(t *testing.T) {
	for _, off := range []time.Duration{0, time.Hour, -time.Hour, 20 * 365 * 24 * time.Hour} {
		service, iod := &host{now}, &host{now.Add(off)}
		pass := func(d time.Duration) { service.pass(d); iod.pass(d) }
		signs := Steady(func() time.Time { return service.now })
		clock := NewClock(func() time.Time { return iod.now })
		asked := clock.Local()
		pass(2 * time.Second) // on the way
		answer := signs()
		pass(time.Second)
		clock.Heard(asked, answer)
		c := good
		c.Expiry = signs().Add(TTLMax)
		pass(TTLMax - 4*time.Second)
		if err := c.Check(need, clock.Now()); err != nil {
			t.Fatalf("clocks %v apart: %v", off, err)
		}
		pass(4 * time.Second)
		if err := c.Check(need, clock.Now()); errs.KindOf(err) != errs.Expired {
			t.Fatalf("clocks %v apart: a capability lives on: %v", off, err)
		}
		// An answer that took too long says nothing; one of another service, set otherwise, does.
		asked, was := clock.Local(), clock.Now()
		pass(TTLMax)
		clock.Heard(asked, was.Add(-time.Hour))
		if got := clock.Now(); !got.Equal(was.Add(TTLMax)) {
			t.Fatalf("a late answer moved the clock by %v", got.Sub(was.Add(TTLMax)))
		}
		clock.Heard(clock.Local(), now)
		if !clock.Now().Equal(now) {
			t.Fatal("the service's new time is not taken over")
		}
	}
}

// TestVerifierRemembersOnlyWhatWasSigned shows good and forged ones in turn, so that each forged
// one meets its original in the table.
func TestVerifierRemembersOnlyWhatWasSigned(t *testing.T) {
	v := NewVerifier(cluster.ServerKey(3))
	for i := range 3 * remembered {
		c := good
		c.File = uint64(i)
		b := cluster.ServerKey(3).Sign(&c)
		for range 2 {
			if got, err := v.Verify(b[:]); err != nil || got != c {
				t.Fatalf("file %d: %v: %+v", i, err, got)
			}
		}
		forged := b
		at := i % signed
		if at >= keyAt && at < keyAt+4 {
			at = 1
		}
		forged[at] ^= 1 // the signature stays, and with it the place in the table
		for range 2 {
			if _, err := v.Verify(forged[:]); errs.KindOf(err) != errs.Forged {
				t.Fatalf("file %d forged: %v", i, err)
			}
		}
	}
}

func TestVerifyAllocatesNothing(t *testing.T) {
	v := NewVerifier(cluster.ServerKey(3))
	b := cluster.ServerKey(3).Sign(&good)
	if n := alloctest.PerRun(0, 200, func() {
		c, err := v.Verify(b[:])
		if err != nil || c.Covers(&need, now) != Covered {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations to verify one that is known", n)
	}
	if raceEnabled {
		return // pools drop at random under the race detector
	}
	if n := alloctest.PerRun(0, 200, func() {
		if !v.current().find(First).rightly(&b) {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations to check a signature", n)
	}
}

func BenchmarkVerify(b *testing.B) {
	v := NewVerifier(cluster.ServerKey(3))
	s := cluster.ServerKey(3).Sign(&good)
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(s[:]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !v.current().find(First).rightly(&s) {
				b.Fatal("refused")
			}
		}
	})
}

func FuzzVerify(f *testing.F) {
	k := cluster.ServerKey(3)
	s := k.Sign(&good)
	f.Add(s[:])
	v := NewVerifier(k)
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := v.Verify(b); err == nil && c != good {
			t.Fatalf("accepted what was never signed: %+v", c)
		}
	})
}
