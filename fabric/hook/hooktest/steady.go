package hooktest

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

// Steady fails the test if an exchange between two ends allocates once it has warmed up: a message
// each way, a grant, a Write and a Read of 64 KiB, and the revocation. The ends must be on a
// provider that does not allocate either.
func Steady(t testing.TB, a, b *End) {
	t.Helper()
	if raceEnabled {
		return // the race detector allocates
	}
	s := newSteady(a, b)
	for range 50 {
		s.round(t)
	}
	if n := testing.AllocsPerRun(100, func() { s.round(t) }); n > 0.5 {
		t.Fatalf("%v allocations per round", n)
	}
}

// steady is everything that a round needs, made in advance.
type steady struct {
	ends  [2]*End
	sends [2][]fabric.WR
	recvs [2][]fabric.Recv
	bulk  []fabric.WR
	dst   []fabric.Completion
}

const bulkBytes = 64 << 10

func newSteady(a, b *End) *steady {
	s := &steady{ends: [2]*End{a, b}, dst: make([]fabric.Completion, 8)}
	for i, e := range s.ends {
		s.sends[i] = []fabric.WR{e.Send(1, 64)}
		s.recvs[i] = []fabric.Recv{{Reg: e.Reg, Buf: e.Mem[MemBytes/2 : MemBytes/2+64]}}
	}
	s.bulk = []fabric.WR{
		a.Move(fabric.OpWrite, 2, fabric.Remote{Len: bulkBytes}),
		a.Move(fabric.OpRead, 3, fabric.Remote{Len: bulkBytes}),
	}
	s.bulk[1].Flags |= fabric.FlagFence
	return s
}

func (s *steady) round(t testing.TB) {
	for i, e := range s.ends {
		Check(t, s.ends[1-i].EP.PostRecv(s.recvs[1-i]))
		Check(t, e.EP.Post(s.sends[i]))
	}
	for _, e := range s.ends {
		s.await(t, e, 2)
	}
	rem, err := s.ends[1].Reg.Grant(s.ends[1].EP, 0, bulkBytes, fabric.RemoteRead|fabric.RemoteWrite)
	Check(t, err)
	for i := range s.bulk {
		s.bulk[i].Remote = rem
	}
	Check(t, s.ends[0].EP.Post(s.bulk))
	s.await(t, s.ends[0], 2)
	s.ends[1].Reg.Revoke(rem)
}

func (s *steady) await(t testing.TB, e *End, count int) {
	for count > 0 {
		n, err := e.CQ.Wait(context.Background(), s.dst)
		Check(t, err)
		for _, c := range s.dst[:n] {
			Check(t, c.Err)
		}
		count -= n
	}
}
