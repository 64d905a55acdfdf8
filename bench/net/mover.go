package net

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/bench"
	netfabric "github.com/sluice-storage/sluice/bench/fabric"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
)

// This file measures package mover between two processes. The near side, which moves, is this
// process; it listens, because over shared memory only a listener reaches the dialler's memory. The
// far side dials, grants its memory and a slot for packed data, and says of every move when the
// data is in its pieces.

const (
	moveTag   = 1
	moveDepth = 64
	movePage  = 4096
)

// shape is memory in pieces of equal length, each followed by a gap of its length, or in one.
type shape struct {
	Pieces int `json:"pieces"`
	Piece  int `json:"piece"` // bytes
}

func (s shape) bytes() int { return s.Pieces * s.Piece }

// span is how much memory the pieces lie in.
func (s shape) span() int { return (2*s.bytes() + movePage - 1) / movePage * movePage }

// each calls fn with where each piece is.
func (s shape) each(fn func(from, to int)) {
	for i := range s.Pieces {
		fn(2*i*s.Piece, (2*i+1)*s.Piece)
	}
}

// moveSide is what both sides have.
type moveSide struct {
	undo  bench.Undo
	arena *mem.Arena
	data  []byte // the pieces and their gaps, at the beginning of the arena
	slot  []byte // for packed data; right behind
	note  []byte // a message; its second half is what is received
	reg   fabric.Region
	cq    fabric.CQ
	ep    fabric.Endpoint
	got   [8]fabric.Completion
	recv  [1]fabric.Recv
}

// openMove makes everything but the endpoint. The arena has room for a copy of the pieces besides.
func openMove(d fabric.Domain, source mem.Source, s shape) (m *moveSide, err error) {
	m = &moveSide{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.undo.Close())
		}
	}()
	span := s.span()
	if m.arena, err = mem.NewArena(3*span+movePage, source); err != nil {
		return nil, err
	}
	m.undo.Later(m.arena.Close)
	all, err := m.arena.Cut(2*span+movePage, movePage)
	if err != nil {
		return nil, err
	}
	copy(all, plain.Touched(2*span))
	m.data, m.slot, m.note = all[:span:span], all[span:2*span:2*span], all[2*span:]
	if err = m.arena.Attach(d); err != nil {
		return nil, err
	}
	m.reg = m.arena.RegionOf(d)
	if m.cq, err = d.NewCQ(fabric.CQOptions{Depth: 2 * moveDepth}); err != nil {
		return nil, err
	}
	m.undo.Later(m.cq.Close)
	return m, nil
}

func (m *moveSide) config() fabric.EndpointConfig {
	return fabric.EndpointConfig{
		SendCQ: m.cq, RecvCQ: m.cq, SendDepth: moveDepth, RecvDepth: moveDepth,
	}
}

// post posts a receive for a message, or for a notice.
func (m *moveSide) post() error {
	m.recv[0] = fabric.Recv{Reg: m.reg, Buf: m.note[movePage/2:]}
	return m.ep.PostRecv(m.recv[:])
}

// send sends the first n bytes of note.
func (m *moveSide) send(n int) error {
	return m.ep.Post([]fabric.WR{{
		Op: fabric.OpSend, Flags: fabric.FlagInline | fabric.FlagSignaled,
		Local: []fabric.Sge{{Reg: m.reg, Buf: m.note[:n]}},
	}})
}

// farArgs are what is moved, and where the near side listens.
type farArgs struct {
	Provider string `json:"provider"`
	Addr     string `json:"addr"`
	Shape    shape  `json:"shape"`
}

// far is the other process: it dials and runs until the endpoint ends.
func far(s *partner.Session, a *farArgs, open partner.Opener) error {
	if n := a.Shape.bytes(); n < 1 || n > bytesMax || a.Shape.Pieces > moveDepth {
		return errs.Newf(errs.Invalid, "bench peer", doFar, "%d pieces", a.Shape.Pieces)
	}
	d, err := open(a.Provider)
	if err != nil {
		return err
	}
	m, err := openMove(d.Domain, d.Source, a.Shape)
	if err != nil {
		return errors.Join(err, d.Domain.Close())
	}
	s.Later(m.undo.Close) // after the domain's endpoints
	s.Later(d.Domain.Close)
	ctx, cancel := context.WithTimeout(s.Context, netfabric.OpenMax)
	defer cancel()
	if m.ep, err = d.Domain.Connector().Dial(ctx, a.Addr, m.config()); err != nil {
		return err
	}
	grants, err := m.grant(a.Shape)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := m.receive(a.Shape, grants)
		if kind := errs.KindOf(err); kind != errs.Disconnected && kind != errs.Closed {
			s.Note(err)
		}
	}()
	s.Later(func() error {
		err := m.ep.Close()
		<-done
		return err
	})
	return nil
}

// grant opens the pieces and the slot to the near side.
func (m *moveSide) grant(s shape) (all [2]fabric.Remote, err error) {
	for i := range all {
		all[i], err = m.reg.Grant(m.ep, i*s.span(), s.span(), fabric.RemoteWrite)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// receive tells the near side where to write, then takes one move after the other.
func (m *moveSide) receive(s shape, grants [2]fabric.Remote) error {
	unpacker := mover.NewUnpacker(m.slot)
	var pieces [][]byte
	s.each(func(from, to int) { pieces = append(pieces, m.data[from:to:to]) })
	if err := unpacker.Expect(moveTag, pieces); err != nil {
		return err
	}
	if err := m.post(); err != nil {
		return err
	}
	netfabric.PutRemote(m.note, grants[0])
	netfabric.PutRemote(m.note[netfabric.GrantBytes:], grants[1])
	if err := m.send(2 * netfabric.GrantBytes); err != nil {
		return err
	}
	for {
		n, err := m.cq.Wait(context.Background(), m.got[:])
		if err != nil {
			return err
		}
		for i := range m.got[:n] {
			c := &m.got[i]
			if c.Err != nil {
				return c.Err
			}
			if c.Op != fabric.OpRecv {
				continue
			}
			if err := unpacker.Imm(c.Imm); err != nil {
				return err
			}
			if err := unpacker.Expect(moveTag, pieces); err != nil {
				return err
			}
			if err := m.post(); err != nil {
				return err
			}
			if err := m.send(1); err != nil {
				return err
			}
		}
	}
}

// moveCase is the near side of one contender.
type moveCase struct {
	b        *Bench
	provider string
	shape    shape
	method   mover.Method

	undo    bench.Undo
	control *partner.Conn
	domain  partner.Domain
	side    *moveSide
	mover   *mover.Mover
	plan    *mover.Plan
	slot    fabric.Remote
	acks    int
}

func (c *moveCase) open(ctx context.Context) (err error) {
	if c.plan != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, netfabric.OpenMax)
	defer cancel()
	if c.control, err = partner.Dial(ctx, c.b.Peer.Control); err != nil {
		return err
	}
	c.undo.Later(c.control.Close)
	if c.domain, err = c.b.Open(c.provider); err != nil {
		return err
	}
	c.undo.Later(c.domain.Domain.Close)
	if c.side, err = openMove(c.domain.Domain, nil, c.shape); err != nil {
		return err
	}
	c.undo.Later(c.side.undo.Close)
	if err = c.connect(ctx); err != nil {
		return err
	}
	pool, err := mem.NewPool(c.side.arena, c.shape.bytes(), 1)
	if err != nil {
		return err
	}
	c.mover, err = mover.New(mover.Options{
		Domain: c.domain.Domain, Endpoint: c.side.ep, SendDepth: moveDepth - 1,
		Staging: mover.FromPool(pool),
	})
	if err != nil {
		return err
	}
	return c.makePlan(ctx)
}

// connect has the other process dial.
func (c *moveCase) connect(ctx context.Context) error {
	ln, err := c.domain.Domain.Connector().Listen(c.domain.Listen)
	if err != nil {
		return err
	}
	defer ln.Close()
	asked := make(chan error, 1)
	go func() {
		a := farArgs{c.provider, ln.Addr().String(), c.shape}
		asked <- c.control.Ask(doFar, a, &struct{}{})
	}()
	c.side.ep, err = ln.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
		return c.side.config(), nil
	})
	if err == nil {
		c.undo.Later(c.side.ep.Close)
	}
	return errors.Join(err, <-asked)
}

// makePlan waits for the grants.
func (c *moveCase) makePlan(ctx context.Context) error {
	if err := c.side.post(); err != nil {
		return err
	}
	for c.acks == 0 {
		n, err := c.side.cq.Wait(ctx, c.side.got[:])
		if err != nil {
			return err
		}
		for i := range c.side.got[:n] {
			c.other(&c.side.got[i])
		}
	}
	note := c.side.note[movePage/2:]
	place, slot := netfabric.GetRemote(note), netfabric.GetRemote(note[netfabric.GrantBytes:])
	c.slot = slot
	var pieces []fabric.Sge
	var segments []fabric.Remote
	c.shape.each(func(from, to int) {
		pieces = append(pieces, fabric.Sge{Reg: c.side.reg, Buf: c.side.data[from:to:to]})
		segments = append(segments, place.Slice(uint64(from), uint64(to-from)))
	})
	var err error
	c.plan, err = c.mover.NewPlan(mover.Put, pieces, segments)
	return err
}

// other gets what is no completion of the mover's.
func (c *moveCase) other(got *fabric.Completion) {
	if got.Op == fabric.OpRecv && got.Err == nil {
		c.acks++
	}
}

// once is one move, until the far side has said that the data is there.
func (c *moveCase) once(ctx context.Context) error {
	c.acks = 0
	if err := c.side.post(); err != nil {
		return err
	}
	err := c.mover.Start(c.plan, mover.Run{
		Method: c.method, Slot: c.slot,
		Notice: mover.Notice{How: mover.Immediate, Tag: moveTag},
	})
	if err == nil {
		err = c.mover.Drive(ctx, c.plan, c.side.cq, c.other)
	}
	for err == nil && c.acks == 0 {
		var n int
		n, err = c.side.cq.Wait(ctx, c.side.got[:])
		for i := range c.side.got[:n] {
			if err == nil {
				err = c.side.got[i].Err
			}
			c.other(&c.side.got[i])
		}
	}
	return err
}

// measure moves one after the other.
func (c *moveCase) measure(ctx context.Context, d time.Duration) (r bench.Result, err error) {
	if err := c.open(ctx); err != nil {
		return r, err
	}
	for begin := time.Now(); r.Took < d; r.Took = time.Since(begin) {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if err := c.once(context.Background()); err != nil {
			return r, err
		}
		r.Add(1, c.shape.bytes())
	}
	if c.method == mover.Gather && c.shape.Pieces > 1 {
		st := c.mover.Stats()
		r.Extras = []bench.Extra{
			{Metric: bench.Requests, Value: float64(st.Requests) / float64(st.Moves)},
			{Metric: bench.Doorbells, Value: float64(st.Chains) / float64(st.Moves)},
		}
	}
	return r, nil
}

// pieces is how many pieces memory is in, pieceBytes how long each of them is.
const (
	pieces     = 16
	pieceBytes = 64 * bench.KiB
	contigName = "contig-16x64k"
	gatherName = "gather-16x64k"
	packName   = "pack-16x64k"
)

// noncontiguous holds gathering and packing against contiguous memory of the same length.
func (b *Bench) noncontiguous() bench.Case {
	c := newCase(contigName,
		"16 pieces of 64 KiB to as many at the peer: contiguous, gathered, packed",
		pieces*pieceBytes, 1, bench.Bandwidth)
	c.First = true
	for _, p := range b.Providers {
		whole := p + ", contiguous"
		for _, way := range []struct {
			name, provider string
			shape          shape
			method         mover.Method
		}{
			{contigName, whole, shape{1, pieces * pieceBytes}, mover.Gather},
			{gatherName, p, shape{pieces, pieceBytes}, mover.Gather},
			{packName, p, shape{pieces, pieceBytes}, mover.Pack},
		} {
			m := &moveCase{b: b, provider: p, shape: way.shape, method: way.method}
			c.Add(b.Costs(bench.Contender{Case: way.name, Provider: way.provider, Ceiling: whole,
				Depth: 1, Optional: p == Verbs, Protocol: way.method.String(), Measure: m.measure,
				Close: m.undo.Close}, p))
		}
	}
	return c
}
