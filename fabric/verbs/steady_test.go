//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// steady is one round of everything, with what it posts made in advance.
type steady struct {
	*rig
	send, back []fabric.WR
	recvA      []fabric.Recv
	recvB      []fabric.Recv
	bulk       []fabric.WR
}

func newSteady(r *rig) *steady {
	s := &steady{rig: r}
	one := func(side *side, off int) []fabric.WR {
		return []fabric.WR{{Op: fabric.OpSend, Flags: fabric.FlagInline,
			Local: []fabric.Sge{{Reg: side.reg, Buf: side.mem[off : off+8]}}}}
	}
	s.send, s.back = one(r.a, 0), one(r.b, 0)
	s.recvA = []fabric.Recv{{Reg: r.a.reg, Buf: r.a.mem[64:72]}}
	s.recvB = []fabric.Recv{{Reg: r.b.reg, Buf: r.b.mem[64:72]}}
	fatal(r.t, r.a.ep.PostRecv(s.recvA))
	fatal(r.t, r.b.ep.PostRecv(s.recvB))
	write := fabric.WR{Op: fabric.OpWrite}
	for i := range 16 {
		write.Local = append(write.Local,
			fabric.Sge{Reg: r.a.reg, Buf: r.a.mem[4096+i*8192 : 4096+i*8192+4096]})
	}
	read := fabric.WR{Op: fabric.OpRead, Flags: fabric.FlagSignaled | fabric.FlagFence}
	read.Local = []fabric.Sge{{Reg: r.a.reg, Buf: r.a.mem[256<<10 : 320<<10]}}
	s.bulk = []fabric.WR{write, read}
	return s
}

// one waits for one good completion.
func (s *steady) one(side *side) {
	n, err := side.cq.Wait(context.Background(), side.dst[:1])
	if err != nil || n != 1 || side.dst[0].Err != nil {
		s.t.Fatalf("%d completions, %+v, %v", n, side.dst[0], err)
	}
}

func (s *steady) round() {
	a, b := s.a, s.b
	fatal(s.t, a.ep.Post(s.send))
	s.one(b)
	fatal(s.t, b.ep.PostRecv(s.recvB))
	fatal(s.t, b.ep.Post(s.back))
	s.one(a)
	fatal(s.t, a.ep.PostRecv(s.recvA))
	rem, err := b.reg.Grant(b.ep, 256<<10, 64<<10, fabric.RemoteRead|fabric.RemoteWrite)
	fatal(s.t, err)
	s.bulk[0].Remote, s.bulk[1].Remote = rem, rem
	fatal(s.t, a.ep.Post(s.bulk))
	s.one(a)
	b.reg.Revoke(rem)
}

// TestSteadyStateDoesNotAllocate counts a round trip of messages, a grant, a Write of 16 pieces, a
// Read and the revocation, at both ends together.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, opts := range modes() {
		t.Run(name, func(t *testing.T) {
			s := newSteady(newRig(t, opts))
			for range 100 {
				s.round()
			}
			if n := testing.AllocsPerRun(100, s.round); n > 0.5 {
				t.Fatalf("%v allocations per round", n)
			}
		})
	}
}

// TestCallsIntoC holds that a chain, a batch of receives and a batch of completions each cost one
// call, whatever their length.
func TestCallsIntoC(t *testing.T) {
	r := newRig(t, Options{KeepAlive: time.Minute}) // whose calls would be counted
	const chain = 16
	rem := r.b.grant(0, 16*512, fabric.RemoteWrite)
	var wrs []fabric.WR
	var recvs []fabric.Recv
	for i := range chain {
		wr := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Remote: rem}
		for j := range 16 {
			wr.Local = append(wr.Local, fabric.Sge{Reg: r.a.reg, Buf: r.a.mem[j*1024 : j*1024+512]})
		}
		wr.Context = uint64(i)
		wrs = append(wrs, wr)
		recvs = append(recvs, fabric.Recv{Reg: r.a.reg, Buf: r.a.mem[i*8 : i*8+8]})
	}
	fatal(t, r.a.ep.PostRecv(recvs[:1])) // the first one opens the peer's gate too
	calls := func(what string, want int64, do func()) {
		t.Helper()
		before := runtime.NumCgoCall()
		do()
		if got := runtime.NumCgoCall() - before; got != want {
			t.Errorf("%s: %d calls into C, want %d", what, got, want)
		}
	}
	fatal(t, r.a.ep.Post(wrs)) // makes room for chains of this length
	for i := range uint64(chain) {
		wants(t, r.a.nextSend(i), errs.OK)
	}
	time.Sleep(500 * time.Millisecond) // the connection manager's events come to an end
	calls("16 requests of 16 pieces", 1, func() { fatal(t, r.a.ep.Post(wrs)) })
	calls("15 receives", 1, func() { fatal(t, r.a.ep.PostRecv(recvs[1:])) })
	time.Sleep(500 * time.Millisecond) // let them all complete
	got := 0
	calls("16 completions", 1, func() { got = r.a.cq.Poll(r.a.dst) })
	if got < chain { // the gate's own write is among them, silently
		t.Fatalf("polled %d of %d", got, chain)
	}
	for _, c := range r.a.dst[:got] {
		wants(t, c, errs.OK)
	}
}
