package regcache

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

func TestInvalidateEndsWhatTouches(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	ctx := context.Background()
	r.Hint(r.at(0, 8))
	r.Hint(r.at(20, 8))
	r.get(t, r.at(0, 1)).Put()
	r.get(t, r.at(10, 2)).Put()
	r.get(t, r.at(20, 1)).Put()
	if err := r.Invalidate(ctx, nil); err != nil {
		t.Fatal(err)
	}
	r.wantMade(t, "nothing invalidated", 3, 3)
	if err := r.Invalidate(ctx, r.at(7, 4)); err != nil {
		t.Fatal(err)
	}
	r.wantMade(t, "two of them touch", 3, 1)
	if n := r.m.on(extentOf(r.at(7, 4))); n != 0 {
		t.Fatalf("%d registrations on it", n)
	}
	if s := r.Stats(); s.Hints != 1 || s.Invalidated != 2 || s.Bytes != 8*page {
		t.Fatalf("%+v", s)
	}
	r.get(t, r.at(0, 1)).Put() // it may be used again, as new memory
	if r.Registered(r.at(0, 2)) {
		t.Fatal("the hint has outlived its memory")
	}
	r.close(t)
}

func TestInvalidateWaitsForThoseWhoHoldIt(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	ctx := context.Background()
	one, two := r.get(t, r.at(0, 4)), r.get(t, r.at(1, 1))
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	wantKind(t, "given up", r.Invalidate(short, r.at(3, 1)), errs.TimedOut)
	if r.Registered(r.at(0, 1)) {
		t.Fatal("it can still be found")
	}
	done := make(chan error)
	go func() { done <- r.Invalidate(ctx, r.at(0, 1)) }()
	for r.blockedNow() == 0 {
		time.Sleep(time.Millisecond)
	}
	_, err := r.Get(ctx, r.at(0, 1))
	wantKind(t, "Get while it is invalidated", err, errs.Busy)
	r.Hint(r.at(0, 4))
	if r.Stats().Hints != 0 {
		t.Fatal("a hint on what is being invalidated")
	}
	one.Put()
	select {
	case err := <-done:
		t.Fatalf("returned (%v) while it is held", err)
	case <-time.After(5 * time.Millisecond):
	}
	two.Put()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.wantMade(t, "after the last Put", 1, 0)
	r.get(t, r.at(0, 1)).Put()
	r.close(t)
}

func (r *rig) blockedNow() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.blocked)
}

func TestInvalidateDuringRegistration(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	r.m.gate, r.m.entered = make(chan struct{}), make(chan struct{}, 8)
	got, done := make(chan Ref), make(chan error)
	go func() {
		ref, err := r.Get(context.Background(), r.at(0, 4))
		if err != nil {
			t.Error(err)
		}
		got <- ref
	}()
	<-r.m.entered
	go func() { done <- r.Invalidate(context.Background(), r.at(2, 10)) }()
	for r.blockedNow() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(r.m.gate)
	ref := <-got
	select {
	case err := <-done:
		t.Fatalf("returned (%v) while it is held", err)
	case <-time.After(5 * time.Millisecond):
	}
	ref.Put()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.wantMade(t, "after both", 1, 0)
	r.close(t)
}
