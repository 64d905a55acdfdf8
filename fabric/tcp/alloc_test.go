package tcp

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// TestSteadyStateDoesNotAllocate counts a round trip of messages, a grant, a 1 MiB Write, a Read
// and the revocation, at both ends together.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newBenchEnd(t), newBenchEnd(t)
	l, err := b.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	ctx := t.Context()
	done := make(chan error, 1)
	go func() {
		var err error
		b.ep, err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return b.config(), nil
		})
		done <- err
	}()
	a.ep, err = a.dom.Connector().Dial(ctx, l.Addr().String(), a.config())
	fatal(t, err)
	fatal(t, <-done)
	fatal(t, a.ep.PostRecv(a.recvs))
	fatal(t, b.ep.PostRecv(b.recvs))
	bulk := []fabric.WR{
		{Op: fabric.OpWrite, Flags: fabric.FlagSignaled},
		{Op: fabric.OpRead, Flags: fabric.FlagSignaled | fabric.FlagFence},
	}
	for i := range bulk {
		bulk[i].Local = []fabric.Sge{{Reg: a.reg, Buf: a.reg.Bytes()[:bulkSize]}}
	}
	round := func() { exchange(t, ctx, a, b, bulk) }
	for range 20 {
		round()
	}
	if n := alloctest.PerRun(0, 100, round); n > 0.5 {
		t.Fatalf("%v allocations per round", n)
	}
}

func exchange(t *testing.T, ctx context.Context, a, b *benchEnd, bulk []fabric.WR) {
	fatal(t, a.ep.Post(a.wrs))
	fatal(t, b.await(ctx))
	fatal(t, b.ep.Post(b.wrs))
	fatal(t, a.await(ctx))
	rem, err := b.reg.Grant(b.ep, 0, bulkSize, fabric.RemoteRead|fabric.RemoteWrite)
	fatal(t, err)
	for i := range bulk {
		bulk[i].Remote = rem
	}
	fatal(t, a.ep.Post(bulk))
	for left := len(bulk); left > 0; {
		n, err := a.cq.Wait(ctx, a.dst)
		fatal(t, err)
		for _, c := range a.dst[:n] {
			fatal(t, c.Err)
		}
		left -= n
	}
	b.reg.Revoke(rem)
}
