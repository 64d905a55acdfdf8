package bench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// load is a number of goroutines that do one kind of operation, one after the other each.
type load struct {
	op    storeOp
	bytes int64 // of the working set
	next  *atomic.Int64
	do    func(worker int, buf []byte, off int64) error
}

// run works for about d, and until least operations are done.
func (l load) run(ctx context.Context, d time.Duration, least int) (moved, error) {
	mem, err := unix.Mmap(-1, 0, l.op.size*l.op.depth, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return moved{}, errs.Wrap("bench store", "memory", err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // as arenas have it; refused: the pages are small
	noise(mem)
	var (
		wg     sync.WaitGroup
		done   atomic.Int64
		failed atomic.Pointer[error]
	)
	m := moved{begin: time.Now()}
	end := m.begin.Add(d)
	for w := range l.op.depth {
		buf := mem[w*l.op.size : (w+1)*l.op.size]
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), uint64(m.begin.UnixNano())))
			var err error
			for err == nil && failed.Load() == nil {
				if err = l.do(w, buf, l.place(rnd)); err != nil {
					break
				}
				if n := done.Add(1); int(n) >= least && time.Now().After(end) {
					return
				}
				err = ctx.Err()
			}
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	wg.Wait()
	m.took = time.Since(m.begin)
	m.add(int(done.Load()), l.op.size)
	if err := failed.Load(); err != nil {
		return m, *err
	}
	return m, nil
}

// place is where the next operation goes: anywhere, or behind the last one of all goroutines.
func (l *load) place(rnd *rand.Rand) int64 {
	n := l.bytes / int64(l.op.size)
	if l.op.random {
		return rnd.Int64N(n) * int64(l.op.size)
	}
	return (l.next.Add(1) - 1) % n * int64(l.op.size)
}

// noise fills memory with what does not compress.
func noise(b []byte) {
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(b) // it does not fail
}

// storeObject is how much of the working set is one object.
const storeObject = 16 * mib

// storeSet is a store with the working set in it, as objects of storeObject bytes.
type storeSet struct {
	engine stripe.Engine
	bytes  int64
	next   atomic.Int64
	pieces [64][1][]byte // of each goroutine: a slice that is not made for each request
}

// fill writes the working set, several times: a store that writes to free places gets to those that
// were never written only in its first time, and is to be measured in what comes after it. The raw
// file was written before, too.
func (s *storeSet) fill(ctx context.Context) error {
	for range 3 {
		l := s.load(storeOp{class: stripe.Volatile, size: mib, depth: 4})
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
func (s *storeSet) load(op storeOp) load {
	s.next.Store(0)
	ctx := context.Background() // what has begun is carried out
	return load{op: op, bytes: s.bytes, next: &s.next, do: func(w int, buf []byte, off int64) error {
		id := stripe.ObjectID{File: 1 + uint64(off/storeObject), Gen: 1}
		s.pieces[w][0] = buf
		if op.read {
			return s.engine.ReadAt(ctx, id, s.pieces[w][:], off%storeObject)
		}
		return s.engine.WriteAt(ctx, id, s.pieces[w][:], off%storeObject, wire.Stamp{}, op.class)
	}}
}

// cpuSince adds the processor seconds that this process has used for each GiB since then.
func cpuSince(list []Extra, before time.Duration, m moved) ([]Extra, error) {
	now, err := OwnCPU()
	if err != nil || m.bytes == 0 {
		return list, err
	}
	return append(list, Extra{CPU, (now - before).Seconds() / (float64(m.bytes) / (1 << 30))}), nil
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
func (c costs) since(b costs, op storeOp, m moved) []Extra {
	if m.ops == 0 {
		return nil
	}
	var list []Extra
	bytes := float64(m.bytes)
	if !op.read {
		list = append(list, Extra{Amplification,
			float64(c.stats.DiskWriteBytes-b.stats.DiskWriteBytes) / bytes})
	}
	if op.counted {
		list = append(list, Extra{Allocations, float64(c.allocs-b.allocs) / float64(m.ops)},
			Extra{Copied, float64(c.stats.CopiedBytes-b.stats.CopiedBytes) / bytes})
	}
	return list
}
