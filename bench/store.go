package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// Store is bench store: what the local store reaches beside plain io_uring with direct I/O on the
// same file system, or on the same device. Both do the same operations at the same depth, from as
// many goroutines, on as many bytes, all of which were written before.
type Store struct {
	// Open opens the store of that kind, made anew and empty.
	Open func(kind StoreKind) (stripe.Engine, error)

	// Restart opens a store whose log is full and tells how long that took, and how many bytes the
	// log had; nil: it is not measured.
	Restart func(ctx context.Context) (took time.Duration, logBytes int64, err error)

	// Raw is what plain io_uring works on: a file that was written from end to end, or a device.
	Raw RawTarget

	Bytes    int64       // the working set of both sides
	LogBytes int64       // of a store with one member; the asked case goes through it three times
	Kinds    []StoreKind // to measure beside that of one member
	Quick    bool        // sweeps are shorter
	Asked    bool        // only what the project promises

	open map[StoreKind]*storeSet
	raw  *rawRing
}

// StoreKind is what a bench can choose of a store.
type StoreKind struct {
	Members  int
	Unsummed bool // without checksums
}

func (k StoreKind) String() string {
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

// storeOp is one kind of operation.
type storeOp struct {
	read, random bool
	class        stripe.Durability // of a write
	size, depth  int
	wraps        int // it lasts until the log was written this often
	counted      bool
}

// name is the case's: durable-rand-write-d16-4k.
func (o storeOp) name() string {
	order, verb := "seq", "write"
	if o.random {
		order = "rand"
	}
	if o.read {
		return fmt.Sprintf("%s-read-d%d-%s", order, o.depth, sizeName(o.size))
	}
	class := map[stripe.Durability]string{
		stripe.Durable: "durable", stripe.Grouped: "grouped", stripe.Volatile: "volatile",
	}[o.class]
	return fmt.Sprintf("%s-%s-%s-d%d-%s", class, order, verb, o.depth, sizeName(o.size))
}

// Cases are what is measured. Close ends what they need.
func (s *Store) Cases() []Case {
	ops := askedOps()
	if !s.Asked {
		ops = append(ops, s.sweeps()...)
	}
	var cases []Case
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
func askedOps() []storeOp {
	return []storeOp{
		{random: true, class: stripe.Durable, size: 4 * kib, depth: 16, wraps: 3, counted: true},
		{class: stripe.Durable, size: mib, depth: 1, counted: true},
		{class: stripe.Durable, size: mib, depth: 4, counted: true},
		{read: true, random: true, size: 4 * kib, depth: 32, counted: true},
		{read: true, size: mib, depth: 1, counted: true},
		{read: true, size: mib, depth: 4, counted: true},
	}
}

// sweeps are over sizes, depths and durability.
func (s *Store) sweeps() []storeOp {
	sizes := []int{4 * kib, 16 * kib, 64 * kib, 256 * kib, mib, 4 * mib}
	depths := []int{1, 4, 16, 64}
	if s.Quick {
		sizes, depths = []int{4 * kib, 64 * kib, mib}, []int{1, 64}
	}
	var ops []storeOp
	for _, random := range []bool{false, true} {
		for _, size := range sizes {
			ops = append(ops,
				storeOp{random: random, class: stripe.Durable, size: size, depth: 16},
				storeOp{random: random, read: true, size: size, depth: 16})
		}
	}
	for _, depth := range depths {
		for _, size := range []int{4 * kib, 64 * kib} {
			ops = append(ops,
				storeOp{random: true, class: stripe.Durable, size: size, depth: depth},
				storeOp{random: true, read: true, size: size, depth: depth})
		}
	}
	for _, class := range []stripe.Durability{stripe.Grouped, stripe.Volatile} {
		for _, size := range []int{4 * kib, 64 * kib, mib} {
			ops = append(ops, storeOp{random: true, class: class, size: size, depth: 16})
		}
	}
	return ops
}

// caseOf measures an operation: plainly, by a store, and, where it was asked for by name, by stores
// without checksums and of several members.
func (s *Store) caseOf(op storeOp) Case {
	c := Case{Bench: "store", Name: op.name(), Size: int64(op.size), Depth: op.depth,
		Metric: Bandwidth, First: op.counted, Ceiling: s.plainly(op)}
	if op.size < 64*kib {
		c.Metric = Rate
	}
	kinds := []StoreKind{{Members: 1}}
	if op.counted && !s.Asked {
		kinds = append(kinds, s.Kinds...)
	}
	for _, kind := range kinds {
		c.Others = append(c.Others, s.contender(op, kind))
	}
	return c
}

func (s *Store) measure(op storeOp, run stream) func(context.Context,
	time.Duration) (float64, error) {
	if op.size < 64*kib {
		return run.rate
	}
	return run.bandwidth
}

// least is how many operations a measurement does at least: as many as fill the log that often, if
// each takes no more of it than its own bytes.
func (s *Store) least(op storeOp) int {
	return int(int64(op.wraps) * s.LogBytes / int64(op.size))
}

func (s *Store) plainly(op storeOp) Contender {
	var extras []Extra
	run := stream(func(ctx context.Context, d time.Duration) (moved, error) {
		if s.raw == nil {
			r, err := openRaw(s.Raw, s.Bytes)
			if err != nil {
				return moved{}, err
			}
			s.raw = r
		}
		before, err := OwnCPU()
		if err != nil {
			return moved{}, err
		}
		m, err := s.raw.load(op).run(ctx, d, s.least(op))
		extras = nil
		if op.counted && err == nil {
			extras, err = cpuSince(nil, before, m)
		}
		return m, err
	})
	return Contender{Provider: PlainRing, Measure: s.measure(op, run),
		Extras: func() []Extra { return extras }}
}

func (s *Store) contender(op storeOp, kind StoreKind) Contender {
	var extras []Extra
	run := stream(func(ctx context.Context, d time.Duration) (moved, error) {
		set, err := s.set(ctx, kind)
		if err != nil {
			return moved{}, err
		}
		before := takeCosts(set.engine)
		cpu, err := OwnCPU()
		if err != nil {
			return moved{}, err
		}
		m, err := set.load(op).run(ctx, d, s.least(op))
		extras = takeCosts(set.engine).since(before, op, m)
		if op.counted && err == nil {
			extras, err = cpuSince(extras, cpu, m)
		}
		return m, err
	})
	return Contender{Provider: kind.String(), Measure: s.measure(op, run),
		Extras: func() []Extra { return extras }}
}

// set is a store of that kind with the working set in it.
func (s *Store) set(ctx context.Context, kind StoreKind) (*storeSet, error) {
	if set := s.open[kind]; set != nil {
		return set, nil
	}
	engine, err := s.Open(kind)
	if err != nil {
		return nil, err
	}
	set := &storeSet{engine: engine, bytes: s.Bytes}
	if s.open == nil {
		s.open = map[StoreKind]*storeSet{}
	}
	s.open[kind] = set
	return set, set.fill(ctx)
}

func (s *Store) restartCase() Case {
	var bytes int64
	return Case{Bench: "store", Name: "restart-full-log", Metric: Restart, First: true,
		Others: []Contender{{Provider: "logstore",
			Measure: func(ctx context.Context, _ time.Duration) (float64, error) {
				took, n, err := s.Restart(ctx)
				bytes = n
				return took.Seconds(), err
			},
			Extras: func() []Extra {
				return []Extra{{LogRead, float64(bytes) / mib}}
			}}}}
}

// Close ends what the cases needed.
func (s *Store) Close() error {
	var all []error
	for _, set := range s.open {
		all = append(all, set.engine.Close())
	}
	if s.raw != nil {
		all = append(all, s.raw.close())
	}
	all = slices.DeleteFunc(all, func(err error) bool { return err == nil })
	if len(all) == 0 {
		return nil
	}
	return errs.Wrap("bench store", "", all[0])
}

// StoreBudget fits bench store.
func StoreBudget(quick bool) Budget {
	if quick {
		return Budget{Rounds: 3, Round: 250 * time.Millisecond, Total: 25 * time.Second}
	}
	return Budget{Rounds: 5, Round: 500 * time.Millisecond}
}
