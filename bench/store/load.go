package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

const (
	kib = bench.KiB
	mib = bench.MiB
)

// Op is one kind of operation.
type Op struct {
	Read, Random bool
	Class        stripe.Durability // of a write
	Size, Depth  int
	wraps        int  // it lasts until the log was written this often
	asked        bool // the project promises something about it
}

// name is the case's: durable-rand-write-d16-4k.
func (o Op) name() string {
	order, verb := "seq", "write"
	if o.Random {
		order = "rand"
	}
	if o.Read {
		return fmt.Sprintf("%s-read-d%d-%s", order, o.Depth, bench.SizeName(o.Size))
	}
	class := map[stripe.Durability]string{
		stripe.Durable: "durable", stripe.Grouped: "grouped", stripe.Volatile: "volatile",
	}[o.Class]
	return fmt.Sprintf("%s-%s-%s-d%d-%s", class, order, verb, o.Depth, bench.SizeName(o.Size))
}

// load is a number of goroutines that do one kind of operation, one after the other each.
type load struct {
	op    Op
	bytes int64 // of the working set
	next  *atomic.Int64
	do    func(worker int, buf []byte, off int64) error
}

// run works for about d, and until least operations are done.
func (l load) run(ctx context.Context, d time.Duration, least int) (r bench.Result, err error) {
	mem, err := unix.Mmap(-1, 0, l.op.Size*l.op.Depth, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return r, errs.Wrap("bench store", "memory", err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // as arenas have it; refused: the pages are small
	Noise(mem)
	seed := uint64(time.Now().UnixNano())
	places := make([]*rand.Rand, l.op.Depth)
	for w := range places {
		places[w] = rand.New(rand.NewPCG(uint64(w), seed))
	}
	return bench.Load{Depth: l.op.Depth, Size: l.op.Size, Least: least, Op: func(w, _ int) error {
		return l.do(w, mem[w*l.op.Size:(w+1)*l.op.Size], l.place(places[w]))
	}}.Run(ctx, d)
}

// place is where the next operation goes: anywhere, or behind the last one of all goroutines.
func (l *load) place(rnd *rand.Rand) int64 {
	n := l.bytes / int64(l.op.Size)
	if l.op.Random {
		return rnd.Int64N(n) * int64(l.op.Size)
	}
	return (l.next.Add(1) - 1) % n * int64(l.op.Size)
}

// Noise fills memory with what does not compress.
func Noise(b []byte) {
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(b) // it does not fail
}

// objectBytes is how much of the working set is one object.
const objectBytes = 16 * mib

// workingSet is a store with the working set in it, as objects of objectBytes bytes.
type workingSet struct {
	engine stripe.Engine
	bytes  int64
	next   atomic.Int64
	pieces [64][1][]byte // of each goroutine: a slice that is not made for each request
}

// fill writes the working set, several times: a store that writes to free places gets to those that
// were never written only in its first time, and is to be measured in what comes after it. The raw
// file was written before, too.
func (s *workingSet) fill(ctx context.Context) error {
	for range 3 {
		l := s.load(Op{Class: stripe.Volatile, Size: mib, Depth: 4})
		if _, err := l.run(ctx, 0, int(s.bytes/mib)); err != nil {
			return err
		}
		if err := s.engine.Sync(ctx, stripe.ObjectID{}); err != nil {
			return err
		}
	}
	return nil
}

// load does the operation on the store.
func (s *workingSet) load(op Op) load {
	s.next.Store(0)
	ctx := context.Background() // what has begun is carried out
	return load{op: op, bytes: s.bytes, next: &s.next, do: func(w int, buf []byte, off int64) error {
		id := stripe.ObjectID{File: 1 + uint64(off/objectBytes), Gen: 1}
		s.pieces[w][0] = buf
		if op.Read {
			return s.engine.ReadAt(ctx, id, s.pieces[w][:], off%objectBytes)
		}
		return s.engine.WriteAt(ctx, id, s.pieces[w][:], off%objectBytes, wire.Stamp{}, op.Class)
	}}
}

// costs are counters, taken before and after a measurement.
type costs struct {
	stats  stripe.Stats
	allocs uint64
}

func takeCosts(e stripe.Engine) costs {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return costs{e.Stats(), m.Mallocs}
}

// since is what was spent, for each byte and for each operation.
func (c costs) since(b costs, op Op, r *bench.Result) []bench.Extra {
	if r.Ops == 0 {
		return nil
	}
	var list []bench.Extra
	bytes := float64(r.Bytes)
	if !op.Read {
		list = append(list, bench.Extra{Metric: bench.Amplification,
			Value: float64(c.stats.DiskWriteBytes-b.stats.DiskWriteBytes) / bytes})
	}
	if op.asked {
		list = append(list, bench.Extra{Metric: bench.Allocations,
			Value: float64(c.allocs-b.allocs) / float64(r.Ops)},
			bench.Extra{Metric: bench.Copied,
				Value: float64(c.stats.CopiedBytes-b.stats.CopiedBytes) / bytes})
	}
	return list
}
