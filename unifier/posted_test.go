package unifier

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/wire"
)

func TestPostReadWaitsForNothing(t *testing.T) {
	r := newRig(t, Config{})
	want := ramp(3*testUnit, 5)
	r.ok(r.store.WriteAt(r.ctx, alpha, [][]byte{want}, 0, wire.Stamp{}, stripe.Volatile))
	gate := make(chan struct{})
	r.store.Inject(fault.Rule{Ops: fault.Read, Gate: gate, Count: 1})
	called := make(chan *Loan, 1)
	l, err := r.PostRead(alpha, seg.Contig(0, 3*testUnit), Hint{}, func(l *Loan) { called <- l })
	r.ok(err)
	if done, err := l.Check(); done || err != nil {
		t.Fatalf("done %v, %v before the store has answered", done, err)
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
	defer cancel()
	if err := l.Wait(ctx); !errors.Is(err, errs.TimedOut) {
		t.Fatalf("got %v, want timed out", err)
	}
	close(gate)
	r.ok(l.Wait(r.ctx))
	if <-called != l {
		t.Fatal("another loan was called back")
	}
	if done, err := l.Check(); !done || err != nil || !bytes.Equal(gathered(l.Sges()), want) {
		t.Fatalf("done %v, %v", done, err)
	}
	l.Release()
	// A hit is there at once.
	l, err = r.PostRead(alpha, seg.Contig(10, testUnit), Hint{}, nil)
	r.ok(err)
	if done, err := l.Check(); !done || err != nil ||
		!bytes.Equal(gathered(l.Sges()), want[10:10+testUnit]) {
		t.Fatalf("done %v, %v", done, err)
	}
	r.ok(l.Wait(r.ctx))
	l.Release()
	// With a callback it is called back too.
	l, err = r.PostRead(alpha, seg.Contig(10, testUnit), Hint{}, func(l *Loan) { called <- l })
	r.ok(err)
	(<-called).Release()
}

func TestPostedReadFails(t *testing.T) {
	r := newRig(t, Config{})
	r.store.Inject(fault.Rule{Ops: fault.Read, Err: errs.IO, Count: 1})
	l, err := r.PostRead(alpha, seg.Contig(0, 10), Hint{}, nil)
	r.ok(err)
	if err := l.Wait(r.ctx); !errors.Is(err, errs.IO) {
		t.Fatalf("got %v, want i/o error", err)
	}
	l.Release()
	r.holds(alpha, 0, make([]byte, 10))
	_, err = r.PostRead(alpha, seg.Contig(0, 10), Hint{Policy: 99}, nil)
	if !errors.Is(err, errs.Invalid) {
		t.Fatalf("got %v, want invalid", err)
	}
}

// What was given up is cleaned up when it is done, and nobody is called.
func TestPostedAndGivenUp(t *testing.T) {
	r := newRig(t, Config{})
	gate := make(chan struct{})
	r.store.Inject(fault.Rule{Ops: fault.Read, Gate: gate, Count: 1})
	l, err := r.PostRead(alpha, seg.Contig(0, testUnit), Hint{}, func(*Loan) { t.Error("called") })
	r.ok(err)
	l.Release()
	close(gate)
	waitFor(t, func() bool { return r.out0() })
	r.holds(alpha, 0, make([]byte, testUnit))
}

func (r *rig) out0() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out == 0
}

func TestPostDraft(t *testing.T) {
	r := newRig(t, Config{})
	d, err := r.PostDraft(alpha, seg.Contig(5, 10), Hint{}, nil)
	r.ok(err)
	if done, err := d.Check(); !done || err != nil {
		t.Fatalf("memory was free: %v, %v", done, err)
	}
	scatter(d.Sges(), fill1(10, 3))
	r.ok(only(d.Publish(r.ctx, wire.Stamp{}, stripe.Volatile)))
	r.holds(alpha, 4, append([]byte{0}, fill1(10, 3)...))
	// All of the drafts' share is out: a posted one waits, a second one is given up.
	all, err := r.Draft(r.ctx, alpha, seg.Contig(0, r.drafts.Total()), Hint{})
	r.ok(err)
	ready := make(chan *Draft, 1)
	d, err = r.PostDraft(alpha, seg.Contig(0, 10), Hint{}, func(d *Draft) { ready <- d })
	r.ok(err)
	gone, err := r.PostDraft(alpha, seg.Contig(0, 10), Hint{}, func(*Draft) { t.Error("called") })
	r.ok(err)
	if done, _ := d.Check(); done {
		t.Fatal("there was no memory")
	}
	gone.Abort()
	all.Abort()
	(<-ready).Abort()
	d, err = r.PostDraft(alpha, seg.Contig(0, r.drafts.Total()+1), Hint{}, nil)
	r.ok(err)
	if err := d.Wait(r.ctx); !errors.Is(err, errs.TooBig) {
		t.Fatalf("got %v, want too big", err)
	}
	d.Abort()
	waitFor(t, func() bool { return r.out0() })
}

// Many more requests than workers and memory: all of them end.
func TestManyPosted(t *testing.T) {
	r := newRig(t, Config{})
	want := ramp(1<<20, 9)
	r.ok(r.store.WriteAt(r.ctx, alpha, [][]byte{want}, 0, wire.Stamp{}, stripe.Volatile))
	const n = 500
	ended := make(chan error, n)
	for i := range n {
		off := int64(i) * 37 * 1000 % (1<<20 - 20000)
		_, err := r.PostRead(alpha, seg.Contig(off, 20000), Hint{}, func(l *Loan) {
			_, err := l.Check()
			if err == nil && !bytes.Equal(gathered(l.Sges()), want[off:off+20000]) {
				err = errs.Corrupt
			}
			l.Release()
			ended <- err
		})
		r.ok(err)
	}
	for range n {
		r.ok(<-ended)
	}
}
