package store

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// TestEndsWhileItIsHeardOf: a session that ends by its own word has ended, with its leases, also
// where a request of it comes at the same moment: others do not wait for it. One that somebody else
// takes for dead, and that is heard of at that moment, goes on with all that it has.
func TestEndsWhileItIsHeardOf(t *testing.T) {
	w := newLessor(t, Options{Dead: func(string) (bool, bool) { return false, false }})
	a, b := w.session("a"), w.session("b")
	h := w.create(a, "f")
	w.passed.Store(int64(w.opt.Lease))
	late := func(c meta.Caller) { // its request comes a moment later than the end begins
		w.passed.Add(int64(time.Second))
		w.must(w.s.KeepAlive(t.Context(), c.Session))
		w.passed.Add(-int64(time.Second))
	}
	late(a)
	err := w.s.endSession(t.Context(), a.Session, w.s.steady())
	if errs.KindOf(err) != errs.Again {
		t.Fatalf("a session that lives was ended: %v", err)
	}
	if got, err := w.s.Renew(t.Context(), a, []uint64{h.ID}); err != nil || len(got[0].Caps) == 0 {
		t.Fatalf("it has lost what it has open: %v, %v", got, err)
	}
	late(a)
	w.must(w.s.EndSession(t.Context(), a.Session))
	if n := w.s.leases.Counts().Leases; n != 0 {
		t.Errorf("a session that has ended holds %d leases", n)
	}
	if _, err := w.s.Open(t.Context(), b, h.Attr.Ino, meta.OpenWrite); err != nil {
		t.Errorf("another session: %v", err)
	}
	if err := w.s.KeepAlive(t.Context(), a.Session); errs.KindOf(err) != errs.Stale {
		t.Errorf("it goes on: %v", err)
	}
}
