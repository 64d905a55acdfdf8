package bench

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/wire"
)

// memorySuite measures stores in memory, so that the cases are tested and not the disk.
func memorySuite(t *testing.T) *Store {
	s := &Store{
		Open: func(StoreKind) (stripe.Engine, error) { return memstore.New(memstore.Options{}) },
		Restart: func(context.Context) (time.Duration, int64, error) {
			return 2 * time.Second, 128 * mib, nil
		},
		Raw:   RawTarget{Path: filepath.Join(t.TempDir(), "raw")},
		Bytes: 32 * mib, LogBytes: mib, Quick: true,
		Kinds: []StoreKind{{Members: 1, Unsummed: true}, {Members: 2}},
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
	rows, err := RunAll(t.Context(), Budget{Rounds: 1, Round: time.Millisecond}, s.Cases())
	if errors.Is(err, errs.Invalid) || errs.KindOf(err) == errs.Unsupported {
		t.Skipf("no direct I/O here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Case+"/"+r.Provider+"/"+r.Metric] = true
		if r.Value < 0 || r.Metric == Rate && r.Value == 0 {
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
	if n := len(Judge(StorePromises(), rows)); n != len(StorePromises()) {
		t.Errorf("%d of %d promises are held against something", n, len(StorePromises()))
	}
}

func TestTheWrapsOfTheLogAreWritten(t *testing.T) {
	s := memorySuite(t)
	set, err := s.set(t.Context(), StoreKind{Members: 1})
	if err != nil {
		t.Fatal(err)
	}
	op := askedOps()[0]
	m, err := set.load(op).run(t.Context(), 0, s.least(op))
	if err != nil || m.bytes < 3*s.LogBytes {
		t.Errorf("%d bytes, %v", m.bytes, err)
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
	s.Open = func(StoreKind) (stripe.Engine, error) {
		e, err := memstore.New(memstore.Options{})
		return failing{e}, err
	}
	c := s.contender(storeOp{read: true, size: 4 * kib, depth: 4}, StoreKind{Members: 1})
	if _, err := c.Measure(t.Context(), time.Minute); !errors.Is(err, errs.IO) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = s.contender(storeOp{size: 4 * kib, depth: 4}, StoreKind{Members: 1})
	cancel()
	if _, err := c.Measure(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestVerdicts(t *testing.T) {
	rows := []Row{
		{Case: "a", Provider: "logstore", Metric: Rate, Unit: "op/s", Value: 60, Ratio: 0.6,
			Ceiling: PlainRing},
		{Case: "b", Provider: "logstore", Metric: Restart, Unit: "s", Value: 6},
	}
	list := Judge([]Promise{
		{"just enough", "a", "logstore", Rate, 0.6, false, true},
		{"too slow", "b", "logstore", Restart, 5, true, false},
		{"not measured", "c", "logstore", Rate, 1, false, true},
	}, rows)
	if len(list) != 2 || !list[0].Kept || list[1].Kept {
		t.Fatalf("%+v", list)
	}
	var text strings.Builder
	if err := WriteVerdicts(&text, list); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"just enough +at least 0.60 of plain io_uring +0.60 +yes",
		"too slow +at most 5.00 s +6.00 +NO"} {
		if !regexp.MustCompile(want).MatchString(text.String()) {
			t.Errorf("%s is not in\n%s", want, text.String())
		}
	}
}
