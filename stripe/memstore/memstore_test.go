package memstore

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/stripetest"
	"github.com/sluice-storage/sluice/wire"
)

func open(t testing.TB) stripe.Engine {
	s, err := New(Options{MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEngine(t *testing.T) {
	stripetest.Run(t, stripetest.Config{
		Open: open,
		OpenSmall: func(t testing.TB) stripe.Engine {
			s, err := New(Options{MaxBytes: 8 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Reopen: func(t testing.TB, e stripe.Engine) stripe.Engine {
			e.Close()
			e.(*Store).Reopen()
			return e
		},
	})
}

func TestFullStoreRefusesWholeWrites(t *testing.T) {
	ctx := context.Background()
	s, err := New(Options{MaxBytes: 4 * pageBytes})
	if err != nil {
		t.Fatal(err)
	}
	id := stripe.ObjectID{File: 1}
	write := func(off int64, n int) error {
		p := bytes.Repeat([]byte{1}, n)
		return s.WriteAt(ctx, id, [][]byte{p}, off, wire.Stamp{}, stripe.Volatile)
	}
	if err := write(0, 3*pageBytes); err != nil {
		t.Fatal(err)
	}
	if err := write(2*pageBytes, 3*pageBytes); !errors.Is(err, errs.NoSpace) {
		t.Fatalf("got %v, want NoSpace", err)
	}
	if err := write(0, 1<<20); !errors.Is(err, errs.NoSpace) {
		t.Fatalf("got %v, want NoSpace", err)
	}
	in, _ := s.Stat(ctx, id)
	if in.Size != 3*pageBytes || in.Allocated != 3*pageBytes {
		t.Fatalf("a refused write left %+v", in)
	}
	if err := write(0, 3*pageBytes); err != nil {
		t.Fatalf("overwriting in a full store: %v", err)
	}
	if err := s.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	if sp, _ := s.Space(); sp.Free != sp.Total {
		t.Fatalf("after the removal the space is %+v", sp)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(Options{MaxBytes: 5}); !errors.Is(err, errs.Invalid) {
		t.Fatalf("got %v, want Invalid", err)
	}
}
