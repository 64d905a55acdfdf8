package fabrictest

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

// SteadyAllocs fails the test if a provider allocates per operation once it is warm: messages there
// and back, a grant, a gathered Write, a Read, a WriteImm and the revocation, at both ends
// together. The race detector allocates by itself, so it counts nothing there.
func SteadyAllocs(t *testing.T, cfg Config) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := newSteady(t, cfg)
	for range 50 {
		s.round()
	}
	if n := testing.AllocsPerRun(200, s.round); n > 0.5 {
		t.Fatalf("%v allocations per round of %d requests", n, len(s.there)+len(s.bulk)+1)
	}
}

// steady is a rig with everything that it posts made in advance.
type steady struct {
	*rig
	there, back  []fabric.WR
	bulk         []fabric.WR
	recvA, recvB []fabric.Recv
	dst          []fabric.Completion
}

func newSteady(t *testing.T, cfg Config) *steady {
	s := &steady{rig: newRig(t, cfg), dst: make([]fabric.Completion, depth)}
	const size, bulkBytes = 64, 128 << 10
	caps := s.a.dom.Caps()
	send := func(from *side) []fabric.WR {
		local := []fabric.Sge{{Reg: from.reg, Buf: from.piece(0, min(size, caps.MaxInline))}}
		flags := fabric.FlagSignaled | fabric.FlagInline
		return []fabric.WR{{Op: fabric.OpSend, Flags: flags, Local: local}}
	}
	s.there, s.back = send(s.a), send(s.b)
	s.recvA = []fabric.Recv{{Reg: s.a.reg, Buf: s.a.piece(4096, size)}}
	s.recvB = []fabric.Recv{
		{Reg: s.b.reg, Buf: s.b.piece(4096, size)}, {Reg: s.b.reg, Buf: s.b.piece(8192, size)},
	}
	for i, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpWriteImm} {
		wr := fabric.WR{Op: op, Flags: fabric.FlagSignaled | fabric.FlagFence, Context: uint64(i)}
		pieces := min(4, caps.MaxSge)
		for p := range pieces {
			buf := s.a.piece(memBytes/2+p*bulkBytes/2, bulkBytes/pieces)
			wr.Local = append(wr.Local, fabric.Sge{Reg: s.a.reg, Buf: buf})
		}
		s.bulk = append(s.bulk, wr)
	}
	check(t, s.a.ep.PostRecv(s.recvA))
	check(t, s.b.ep.PostRecv(s.recvB))
	return s
}

// take waits for count completions, all successful. Without a context, which providers do best.
func (s *steady) take(from *side, count int) {
	for count > 0 {
		n, err := from.cq.Wait(context.Background(), s.dst)
		check(s.t, err)
		for i := range s.dst[:n] {
			check(s.t, s.dst[i].Err)
		}
		count -= n
	}
}

func (s *steady) round() {
	check(s.t, s.a.ep.Post(s.there))
	s.take(s.a, 1)
	s.take(s.b, 1)
	check(s.t, s.b.ep.Post(s.back))
	s.take(s.b, 1)
	s.take(s.a, 1)
	const both = fabric.RemoteRead | fabric.RemoteWrite
	length := s.bulk[0].Len()
	rem, err := s.b.reg.Grant(s.b.ep, memBytes/2, length, both)
	check(s.t, err)
	for i := range s.bulk {
		s.bulk[i].Remote = rem
	}
	check(s.t, s.a.ep.Post(s.bulk))
	s.take(s.a, len(s.bulk))
	s.take(s.b, 1)
	s.b.reg.Revoke(rem)
	check(s.t, s.a.ep.PostRecv(s.recvA))
	check(s.t, s.b.ep.PostRecv(s.recvB))
}
