package bench

import (
	"context"
	"time"
)

// moved is what a stream did.
type moved struct {
	begin time.Time
	took  time.Duration
	ops   int
	bytes int64
}

func (m *moved) add(ops, size int) {
	m.ops += ops
	m.bytes += int64(ops) * int64(size)
}

// stream does one kind of operation for about d.
type stream func(ctx context.Context, d time.Duration) (moved, error)

// bandwidth measures a stream in MB/s.
func (s stream) bandwidth(ctx context.Context, d time.Duration) (float64, error) {
	m, err := s(ctx, d)
	if err != nil {
		return 0, err
	}
	return perSecond(m.bytes, m.took), nil
}

// rate measures a stream in operations a second.
func (s stream) rate(ctx context.Context, d time.Duration) (float64, error) {
	m, err := s(ctx, d)
	if err != nil {
		return 0, err
	}
	return float64(m.ops) / m.took.Seconds(), nil
}

// Meter reads the processor time that a process has used.
type Meter func() (time.Duration, error)

// meter adds what a stream costs: processor seconds for each GiB, of both sides and of the peer.
func meter(c Contender, s stream, mine, peers Meter) Contender {
	var last []Extra
	c.Measure = func(ctx context.Context, d time.Duration) (float64, error) {
		last = nil
		myBegin, err := mine()
		if err != nil {
			return 0, err
		}
		peerBegin, err := peers()
		if err != nil {
			return 0, err
		}
		m, err := s(ctx, d)
		if err != nil {
			return 0, err
		}
		myEnd, err := mine()
		if err != nil {
			return 0, err
		}
		peerEnd, err := peers()
		if err != nil {
			return 0, err
		}
		gib := float64(m.bytes) / (1 << 30)
		peer := (peerEnd - peerBegin).Seconds()
		last = []Extra{{CPU, ((myEnd - myBegin).Seconds() + peer) / gib}, {PeerCPU, peer / gib}}
		return perSecond(m.bytes, m.took), nil
	}
	c.Extras = func() []Extra { return last }
	return c
}

// medianCost is the median of each cost that all measurements have.
func medianCost(all []Cost) Cost {
	middle := func(of func(*Cost) *float64) *float64 {
		var values []float64
		for i := range all {
			if v := of(&all[i]); v != nil {
				values = append(values, *v)
			}
		}
		if values == nil || len(values) < len(all) {
			return nil
		}
		m := Median(values)
		return &m
	}
	return Cost{
		LocalCPU:       middle(func(c *Cost) *float64 { return c.LocalCPU }),
		RemoteCPU:      middle(func(c *Cost) *float64 { return c.RemoteCPU }),
		Copies:         middle(func(c *Cost) *float64 { return c.Copies }),
		ProviderCopies: middle(func(c *Cost) *float64 { return c.ProviderCopies }),
		Allocs:         middle(func(c *Cost) *float64 { return c.Allocs }),
	}
}
