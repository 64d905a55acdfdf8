package store

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/wire"
)

// memorySuite measures stores in memory, so that the cases are tested and not the disk.
func memorySuite(t *testing.T) *Bench {
	s := &Bench{
		Open: func(Kind) (stripe.Engine, error) { return memstore.New(memstore.Options{}) },
		Restart: func(context.Context) (time.Duration, int64, error) {
			return 2 * time.Second, 128 * mib, nil
		},
		Raw:   RawTarget{Path: filepath.Join(t.TempDir(), "raw")},
		Bytes: 32 * mib, LogBytes: mib, Quick: true,
		Kinds: []Kind{{Members: 1, Unsummed: true}, {Members: 2}},
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStoreCasesMeasureBothSides(t *testing.T) {
	s := memorySuite(t)
	rows, err := bench.RunAll(t.Context(), bench.Budget{Rounds: 1, Round: time.Millisecond}, s.Cases())
	if errors.Is(err, errs.Invalid) || errs.KindOf(err) == errs.Unsupported {
		t.Skipf("no direct I/O here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Case+"/"+r.Provider+"/"+r.Metric] = true
		if r.Value < 0 || r.Metric == bench.Rate && r.Value == 0 {
			t.Errorf("%+v", r)
		}
	}
	for _, want := range []string{
		"durable-rand-write-d16-4k/plain io_uring/rate", "durable-rand-write-d16-4k/logstore/rate",
		"durable-rand-write-d16-4k/logstore, no CRC/rate",
		"durable-rand-write-d16-4k/logstore, 2 members/rate",
		"durable-rand-write-d16-4k/logstore/amplification",
		"rand-read-d32-4k/logstore/allocations", "seq-read-d4-1m/logstore/copied",
		"volatile-rand-write-d16-64k/logstore/bandwidth", "restart-full-log/logstore/restart",
		"grouped-rand-write-d16-4k/plain io_uring/rate",
	} {
		if !seen[want] {
			t.Errorf("%s was not measured", want)
		}
	}
	if n := len(bench.Judge(Promises(), rows)); n != len(Promises()) {
		t.Errorf("%d of %d promises are held against something", n, len(Promises()))
	}
}

func TestTheWrapsOfTheLogAreWritten(t *testing.T) {
	s := memorySuite(t)
	set, err := s.set(t.Context(), Kind{Members: 1})
	if err != nil {
		t.Fatal(err)
	}
	op := askedOps()[0]
	m, err := set.load(op).run(t.Context(), 0, s.least(op))
	if err != nil || m.Bytes < 3*s.LogBytes {
		t.Errorf("%d bytes, %v", m.Bytes, err)
	}
}

// failing is an engine that fails in the middle of a measurement.
type failing struct {
	stripe.Engine
}

func (failing) ReadAt(context.Context, stripe.ObjectID, [][]byte, int64) error { return errs.IO }

func (f failing) WriteAt(ctx context.Context, id stripe.ObjectID, b [][]byte, off int64,
	st wire.Stamp, d stripe.Durability) error {
	return f.Engine.WriteAt(ctx, id, b, off, st, d)
}

func TestAFailingStoreEndsTheBench(t *testing.T) {
	s := memorySuite(t)
	s.Open = func(Kind) (stripe.Engine, error) {
		e, err := memstore.New(memstore.Options{})
		return failing{e}, err
	}
	c := s.Contender(Op{Read: true, Size: 4 * kib, Depth: 4}, Kind{Members: 1})
	if _, err := c.Measure(t.Context(), time.Minute); !errors.Is(err, errs.IO) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = s.Contender(Op{Size: 4 * kib, Depth: 4}, Kind{Members: 1})
	cancel()
	if _, err := c.Measure(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
