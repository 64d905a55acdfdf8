package capability

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// numbered makes keys of generations, each with another key.
func numbered(gens ...uint32) (r Ring) {
	for _, g := range gens {
		r = append(r, Numbered{g, Key{byte(g), byte(g >> 8), 77}})
	}
	return r
}

// TestKeysTakeTurns: what a key has signed is good exactly as long as it is valid, whoever has seen
// it before, and the refusal names the remedy.
func TestKeysTakeTurns(t *testing.T) {
	cluster := NewKeyring(numbered(2))
	server := NewKeyring(numbered(2).For(3))
	sign, v := NewSigners(cluster), NewVerifier(server)
	two := sign.Sign(&good)
	for _, step := range []struct {
		signs, valid Ring
		two, now     errs.Kind // of what key 2 has signed, and of what is signed now
	}{
		{numbered(2), numbered(2), errs.OK, errs.OK},
		{numbered(2), numbered(2, 3), errs.OK, errs.OK},    // heard of
		{numbered(3, 2), numbered(2, 3), errs.OK, errs.OK}, // in use
		{numbered(3, 2), numbered(2), errs.OK, errs.Again}, // a server that has not heard of it
		{numbered(3), numbered(3), errs.Expired, errs.OK},  // retired
		{numbered(5), numbered(6, 4), errs.Expired, errs.Forged},
		{numbered(3), numbered(3, 2), errs.OK, errs.OK}, // back: nothing wrong is remembered
		{numbered(9), nil, errs.Again, errs.Again},
		{nil, numbered(3, 2), errs.OK, errs.Forged},
	} {
		cluster.Set(step.signs)
		server.Set(step.valid.For(3))
		what := fmt.Sprint(step.signs.Gens(), " at ", step.valid.Gens())
		now := sign.Sign(&good)
		for range 2 {
			if c, err := v.Verify(two[:]); errs.KindOf(err) != step.two || err == nil && c != good {
				t.Errorf("%s: key 2: %v", what, err)
			}
			if c, err := v.Verify(now[:]); errs.KindOf(err) != step.now || err == nil && c != good {
				t.Errorf("%s: now: %v", what, err)
			}
		}
	}
}

// TestSameNumberIsNotTheSameKey: a key that is replaced by another one of its number has signed
// nothing that counts, remembered or not.
func TestSameNumberIsNotTheSameKey(t *testing.T) {
	keys := NewKeyring(Ring{{2, Key{1}}})
	v := NewVerifier(keys)
	b := NewSigner(Numbered{2, Key{1}}).Sign(&good)
	if _, err := v.Verify(b[:]); err != nil {
		t.Fatal(err)
	}
	keys.Set(Ring{{2, Key{2}}})
	if _, err := v.Verify(b[:]); errs.KindOf(err) != errs.Forged {
		t.Fatal(err)
	}
}

// TestKeysChangeUnderLoad: whoever signs with a key that the server knows is believed, whatever
// changes meanwhile.
func TestKeysChangeUnderLoad(t *testing.T) {
	cluster, server := NewKeyring(numbered(1)), NewKeyring(numbered(1).For(3))
	sign, v := NewSigners(cluster), NewVerifier(server)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var life sync.RWMutex // of what is signed: no key ends in it
	for range 4 {
		wg.Go(func() {
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				c := good
				c.File = i % 1000
				life.RLock()
				b := sign.Sign(&c)
				got, err := v.Verify(b[:])
				life.RUnlock()
				if err != nil || got != c {
					t.Errorf("file %d: %v: %+v", i, err, got)
					return
				}
			}
		})
	}
	for g := uint32(1); g < 300 && !t.Failed(); g++ {
		life.Lock()
		server.Set(numbered(g, g+1).For(3))
		life.Unlock()
		cluster.Set(numbered(g, g+1))
		cluster.Set(numbered(g+1, g))
	}
	close(stop)
	wg.Wait()
}

func TestRings(t *testing.T) {
	for _, c := range []struct {
		r    Ring
		want errs.Kind
	}{
		{numbered(1), errs.OK}, {numbered(7, 6), errs.OK}, {nil, errs.Invalid},
		{numbered(0), errs.Invalid}, {numbered(2, 2), errs.Invalid}, {numbered(3, 2, 1), errs.Invalid},
	} {
		if got := errs.KindOf(c.r.Check()); got != c.want {
			t.Errorf("%v: %v", c.r.Gens(), got)
		}
	}
	r := numbered(4, 5)
	if r.Newest() != 5 || (Ring{}).Newest() != 0 || !slices.Equal(r.Gens(), []uint32{4, 5}) {
		t.Error(r.Newest(), r.Gens())
	}
	if own := r.For(3); own[0].Key != r[0].Key.ServerKey(3) || own[1].Gen != 5 {
		t.Errorf("%+v", own)
	}
	var k Keyring
	if k.Ring() != nil || k.Set(nil) || !k.Set(r) || k.Set(numbered(4, 5)) || !k.Set(r[:1]) {
		t.Error("a keyring does not know what has changed")
	}
	if Derive([]byte("a")) == Derive([]byte("b")) {
		t.Error("two secrets make one key")
	}
}

// TestRotation plays a rotation by the clock.
func TestRotation(t *testing.T) {
	at := func(r *Rotation, s int, valid Ring, all bool) string {
		ring, retire := r.Next(now.Add(time.Duration(s)*time.Second), valid, all)
		return fmt.Sprint(ring.Gens(), retire)
	}
	ask, over := int(AskMax/time.Second), int((TTLMax+RetireMargin)/time.Second)
	one, two := numbered(2), numbered(3, 2)
	type step struct {
		s     int
		valid Ring
		all   bool
		want  string
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"servers say that they have it", []step{
			{0, one, false, "[2] false"}, {5, two, false, "[2 3] false"}, {6, two, false, "[2 3] false"},
			{7, two, true, "[3 2] false"}, {8, two, false, "[3 2] false"}, // one that has just come
			{7 + over - 1, two, true, "[3 2] false"}, {7 + over, two, true, "[3 2] true"},
			{8 + over, numbered(3), true, "[3] false"},
			{9 + over, numbered(4, 3), false, "[3 4] false"},
			{9 + over, numbered(4, 3), true, "[4 3] false"},
		}},
		{"one is silent", []step{
			{0, two, false, "[2 3] false"}, {ask - 1, two, false, "[2 3] false"},
			{ask, two, false, "[3 2] false"}, {ask + over - 1, two, false, "[3 2] false"},
			{ask + over, two, false, "[3 2] true"},
		}},
		{"retired by hand, and rotated again", []step{
			{0, two, true, "[3 2] false"}, {1, numbered(4, 3), false, "[3 4] false"},
			{over, numbered(4, 3), true, "[4 3] false"}, {over + over, numbered(4, 3), true, "[4 3] true"},
		}},
	} {
		var r Rotation
		for i, s := range c.steps {
			if got := at(&r, s.s, s.valid, s.all); got != s.want {
				t.Errorf("%s, step %d: %s, want %s", c.name, i, got, s.want)
			}
		}
	}
}

// FuzzKeys: whatever is shown to a verifier while its keys change, it accepts nothing but what one
// of its keys has signed.
func FuzzKeys(f *testing.F) {
	for g := uint32(1); g < 5; g++ {
		b := NewSigner(numbered(g)[0]).Sign(&good)
		f.Add(b[:], uint16(g), uint16(g+1))
	}
	f.Fuzz(func(t *testing.T, b []byte, one, other uint16) {
		ring := numbered(uint32(one)%8+1, uint32(other)%8+1)
		if ring.Check() != nil {
			ring = ring[:1]
		}
		keys := NewKeyring(numbered(1))
		v := NewVerifier(keys)
		_, _ = v.Verify(b)
		keys.Set(ring)
		c, err := v.Verify(b)
		if err != nil {
			return
		}
		gen := keyOf((*[Bytes]byte)(b))
		if again := NewSigner(numbered(gen)[0]).Sign(&c); !slices.Contains(ring.Gens(), gen) ||
			[Bytes]byte(b) != again {
			t.Fatalf("accepted what key %d of %v has not signed: %+v", gen, ring.Gens(), c)
		}
	})
}
