//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"runtime"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

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
	for last, until := int64(0), time.Now().Add(time.Minute); last != runtime.NumCgoCall() &&
		time.Now().Before(until); { // the connection manager's events come to an end
		last = runtime.NumCgoCall()
		time.Sleep(500 * time.Millisecond)
	}
	numbered := r.a.ep.(*endpoint).sendNext.Load()
	calls("16 requests of 16 pieces", 1, func() { fatal(t, r.a.ep.Post(wrs)) })
	if n := r.a.ep.(*endpoint).sendNext.Load() - numbered; n != chain {
		t.Errorf("%d requests of 16 pieces became %d requests of the device", chain, n)
	}
	calls("15 receives", 1, func() { fatal(t, r.a.ep.PostRecv(recvs[1:])) })
	time.Sleep(2 * time.Second) // let them all complete
	got := 0
	calls("16 completions", 1, func() { got = r.a.cq.Poll(r.a.dst) })
	if got < chain { // the gate's own write is among them, silently
		t.Fatalf("polled %d of %d", got, chain)
	}
	for _, c := range r.a.dst[:got] {
		wants(t, c, errs.OK)
	}
}
