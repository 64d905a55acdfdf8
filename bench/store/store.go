// Package store is bench store: what the local store reaches beside plain io_uring with direct I/O
// on the same file system, or on the same device. Both do the same operations at the same depth,
// from as many goroutines, on as many bytes, all of which were written before.
//
// It knows the contract of stores only: package main makes them. Read store.go first (the cases),
// then load.go (what both sides do), raw.go (the ceiling) and figures.go (what is promised).
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// Bench is what is measured.
type Bench struct {
	// Open opens the store of that kind, made anew and empty.
	Open func(kind Kind) (stripe.Engine, error)

	// Restart opens a store whose log is full and tells how long that took, and how many bytes the
	// log had; nil: it is not measured.
	Restart func(ctx context.Context) (took time.Duration, logBytes int64, err error)

	// Raw is what plain io_uring works on: a file that was written from end to end, or a device.
	Raw RawTarget

	Bytes    int64  // the working set of both sides
	LogBytes int64  // of a store with one member; the asked case goes through it three times
	Kinds    []Kind // to measure beside that of one member
	Quick    bool   // sweeps are shorter
	Asked    bool   // only what the project promises

	open map[Kind]*workingSet
	raw  *rawRing
}

// Kind is what a bench can choose of a store.
type Kind struct {
	Members  int
	Unsummed bool // without checksums
}

func (k Kind) String() string {
	switch {
	case k.Unsummed:
		return "logstore, no CRC"
	case k.Members > 1:
		return fmt.Sprintf("logstore, %d members", k.Members)
	}
	return "logstore"
}

// PlainRing is the name of the ceiling.
const PlainRing = "plain io_uring"

// Cases are what is measured. Close ends what they need.
func (s *Bench) Cases() []bench.Case {
	ops := askedOps()
	if !s.Asked {
		ops = append(ops, s.sweeps()...)
	}
	var cases []bench.Case
	seen := map[string]bool{}
	for _, op := range ops {
		if !seen[op.name()] {
			seen[op.name()] = true
			cases = append(cases, s.caseOf(op))
		}
	}
	if s.Restart != nil {
		cases = append(cases, s.restartCase())
	}
	return cases
}

// askedOps are what the project promises something about.
func askedOps() []Op {
	return []Op{
		{Random: true, Class: stripe.Durable, Size: 4 * kib, Depth: 16, wraps: 3, asked: true},
		{Class: stripe.Durable, Size: mib, Depth: 1, asked: true},
		{Class: stripe.Durable, Size: mib, Depth: 4, asked: true},
		{Read: true, Random: true, Size: 4 * kib, Depth: 32, asked: true},
		{Read: true, Size: mib, Depth: 1, asked: true},
		{Read: true, Size: mib, Depth: 4, asked: true},
	}
}

// sweeps are over sizes, depths and durability.
func (s *Bench) sweeps() []Op {
	sizes := []int{4 * kib, 16 * kib, 64 * kib, 256 * kib, mib, 4 * mib}
	depths := []int{1, 4, 16, 64}
	if s.Quick {
		sizes, depths = []int{4 * kib, 64 * kib, mib}, []int{1, 64}
	}
	var ops []Op
	for _, random := range []bool{false, true} {
		for _, size := range sizes {
			ops = append(ops,
				Op{Random: random, Class: stripe.Durable, Size: size, Depth: 16},
				Op{Random: random, Read: true, Size: size, Depth: 16})
		}
	}
	for _, depth := range depths {
		for _, size := range []int{4 * kib, 64 * kib} {
			ops = append(ops,
				Op{Random: true, Class: stripe.Durable, Size: size, Depth: depth},
				Op{Random: true, Read: true, Size: size, Depth: depth})
		}
	}
	for _, class := range []stripe.Durability{stripe.Grouped, stripe.Volatile} {
		for _, size := range []int{4 * kib, 64 * kib, mib} {
			ops = append(ops, Op{Random: true, Class: class, Size: size, Depth: 16})
		}
	}
	return ops
}

// caseOf measures an operation: plainly, by a store, and, where it was asked for by name, by stores
// without checksums and of several members.
func (s *Bench) caseOf(op Op) bench.Case {
	c := bench.Case{Bench: "store", Name: op.name(), Size: int64(op.Size), Depth: op.Depth,
		Metric: bench.Bandwidth, First: op.asked, Ceiling: PlainRing}
	c.Add(s.plainly(op))
	if op.Size < 64*kib {
		c.Metric = bench.Rate
	}
	kinds := []Kind{{Members: 1}}
	if op.asked && !s.Asked {
		kinds = append(kinds, s.Kinds...)
	}
	for _, kind := range kinds {
		c.Add(s.Contender(op, kind))
	}
	return c
}

// least is how many operations a measurement does at least: as many as fill the log that often, if
// each takes no more of it than its own bytes.
func (s *Bench) least(op Op) int {
	return int(int64(op.wraps) * s.LogBytes / int64(op.Size))
}

// plainly does the operation by io_uring alone.
func (s *Bench) plainly(op Op) bench.Contender {
	return bench.Contender{Provider: PlainRing,
		Measure: func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
			if s.raw == nil {
				if s.raw, err = openRaw(s.Raw, s.Bytes); err != nil {
					return r, err
				}
			}
			return timed(op, func() (bench.Result, error) {
				return s.raw.load(op).run(ctx, d, s.least(op))
			})
		}}
}

// Contender does the operation by a store.
func (s *Bench) Contender(op Op, kind Kind) bench.Contender {
	return bench.Contender{Provider: kind.String(),
		Measure: func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
			set, err := s.set(ctx, kind)
			if err != nil {
				return r, err
			}
			before := takeCosts(set.engine)
			return timed(op, func() (bench.Result, error) {
				r, err := set.load(op).run(ctx, d, s.least(op))
				r.Extras = takeCosts(set.engine).since(before, op, &r)
				return r, err
			})
		}}
}

// timed adds the processor seconds of this process for each GiB, where something is promised.
func timed(op Op, run func() (bench.Result, error)) (r bench.Result, err error) {
	before, err := partner.OwnCPU()
	if err != nil {
		return r, err
	}
	if r, err = run(); err != nil || !op.asked || r.Bytes == 0 {
		return r, err
	}
	now, err := partner.OwnCPU()
	r.Extras = append(r.Extras, bench.Extra{Metric: bench.CPU,
		Value: (now - before).Seconds() / r.GiB()})
	return r, err
}

// set is a store of that kind with the working set in it.
func (s *Bench) set(ctx context.Context, kind Kind) (*workingSet, error) {
	if set := s.open[kind]; set != nil {
		return set, nil
	}
	engine, err := s.Open(kind)
	if err != nil {
		return nil, err
	}
	set := &workingSet{engine: engine, bytes: s.Bytes}
	if s.open == nil {
		s.open = map[Kind]*workingSet{}
	}
	s.open[kind] = set
	return set, set.fill(ctx)
}

func (s *Bench) restartCase() bench.Case {
	return bench.Case{Bench: "store", Name: "restart-full-log", Metric: bench.Restart, First: true,
		Contenders: []bench.Contender{{Provider: "logstore",
			Measure: func(ctx context.Context, _ time.Duration) (r bench.Result, err error) {
				took, logBytes, err := s.Restart(ctx)
				r.Value = took.Seconds()
				r.Extras = []bench.Extra{{Metric: bench.LogRead, Value: float64(logBytes) / mib}}
				return r, err
			}}}}
}

// Close ends what the cases needed.
func (s *Bench) Close() error {
	var all []error
	for _, set := range s.open {
		all = append(all, set.engine.Close())
	}
	if s.raw != nil {
		all = append(all, s.raw.close())
	}
	return errs.Wrap("bench store", "", errors.Join(all...))
}

// Budget fits a quick run into half a minute.
func Budget(quick bool) bench.Budget {
	if quick {
		return bench.Budget{Rounds: 3, Round: 250 * time.Millisecond, Total: 25 * time.Second}
	}
	return bench.Budget{Rounds: 5, Round: 500 * time.Millisecond}
}
