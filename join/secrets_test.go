package join

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// TestSecretsFollowTheAuthority plays a rotation against a metadata store with one server that is
// slow to hear of it, through restarts at every step.
func TestSecretsFollowTheAuthority(t *testing.T) {
	r := newRig(t, nil)
	now := time.Unix(1_800_000_000, 0)
	var s *Secrets
	restart := func() {
		t.Helper()
		a, err := identity.OpenAuthority(r.dir)
		fatal(t, err)
		s, err = NewSecrets(SecretsOptions{Authority: a, Now: func() time.Time { return now }})
		fatal(t, err)
	}
	step := func(after time.Duration, want ...uint32) {
		t.Helper()
		now = now.Add(after)
		fatal(t, s.Step(t.Context(), r.registry))
		if got := s.Keys().Ring().Gens(); !slices.Equal(got, want) {
			t.Fatalf("keys %v, want %v", got, want)
		}
	}
	srv := meta.Server{ID: 1, Addr: "a:1", StoreID: 1}
	fatal(t, r.registry.Join(t.Context(), srv, meta.SignJoin(capability.Key{}.ServerKey(1), &srv)))
	has := func(gen uint32) {
		t.Helper()
		_, err := r.registry.ServerKeys(t.Context(), meta.Caller{}, 1, gen)
		fatal(t, err)
	}
	restart()
	has(2)
	step(0, 2)
	fatal(t, r.authority.Rotate(identity.SecretKey, time.Now()))
	step(0, 2, 3)
	step(capability.AskMax-time.Second, 2, 3)
	restart() // the time that servers have begins anew
	step(capability.AskMax-time.Second, 2, 3)
	has(3)
	step(0, 3, 2)
	step(capability.TTLMax, 3, 2)
	restart() // and so does the time that capabilities have
	step(0, 3, 2)
	step(capability.TTLMax, 3, 2)
	step(capability.RetireMargin, 3)
	_, err := r.authority.Reload()
	fatal(t, err)
	if n := len(r.authority.Secrets()); n != 1 {
		t.Fatalf("%d secrets are left", n)
	}
	// A server that never says anything is not waited for.
	fatal(t, r.authority.Rotate(identity.SecretKey, time.Now()))
	step(0, 3, 4)
	step(capability.AskMax, 4, 3)
	// By hand it goes at once, and the next rotation has times of its own.
	fatal(t, r.authority.Retire(identity.SecretKey))
	step(0, 4)
	fatal(t, r.authority.Rotate(identity.SecretKey, time.Now()))
	step(capability.TTLMax, 4, 5)
	restart()
	step(0, 4, 5)
}

// TestRemovedHostsDemandASecret: after each removal there is a later secret, once, and not before
// the rotation that is under way has come to its end.
func TestRemovedHostsDemandASecret(t *testing.T) {
	r := newRig(t, nil)
	now := time.Unix(1_800_000_000, 0)
	a, err := identity.OpenAuthority(r.dir)
	fatal(t, err)
	s, err := NewSecrets(SecretsOptions{Authority: a, Now: func() time.Time { return now }})
	fatal(t, err)
	remove := func(name string) {
		t.Helper()
		_, err := r.join(r.token(identity.Host, name, nil), "", identity.NewKey())
		fatal(t, err)
		fatal(t, r.registry.RemoveMember(t.Context(), meta.Caller{}, identity.Host, name))
	}
	generation := func(want uint64) {
		t.Helper()
		for range 3 {
			fatal(t, s.Step(t.Context(), r.registry))
		}
		_, err := Record(t.Context(), r.registry, meta.Caller{}, a)
		fatal(t, err)
		if got := a.Secrets()[0].Generation; got != want {
			t.Fatalf("generation %d, want %d", got, want)
		}
	}
	generation(1)
	remove("h2")
	generation(2)
	remove("h3")
	generation(2) // the first one is not retired yet
	now = now.Add(capability.TTLMax + capability.RetireMargin)
	generation(3)
	now = now.Add(2 * capability.TTLMax)
	generation(3)
	// A client knows no keys.
	r.member("ann")
	fatal(t, r.registry.RemoveMember(t.Context(), meta.Caller{}, identity.Client, "ann"))
	generation(3)
	if err := a.RetireSecret(2); errs.KindOf(err) != errs.Conflict {
		t.Fatalf("what was decided about another generation is done: %v", err)
	}
}
