package unifier

import (
	"context"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// The order in which claims are granted: fills share, a publication excludes, nobody overtakes.
func TestClaims(t *testing.T) {
	r := newRig(t, Config{})
	o := &object{id: alpha}
	mk := func(shared bool, first, last int64) *claim {
		return &claim{shared: shared, spans: []span{{first, last}}}
	}
	grab := func(cl *claim) chan error { return r.grab(o, cl) }
	granted := func(cl *claim) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return cl.granted
	}
	end := func(cl *claim) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unclaimLocked(o, cl)
	}
	a, b, x, c, d := mk(true, 0, 5), mk(true, 3, 9), mk(false, 5, 5), mk(true, 5, 7), mk(false, 6, 9)
	all := []*claim{a, b, x, c, d}
	var waits []chan error
	for _, cl := range all {
		waits = append(waits, grab(cl))
	}
	expect := func(want ...bool) {
		t.Helper()
		for i, w := range want {
			if granted(all[i]) != w {
				t.Fatalf("claim %d: granted %v, want %v", i, !w, w)
			}
		}
	}
	expect(true, true, false, false, false)
	end(a)
	expect(true, true, false, false, false)
	end(b)
	expect(true, true, true, false, false)
	end(x)
	expect(true, true, true, true, false)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	r.mu.Lock()
	_, err := r.claimLocked(ctx, o, mk(false, 0, 9))
	r.mu.Unlock()
	if errs.KindOf(err) != errs.Canceled {
		t.Fatalf("got %v, want canceled", err)
	}
	end(c)
	expect(true, true, true, true, true)
	end(d)
	for _, w := range waits {
		r.ok(<-w)
	}
	if len(o.claims) != 0 {
		t.Fatalf("%d claims are left", len(o.claims))
	}
}

// grab claims on another goroutine and returns when the claim stands in line.
func (r *rig) grab(o *object, cl *claim) chan error {
	done := make(chan error, 1)
	go func() {
		r.mu.Lock()
		_, err := r.claimLocked(r.ctx, o, cl)
		r.mu.Unlock()
		done <- err
	}()
	waitFor(r, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Contains(o.claims, cl)
	})
	return done
}
