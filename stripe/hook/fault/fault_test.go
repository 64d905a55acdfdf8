package fault

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/stripe/stripetest"
	"github.com/sluice-storage/sluice/wire"
)

func open(t testing.TB) *Engine {
	s, err := memstore.New(memstore.Options{MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return New(s)
}

// Without rules the wrapper is as good as the engine below.
func TestTransparent(t *testing.T) {
	stripetest.Run(t, stripetest.Config{
		Open: func(t testing.TB) stripe.Engine { return open(t) },
	})
}

func TestRules(t *testing.T) {
	ctx := context.Background()
	id, other := stripe.ObjectID{File: 1}, stripe.ObjectID{File: 2}
	e := open(t)
	write := func(id stripe.ObjectID, v byte) errs.Kind {
		return errs.KindOf(e.WriteAt(ctx, id, [][]byte{{v}}, 0, wire.Stamp{}, stripe.Volatile))
	}
	read := func() byte {
		p := []byte{0xff}
		if err := e.ReadAt(ctx, id, [][]byte{p}, 0); err != nil {
			t.Fatal(err)
		}
		return p[0]
	}
	remove := e.Inject(Rule{Ops: Write, Object: id, Skip: 1, Count: 2, Err: errs.NoSpace})
	for i, want := range []errs.Kind{errs.OK, errs.NoSpace, errs.NoSpace, errs.OK} {
		if got := write(id, byte(i+1)); got != want {
			t.Fatalf("write %d: %v, want %v", i, got, want)
		}
		if got := write(other, 1); got != errs.OK {
			t.Fatalf("the rule hit another object: %v", got)
		}
	}
	remove() // of a rule that has ended already
	if v := read(); v != 4 {
		t.Fatalf("read %d, want 4: a refused write took effect or the last one did not", v)
	}
	remove = e.Inject(Rule{Ops: Write, Err: errs.IO, Late: true})
	if got := write(id, 9); got != errs.IO || read() != 9 {
		t.Fatalf("late failure: %v, byte %d", got, read())
	}
	remove()
	if got := write(id, 10); got != errs.OK {
		t.Fatalf("after the rule: %v", got)
	}
	if n := e.Calls(Write); n != 10 {
		t.Fatalf("%d writes counted, want 10", n)
	}
}

func TestDelayAndGateEndWithTheContext(t *testing.T) {
	e := open(t)
	id := stripe.ObjectID{File: 1}
	gate := make(chan struct{})
	for _, r := range []Rule{{Delay: time.Hour, Count: 1}, {Gate: gate}} {
		e.Inject(r)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if err := e.Sync(ctx, id); !errors.Is(err, errs.TimedOut) {
			t.Fatalf("got %v, want timed out", err)
		}
		cancel()
	}
	close(gate)
	if err := e.Sync(context.Background(), id); err != nil {
		t.Fatal(err)
	}
}
