package bench

import (
	"context"
	"os"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Provider is one that bench fabric measures: an open domain here, and the address at which the
// peer's process serves the same provider with ServeFabric.
type Provider struct {
	Name   string
	RDMA   bool // its ceilings are perftest, not plain TCP
	Domain fabric.Domain
	Addr   string
}

// openMax bounds how long connecting to the peer may take, with its grant.
const openMax = 8 * time.Second

// link is a connection to the peer for one contender. It is opened when it is first used and lives
// as long as its case.
type link struct {
	p         *Provider
	role      role
	dataBytes int
	end       *end
	remote    fabric.Remote // modeMemory
}

func (l *link) open(ctx context.Context) error {
	if l.end != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	e, err := newEnd(l.p.Domain, l.role, max(l.dataBytes, l.role.size))
	if err != nil {
		return err
	}
	l.end = e
	ep, err := l.p.Domain.Connector().Dial(ctx, l.p.Addr, e.config())
	if err != nil {
		return err
	}
	if err := e.start(ep); err != nil || l.role.mode != modeMemory {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = ep.Close() }) // ends the wait
	got, err := e.await()
	if !stop() {
		return errs.Newf(errs.TimedOut, "bench", l.p.Name, "the peer granted nothing in time")
	}
	if err != nil {
		return err
	}
	if got[0].Op != fabric.OpRecv || got[0].Len != grantBytes {
		return errs.Newf(errs.Protocol, "bench", l.p.Name, "the peer granted nothing")
	}
	l.remote = getRemote(e.slots[got[0].Context])
	return nil
}

func (l *link) close() error {
	if l.end == nil {
		return nil
	}
	return l.end.close()
}

// contender has no Measure yet. One whose device fails is left out, and the others are not.
func (l *link) contender(depth int) Contender {
	return Contender{Provider: l.p.Name, Depth: depth, Optional: l.p.RDMA, Close: l.close}
}

// pings measures the round trip of a message.
func (p *Provider) pings(size int, spin bool) Contender {
	l := &link{p: p, role: role{mode: modeEcho, size: size, spin: spin}}
	inline := p.Domain.Caps().MaxInline
	c := l.contender(1)
	c.Measure = func(ctx context.Context, d time.Duration) (float64, error) {
		if err := l.open(ctx); err != nil {
			return 0, err
		}
		return MedianLatency(ctx, d, func() error {
			if err := l.end.send(size, 0, inline); err != nil {
				return err
			}
			_, _, _, err := l.end.awaitMessages()
			return err
		})
	}
	return c
}

// sends streams messages, as many under way as the peer has receives.
func (p *Provider) sends(size int) (Contender, stream) {
	l := &link{p: p, role: role{mode: modeSink, size: size}}
	return l.contender(recvDepth), func(ctx context.Context, d time.Duration) (moved, error) {
		if err := l.open(ctx); err != nil {
			return moved{}, err
		}
		m := moved{begin: time.Now()}
		for posted := 0; ; {
			for m.took < d && posted < m.ops+recvDepth {
				if err := l.end.send(size, 0, 0); err != nil {
					return m, err
				}
				posted++
			}
			if posted-m.ops < sinkBatch || ctx.Err() != nil { // the rest is told of next time
				return m, l.settle(ctx, posted-m.ops)
			}
			_, _, taken, err := l.end.awaitMessages()
			if err != nil {
				return m, err
			}
			m.add(int(taken), size)
			m.took = time.Since(m.begin)
		}
	}
}

// settle sends as many messages as the peer needs to tell of the last rest.
func (l *link) settle(ctx context.Context, rest int) error {
	if rest == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	for range sinkBatch - rest {
		if err := l.end.send(l.role.size, 0, 0); err != nil {
			return err
		}
	}
	_, _, _, err := l.end.awaitMessages()
	return err
}

// transfer is a kind of one-sided operation.
type transfer struct {
	op     fabric.Op
	size   int // bytes of one operation
	pieces int // that a write gathers; 0 or 1: it is contiguous
	depth  int // operations under way
	chain  int // operations posted at once, of which the last is signalled; 0: one
	inline bool
	file   *os.File // instead of memory
}

// transfers streams one-sided operations, always of the same memory here and at the peer.
func (p *Provider) transfers(t transfer) (Contender, stream) {
	l := &link{p: p, role: role{mode: modeMemory, size: t.size}}
	if t.pieces > 1 {
		l.dataBytes = 2 * t.size // pieces lie apart
	}
	t.chain = max(1, t.chain)
	var wrs []fabric.WR
	run := func(ctx context.Context, d time.Duration) (moved, error) {
		if err := l.open(ctx); err != nil {
			return moved{}, err
		}
		if wrs == nil {
			wrs = t.requests(l)
		}
		m := moved{begin: time.Now()}
		for posted := 0; ; {
			for m.took < d && ctx.Err() == nil && posted+t.chain <= m.ops+t.depth {
				if err := l.end.ep.Post(wrs); err != nil {
					return m, err
				}
				posted += t.chain
			}
			if posted == m.ops {
				return m, ctx.Err()
			}
			got, err := l.end.await()
			if err != nil {
				return m, err
			}
			m.add(len(got)*t.chain, t.size)
			m.took = time.Since(m.begin)
		}
	}
	return l.contender(t.depth), run
}

// requests is one chain.
func (t *transfer) requests(l *link) []fabric.WR {
	wr := fabric.WR{Op: t.op, Remote: l.remote}
	pieces := max(1, t.pieces)
	length := t.size / pieces
	for i := range pieces {
		at := 2 * i * length
		wr.Local = append(wr.Local, fabric.Sge{Reg: l.end.arena.Region(),
			Buf: l.end.data[at : at+length : at+length]})
	}
	if t.file != nil {
		wr.Local, wr.File = nil, fabric.FileRange{File: t.file, Len: int64(t.size)}
	}
	if t.inline && t.size <= l.p.Domain.Caps().MaxInline {
		wr.Flags |= fabric.FlagInline
	}
	wrs := make([]fabric.WR, t.chain)
	for i := range wrs {
		wrs[i] = wr
	}
	wrs[t.chain-1].Flags |= fabric.FlagSignaled
	return wrs
}
