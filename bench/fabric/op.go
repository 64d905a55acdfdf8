package fabric

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// This file is what is done with a provider, each of it the same way at every provider.

// sleeps measures the round trip of a message whose waiter sleeps.
func sleeps(p *Provider, size int) bench.Contender {
	return pings(p, role{mode: modeEcho, size: size})
}

// polls is sleeps by queues that poll.
func polls(p *Provider, size int) bench.Contender {
	return pings(p, role{mode: modeEcho, size: size, spin: true})
}

func pings(p *Provider, r role) bench.Contender {
	l := &link{p: p, role: r, dataBytes: wire.HeaderBytes + r.size}
	trip := l.trip
	if r.mode == modeHeader {
		trip = l.headerTrip
	}
	return l.contender(1, func(ctx context.Context, d time.Duration) (bench.Result, error) {
		return bench.Repeat(ctx, d, r.size, trip)
	})
}

// Pings is a round trip through a provider that nothing else uses. header puts a wire.Header before
// the message, which both sides write and read; spin has both sides poll.
func Pings(p *Provider, size int, header, spin bool) bench.Contender {
	r := role{mode: modeEcho, size: size, spin: spin}
	if header {
		r.mode = modeHeader
	}
	c := pings(p, r)
	end := c.Close
	c.Close = func() error { return errors.Join(end(), p.Close()) }
	return c
}

func (l *link) trip() error {
	if err := l.send(l.role.size, 0, l.inline); err != nil {
		return err
	}
	_, _, _, err := l.awaitMessages()
	return err
}

// headerTrip is a message with a header there and back.
func (l *link) headerTrip() error {
	l.trips++
	h := wire.Header{Kind: wire.KindRequest, Op: 1, RequestID: l.trips}
	if err := l.send(l.compose(&h, l.body), 0, l.inline); err != nil {
		return err
	}
	slot, length, err := l.awaitOne()
	if err != nil {
		return err
	}
	var back wire.Header
	rest, _, err := back.Parse(l.slots[slot][:length])
	if err == nil && (back.RequestID != l.trips || len(rest) != len(l.body)) {
		err = errs.Newf(errs.Protocol, "bench", "", "another answer")
	}
	if err != nil {
		return err
	}
	return l.post(slot)
}

// sends streams messages, as many under way as the peer has receives.
func sends(p *Provider, size int) bench.Contender {
	l := &link{p: p, role: role{mode: modeSink, size: size}}
	return l.contender(recvDepth, func(ctx context.Context, d time.Duration) (r bench.Result,
		err error) {
		begin := time.Now()
		for posted := 0; ; {
			for r.Took < d && posted < r.Ops+recvDepth {
				if err := l.send(size, 0, 0); err != nil {
					return r, err
				}
				posted++
			}
			if posted-r.Ops < sinkBatch || ctx.Err() != nil { // the rest is told of next time
				return r, l.settle(ctx, posted-r.Ops)
			}
			_, _, taken, err := l.awaitMessages()
			if err != nil {
				return r, err
			}
			r.Add(int(taken), size)
			r.Took = time.Since(begin)
		}
	})
}

// settle sends as many messages as the peer needs to tell of the last rest.
func (l *link) settle(ctx context.Context, rest int) error {
	if rest == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	for range sinkBatch - rest {
		if err := l.send(l.role.size, 0, 0); err != nil {
			return err
		}
	}
	_, _, _, err := l.awaitMessages()
	return err
}

// transfer is a kind of one-sided operation.
type transfer struct {
	op     fabric.Op
	pieces int // that a write gathers; 0 or 1: it is contiguous
	depth  int // operations under way
	chain  int // operations posted at once, of which the last is signalled; 0: one
	inline bool
}

// of streams operations of size bytes, always of the same memory here and at the peer.
func (t transfer) of(p *Provider, size int) bench.Contender {
	l := &link{p: p, role: role{mode: modeMemory, size: size}}
	if t.pieces > 1 {
		l.dataBytes = 2 * size // pieces lie apart
	}
	chain := max(1, t.chain)
	var wrs []fabric.WR
	return l.contender(t.depth, func(ctx context.Context, d time.Duration) (r bench.Result,
		err error) {
		if wrs == nil {
			wrs = t.requests(l, chain)
		}
		begin := time.Now()
		for posted := 0; ; {
			for r.Took < d && ctx.Err() == nil && posted+chain <= r.Ops+t.depth {
				if err := l.ep.Post(wrs); err != nil {
					return r, err
				}
				posted += chain
			}
			if posted == r.Ops {
				return r, ctx.Err()
			}
			got, err := l.await()
			if err != nil {
				return r, err
			}
			r.Add(len(got)*chain, size)
			r.Took = time.Since(begin)
		}
	})
}

// requests is one chain.
func (t *transfer) requests(l *link, chain int) []fabric.WR {
	wr := fabric.WR{Op: t.op, Remote: l.remote}
	pieces := max(1, t.pieces)
	length := l.role.size / pieces
	for i := range pieces {
		at := 2 * i * length
		wr.Local = append(wr.Local, fabric.Sge{Reg: l.arena.Region(),
			Buf: l.data[at : at+length : at+length]})
	}
	if t.inline && l.role.size <= l.inline {
		wr.Flags |= fabric.FlagInline
	}
	wrs := make([]fabric.WR, chain)
	for i := range wrs {
		wrs[i] = wr
	}
	wrs[chain-1].Flags |= fabric.FlagSignaled
	return wrs
}
