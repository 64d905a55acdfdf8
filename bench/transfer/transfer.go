// Package transfer is bench transfer: what package exio reaches between two processes, by driver
// and by size of a message, with the processor time of both; and what memory in pieces costs.
//
// It starts no process and opens no provider: package main does. This process dials and writes, as
// a client of sluice transfer does; the other one listens and reads. Read transfer.go first, then
// far.go (the other process).
package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/exio"
)

// The drivers that have rows of their own.
const (
	Shm    = "shm"
	Verbs  = "verbs"
	Socket = "socket" // plain sockets, without a provider
)

// Bench is what is measured.
type Bench struct {
	Providers []string       // of those that Open knows
	Open      partner.Opener // opens a provider for this side
	Peer      partner.Info
	Quick     bool // only the cases that are First

	meter partner.Meter
}

// depth is how many messages are under way at once, as many as a transfer has by default.
const depth = 4

// openMax is how long the two sides may take to find each other.
const openMax = 10 * time.Second

// shape is memory in pieces of equal length that begin stride apart.
type shape struct {
	Pieces int `json:"pieces"`
	Bytes  int `json:"bytes"`
	Stride int `json:"stride"`
}

// cut makes the pieces of new memory.
func (s shape) cut(memory *exio.Memory) (parent []byte, pieces [][]byte, err error) {
	parent, err = memory.Alloc(s.Pieces * s.Stride)
	for i := range s.Pieces {
		if err == nil {
			pieces = append(pieces, parent[i*s.Stride:i*s.Stride+s.Bytes])
		}
	}
	return parent, pieces, err
}

// memoryMax bounds the memory of one side of a contender.
const memoryMax = 512 << 20

// side writes messages of one shape by one driver.
type side struct {
	b      *Bench
	driver string
	shape  shape

	undo bench.Undo
	h    exio.Handle
	ops  []exio.Op
	done chan exio.Event
}

func (s *side) open(ctx context.Context) error {
	if s.h != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openMax)
	defer cancel()
	control, err := partner.Dial(ctx, s.b.Peer.Control)
	if err != nil {
		return err
	}
	s.undo.Later(control.Close)
	var addr string
	if err := control.Ask(doRead, farArgs{s.driver, s.shape}, &addr); err != nil {
		return err
	}
	memory, err := s.connect(ctx, addr)
	if err != nil {
		return err
	}
	s.undo.Later(s.h.Close)
	s.done = make(chan exio.Event, depth)
	for i := range depth {
		parent, pieces, err := s.shape.cut(memory)
		if err != nil {
			return err
		}
		s.ops = append(s.ops, exio.Op{Tag: uint64(i), Pieces: pieces, Parent: parent,
			Done: func(ev exio.Event) { s.done <- ev }})
	}
	return nil
}

// connect dials the other process.
func (s *side) connect(ctx context.Context, addr string) (*exio.Memory, error) {
	if s.driver == Socket {
		memory, err := exio.NewMemory(nil, memoryMax)
		if err != nil {
			return nil, err
		}
		s.undo.Later(memory.Close)
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		s.h, err = exio.NewSocket(nc, exio.Options{})
		return memory, err
	}
	d, err := s.b.Open(s.driver)
	if err != nil {
		return nil, err
	}
	s.undo.Later(d.Domain.Close)
	memory, err := exio.NewMemory(d.Source, memoryMax, d.Domain)
	if err != nil {
		return nil, err
	}
	s.undo.Later(memory.Close)
	link := exio.Link{Domain: d.Domain, Memory: memory, Source: d.Source}
	s.h, err = link.Dial(ctx, addr, [32]byte{})
	return memory, err
}

// measure keeps depth messages under way.
func (s *side) measure(ctx context.Context, d time.Duration) (r bench.Result, err error) {
	if err := s.open(ctx); err != nil {
		return r, err
	}
	open := 0
	begin := time.Now()
	for i := range s.ops {
		if err := s.h.Write(&s.ops[i]); err != nil {
			return r, err
		}
		open++
	}
	for open > 0 {
		ev := <-s.done
		open--
		if ev.Err != nil {
			return r, ev.Err
		}
		r.Add(1, ev.Len)
		if r.Took = time.Since(begin); r.Took < d && ctx.Err() == nil {
			if err := s.h.Write(ev.Op); err != nil {
				return r, err
			}
			open++
		}
	}
	return r, ctx.Err()
}

// contender measures a driver with a shape.
func (b *Bench) contender(name, provider, ceiling, driver string, s shape) bench.Contender {
	near := &side{b: b, driver: driver, shape: s}
	b.meter.Control = b.Peer.Control
	return bench.Contender{Case: name, Provider: provider, Ceiling: ceiling, Depth: depth,
		Optional: driver == Verbs, Measure: b.meter.Costs(near.measure), Close: near.undo.Close}
}

// The shapes of a message of 1 MiB: in one piece, in 16 with gaps as long as they are, and, as the
// paper had it, 1 MiB apart.
const (
	pieces     = 16
	pieceBytes = 64 * bench.KiB
	wholeName  = "whole-1m"
	piecesName = "16x64k"
	farName    = "16x64k-far"
)

func (b *Bench) noncontiguous() bench.Case {
	c := bench.Case{Bench: "transfer", Name: wholeName, Size: pieces * pieceBytes, Depth: depth,
		Metric: bench.Bandwidth, First: true,
		About: "messages of 1 MiB: contiguous, in 16 pieces, in 16 pieces 1 MiB apart"}
	for _, p := range append(b.Providers, Socket) {
		whole := p + ", contiguous"
		c.Add(
			b.contender(wholeName, whole, whole, p, shape{1, pieces * pieceBytes, pieces * pieceBytes}),
			b.contender(piecesName, p, whole, p, shape{pieces, pieceBytes, 2 * pieceBytes}),
			b.contender(farName, p, whole, p, shape{pieces, pieceBytes, bench.MiB}))
	}
	return c
}

// Cases are all that can be measured.
func (b *Bench) Cases() []bench.Case {
	cases := []bench.Case{b.noncontiguous()}
	for _, size := range []int{256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20} {
		c := bench.Case{Bench: "transfer", Name: sizeName(size), Size: int64(size), Depth: depth,
			Metric: bench.Bandwidth, Ceiling: Socket,
			About: "messages of this size by every driver, against plain sockets"}
		for _, p := range append(b.Providers, Socket) {
			c.Add(b.contender("", p, "", p, shape{1, size, size}))
		}
		cases = append(cases, c)
	}
	all := bench.Possible(cases)
	if b.Quick {
		return all[:1]
	}
	return all
}

func sizeName(size int) string {
	switch {
	case size >= 1<<20:
		return fmt.Sprintf("write-%dm", size>>20)
	case size >= 1<<10:
		return fmt.Sprintf("write-%dk", size>>10)
	}
	return fmt.Sprintf("write-%d", size)
}

// Close ends what the cases needed.
func (b *Bench) Close() error { return errors.Join(b.meter.Close()) }

// Budget is the time for all cases.
func Budget(quick, figures bool) bench.Budget {
	switch {
	case quick:
		return bench.Budget{Rounds: 3, Round: 200 * time.Millisecond, Total: 10 * time.Second}
	case figures:
		return bench.Budget{Rounds: 9, Round: 500 * time.Millisecond, Total: 2 * time.Minute}
	}
	return bench.Budget{Rounds: 5, Round: 500 * time.Millisecond, Total: 2 * time.Minute}
}

// FigureCases are the names of the cases that figures are made of.
func FigureCases() []string { return []string{wholeName} }

// Promises are what is asked of transfers.
func Promises() []bench.Promise {
	return []bench.Promise{
		{Name: "shm: 16 pieces of 64 KiB against contiguous", Bound: bench.Least, Limit: 0.95,
			Unit: bench.Times, Of: bench.Ratio(piecesName, Shm)},
		{Name: "shm: 16 pieces of 64 KiB, 1 MiB apart, against contiguous", Bound: bench.Told,
			Unit: bench.Times, Of: bench.Ratio(farName, Shm)},
	}
}
