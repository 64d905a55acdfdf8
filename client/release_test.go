package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// unhearing is a service that does not hear of releases for a while.
type unhearing struct {
	meta.Service
	is atomic.Bool
}

func (d *unhearing) Unlock(ctx context.Context, c meta.Caller, l meta.Lock) error {
	if d.is.Load() {
		return errs.New(errs.TimedOut, "service", "", nil)
	}
	return d.Service.Unlock(ctx, c, l)
}

// TestReleaseWhileAway: a lock that is released while the service is away is free when it is back,
// and its owner does not get the next one before.
func TestReleaseWhileAway(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	ctx := context.Background()
	svc := &unhearing{Service: c.meta}
	a, err := New(svc, c, Options{Cred: &meta.Cred{}})
	must(t, err)
	defer func() { must(t, a.Close()) }()
	b := c.client(Options{})
	f := create(t, b, "f", 1)
	all := lockOf(f.Ino(), meta.LockExclusive, 0, meta.LockEndMax)
	must(t, a.Lock(ctx, all, false))
	svc.is.Store(true)
	must(t, a.ReleaseOwner(ctx, f.Ino(), meta.LockRange, 1, nil))
	if a.Holds(f.Ino(), meta.LockRange, 1) {
		t.Fatal("it is held")
	}
	if err := b.Lock(ctx, all, false); errs.KindOf(err) != errs.Busy {
		t.Fatalf("the service has heard of it: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := a.Lock(short, all, false); errs.KindOf(err) != errs.TimedOut {
		t.Fatalf("locked anew before the release: %v", err)
	}
	svc.is.Store(false)
	must(t, b.Lock(ctx, all, true))
	must(t, b.Unlock(ctx, all))
	must(t, a.Lock(ctx, all, true))
	if err := b.Lock(ctx, all, false); errs.KindOf(err) != errs.Busy {
		t.Fatalf("both have it: %v", err)
	}
}

// lateAnswers is a service whose answers to releases are held back.
type lateAnswers struct {
	meta.Service
	done, answer chan struct{}
}

func (d *lateAnswers) Unlock(ctx context.Context, c meta.Caller, l meta.Lock) error {
	err := d.Service.Unlock(ctx, c, l)
	d.done <- struct{}{}
	<-d.answer
	return err
}

// TestLockDuringARelease: a lock that its owner asks for while the release of another one is being
// answered is not taken for released: it can be released in its turn.
func TestLockDuringARelease(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	ctx := context.Background()
	svc := &lateAnswers{c.meta, make(chan struct{}, 2), make(chan struct{}, 2)}
	a, err := New(svc, c, Options{Cred: &meta.Cred{}})
	must(t, err)
	defer func() { must(t, a.Close()) }()
	b := c.client(Options{})
	f := create(t, b, "f", 1)
	all := lockOf(f.Ino(), meta.LockExclusive, 0, meta.LockEndMax)
	must(t, a.Lock(ctx, all, false))
	released, locked := make(chan error, 1), make(chan error, 1)
	go func() { released <- a.ReleaseOwner(ctx, f.Ino(), meta.LockRange, 1, nil) }()
	<-svc.done
	go func() { locked <- a.Lock(ctx, all, true) }()
	time.Sleep(20 * time.Millisecond) // in which it could get it, if that did not have to wait
	svc.answer <- struct{}{}
	must(t, <-released)
	must(t, <-locked)
	svc.answer <- struct{}{}
	must(t, a.ReleaseOwner(ctx, f.Ino(), meta.LockRange, 1, nil))
	must(t, b.Lock(ctx, all, false))
}
