package capability

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

var (
	cluster = Key{1, 2, 3}
	now     = time.UnixMilli(1_800_000_000_000)
	good    = Capability{File: 7, Gen: 2, Rights: Read | Write, Session: 9, Server: 3,
		Expiry: now.Add(TTLMax)}
	need = Need{File: 7, Gen: 2, Rights: Write, Session: 9, Server: 3}
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
		if _, err := k.Verify(forged[:]); errs.KindOf(err) != errs.Forged {
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
		{"too late", func(_ *Need, at *time.Time) { *at = good.Expiry }, errs.Expired},
		{"lives too long", func(_ *Need, at *time.Time) { *at = at.Add(-time.Hour) }, errs.Perm},
	} {
		n, at := need, now
		c.change(&n, &at)
		if got := errs.KindOf(good.Check(n, at)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	k := cluster.ServerKey(3)
	s := k.Sign(&good)
	for b.Loop() {
		if _, err := k.Verify(s[:]); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	k := cluster.ServerKey(3)
	s := k.Sign(&good)
	f.Add(s[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := k.Verify(b); err == nil && c != good {
			t.Fatalf("accepted what was never signed: %+v", c)
		}
	})
}
