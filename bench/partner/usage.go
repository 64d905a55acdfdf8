package partner

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/mem"
)

// usage is what a process has used since it began.
type usage struct {
	CPU    time.Duration `json:"cpu"`
	Copied uint64        `json:"copied"` // bytes, by package mem
	Allocs uint64        `json:"allocs"`
}

const doUsage = "usage" // tell what the process has used so far

// OwnCPU is the processor time that this process has used.
func OwnCPU() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// ownUsage is that of this process. Package runtime/metrics would tell of allocations some time
// later, by hundreds.
func ownUsage() (usage, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	cpu, err := OwnCPU()
	return usage{CPU: cpu, Copied: mem.Copied(), Allocs: m.Mallocs}, err
}

// since is what came on top of an earlier reading.
func (u usage) since(earlier usage) usage {
	return usage{u.CPU - earlier.CPU, u.Copied - earlier.Copied, u.Allocs - earlier.Allocs}
}

// Meter tells what measurements cost both processes besides time: processor time, copies and
// allocations, read before and after each of them.
type Meter struct {
	Control string // where the other process runs Serve
	conn    *Conn
}

// Close ends what the meter has opened.
func (m *Meter) Close() error { return m.conn.Close() }

// usages reads what both processes have used.
func (m *Meter) usages(ctx context.Context) (mine, peers usage, err error) {
	if m.conn == nil {
		if m.conn, err = Dial(ctx, m.Control); err != nil {
			return mine, peers, err
		}
	}
	if err = m.conn.Ask(doUsage, struct{}{}, &peers); err != nil {
		return mine, peers, err
	}
	mine, err = ownUsage()
	return mine, peers, err
}

// spent is what both processes use while do runs.
func (m *Meter) spent(ctx context.Context, do func() error) (mine, peers usage, err error) {
	mineBefore, peersBefore, err := m.usages(ctx)
	if err != nil {
		return mine, peers, err
	}
	if err = do(); err != nil {
		return mine, peers, err
	}
	mine, peers, err = m.usages(ctx)
	return mine.since(mineBefore), peers.since(peersBefore), err
}

// Costs measures, and what that costs. Readings themselves allocate: that is taken off.
func (m *Meter) Costs(measure bench.Measure) bench.Measure {
	return func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
		mine, peers, err := m.spent(ctx, func() error { return nil })
		if err != nil {
			return r, err
		}
		reading := mine.Allocs + peers.Allocs
		mine, peers, err = m.spent(ctx, func() (err error) {
			r, err = measure(ctx, d)
			return err
		})
		if err != nil {
			return r, err
		}
		allocs := mine.Allocs + peers.Allocs
		r.Cost = costOf(&r, mine, peers, allocs-min(allocs, reading))
		return r, nil
	}
}

// CPUs measures, and the processor time of that as figures of their own.
func (m *Meter) CPUs(measure bench.Measure) bench.Measure {
	return func(ctx context.Context, d time.Duration) (r bench.Result, err error) {
		mine, peers, err := m.spent(ctx, func() (err error) {
			r, err = measure(ctx, d)
			return err
		})
		r.Extras = append(r.Extras, bench.Extra{Metric: bench.CPU,
			Value: (mine.CPU + peers.CPU).Seconds() / r.GiB()},
			bench.Extra{Metric: bench.PeerCPU, Value: peers.CPU.Seconds() / r.GiB()})
		return r, err
	}
}

func costOf(r *bench.Result, mine, peers usage, allocs uint64) bench.Cost {
	var c bench.Cost
	if r.Bytes > 0 {
		local, remote := mine.CPU.Seconds()/r.GiB(), peers.CPU.Seconds()/r.GiB()
		copies := float64(mine.Copied+peers.Copied) / float64(r.Bytes)
		c.LocalCPU, c.RemoteCPU, c.Copies = &local, &remote, &copies
	}
	if r.Ops > 0 {
		each := float64(allocs) / float64(r.Ops)
		c.Allocs = &each
	}
	return c
}
