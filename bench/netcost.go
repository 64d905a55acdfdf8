package bench

import (
	"context"
	"time"
)

// This file is what a contender costs besides time: processor time, copies and allocations of both
// processes, read before and after each measurement.

// usages reads what both processes have used.
func (n *Net) usages(ctx context.Context) (mine, peers usage, err error) {
	if n.stats == nil {
		if n.stats, err = dialControl(ctx, n.Control); err != nil {
			return mine, peers, err
		}
	}
	a, err := n.stats.ask(spec{Do: doStats})
	if err != nil {
		return mine, peers, err
	}
	mine, err = ownUsage()
	return mine, a.Usage, err
}

// asking is how much both processes allocate for a reading itself.
func (n *Net) asking(ctx context.Context) (allocs uint64, err error) {
	mine, peers, err := n.usages(ctx)
	if err != nil {
		return 0, err
	}
	mineAfter, peersAfter, err := n.usages(ctx)
	return mineAfter.Allocs - mine.Allocs + peersAfter.Allocs - peers.Allocs, err
}

// measured is a measurement that tells its figure and how much was moved for it.
type measured func(ctx context.Context, d time.Duration) (moved, float64, error)

// costly measures, and what that costs.
func (n *Net) costly(c Contender, provider string, run measured) Contender {
	var last Cost
	c.Measure = func(ctx context.Context, d time.Duration) (float64, error) {
		asking, err := n.asking(ctx)
		if err != nil {
			return 0, err
		}
		mine, peers, err := n.usages(ctx)
		if err != nil {
			return 0, err
		}
		m, value, err := run(ctx, d)
		if err != nil {
			return 0, err
		}
		mineAfter, peersAfter, err := n.usages(ctx)
		if err != nil {
			return 0, err
		}
		mine, peers = mineAfter.since(mine), peersAfter.since(peers)
		mine.Allocs += peers.Allocs
		mine.Allocs, peers.Allocs = mine.Allocs-min(mine.Allocs, asking), 0
		last = costOf(m, mine, peers)
		if m.bytes > 0 {
			last.ProviderCopies = providerCopies(provider, c.Protocol)
		}
		return value, nil
	}
	c.Cost = func() Cost { return last }
	return c
}

// moves measures a stream in MB/s.
func (n *Net) moves(c Contender, provider string, s stream) Contender {
	return n.costly(c, provider, func(ctx context.Context, d time.Duration) (moved, float64, error) {
		m, err := s(ctx, d)
		if err != nil {
			return m, 0, err
		}
		return m, perSecond(m.bytes, m.took), nil
	})
}

// rates measures a stream in operations a second.
func (n *Net) rates(c Contender, provider string, s stream) Contender {
	return n.costly(c, provider, func(ctx context.Context, d time.Duration) (moved, float64, error) {
		m, err := s(ctx, d)
		if err != nil {
			return m, 0, err
		}
		return m, float64(m.ops) / m.took.Seconds(), nil
	})
}

// counted measures the latency of calls, and counts them.
func (n *Net) counted(ctx context.Context, d time.Duration, call *caller) (moved, float64, error) {
	before := call.calls
	v, err := call.latency(ctx, d)
	var m moved
	m.add(call.calls-before, call.size)
	return m, v, err
}

// since is what came on top of an earlier reading.
func (u usage) since(earlier usage) usage {
	return usage{u.CPU - earlier.CPU, u.Copied - earlier.Copied, u.Allocs - earlier.Allocs}
}

func costOf(m moved, mine, peers usage) Cost {
	var c Cost
	if m.bytes > 0 {
		gib := float64(m.bytes) / (1 << 30)
		local, remote := mine.CPU.Seconds()/gib, peers.CPU.Seconds()/gib
		copies := float64(mine.Copied+peers.Copied) / float64(m.bytes)
		c.LocalCPU, c.RemoteCPU, c.Copies = &local, &remote, &copies
	}
	if m.ops > 0 {
		allocs := float64(mine.Allocs+peers.Allocs) / float64(m.ops)
		c.Allocs = &allocs
	}
	return c
}

// providerCopies is what a provider's documentation says of a byte on its way; nil where nobody
// says. TCP, and sockets of any kind: into the kernel and out of it. Shared memory: one copy into
// or out of a client's arena, two through the rings, which is how messages and eager data go.
// RDMA: none.
func providerCopies(provider, protocol string) *float64 {
	v := 0.0
	switch {
	case provider == tcpProvider:
		v = 2
	case provider == shmProvider && (protocol == Inline || protocol == Eager):
		v = 2
	case provider == shmProvider:
		v = 1
	case provider != verbsProvider:
		return nil
	}
	return &v
}
