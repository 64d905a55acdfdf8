package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// pair is two connected ends with a queue each.
type pair struct {
	net  *Net
	dom  [2]fabric.Domain
	cq   [2]fabric.CQ
	ep   [2]fabric.Endpoint
	mem  [2][]byte
	regs [2]fabric.Region
}

func newPair(t *testing.T, opts Options) *pair {
	t.Helper()
	p := &pair{net: New(opts)}
	var err error
	for i := range 2 {
		p.dom[i] = p.net.Open()
		if p.cq[i], err = p.dom[i].NewCQ(fabric.CQOptions{Depth: 256}); err != nil {
			t.Fatal(err)
		}
		p.mem[i] = make([]byte, 4096)
		if p.regs[i], err = p.dom[i].Register(p.mem[i]); err != nil {
			t.Fatal(err)
		}
	}
	cfg := func(i int) fabric.EndpointConfig {
		return fabric.EndpointConfig{
			SendCQ: p.cq[i], RecvCQ: p.cq[i], SendDepth: 64, RecvDepth: 64,
		}
	}
	l, err := p.dom[1].Connector().Listen("server")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	accepted := make(chan error, 1)
	go func() {
		var err error
		p.ep[1], err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return cfg(1), nil
		})
		accepted <- err
	}()
	if p.ep[0], err = p.dom[0].Connector().Dial(ctx, "server", cfg(0)); err != nil {
		t.Fatal(err)
	}
	if err = <-accepted; err != nil {
		t.Fatal(err)
	}
	return p
}

// story runs a fixed program on a net and writes down everything that could be seen.
func story(t *testing.T, opts Options) []string {
	p := newPair(t, opts)
	remote, err := p.regs[1].Grant(p.ep[1], 0, 4096, fabric.RemoteRead|fabric.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r := fabric.Recv{Context: uint64(i), Buf: make([]byte, 64)}
		if err := p.ep[1].PostRecv([]fabric.Recv{r}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 60 {
		wr := fabric.WR{Context: uint64(i), Flags: fabric.FlagSignaled}
		wr.Local = []fabric.Sge{{Buf: p.mem[0][i*8 : i*8+8]}}
		wr.Op = []fabric.Op{fabric.OpSend, fabric.OpWrite, fabric.OpRead}[i%3]
		if wr.Op != fabric.OpSend {
			wr.Remote = remote.Slice(uint64(i*8), 8)
		}
		_ = p.ep[0].Post([]fabric.WR{wr}) // it may be broken by then
	}
	var seen []string
	dst := make([]fabric.Completion, 3)
	for range 400 {
		for side := range 2 {
			for _, c := range dst[:p.cq[side].Poll(dst)] {
				seen = append(seen, fmt.Sprint(side, c.Op, c.Context, c.Len, c.ErrKind()))
			}
		}
	}
	return seen
}

func TestSameSeedSameStory(t *testing.T) {
	distinct := map[string]bool{}
	for seed := range uint64(20) {
		opts := Options{Seed: seed, MaxDelay: 10, BreakOneIn: 200}
		first, second := story(t, opts), story(t, opts)
		if !slices.Equal(first, second) {
			t.Fatalf("seed %d told two stories:\n%v\n%v", seed, first, second)
		}
		distinct[fmt.Sprint(first)] = true
	}
	if len(distinct) < 10 {
		t.Fatalf("20 seeds told only %d stories", len(distinct))
	}
}

func TestFreeRunningCompletesInPost(t *testing.T) {
	p := newPair(t, Options{})
	if err := p.ep[1].PostRecv([]fabric.Recv{{Context: 7, Buf: make([]byte, 8)}}); err != nil {
		t.Fatal(err)
	}
	err := p.ep[0].Post([]fabric.WR{{Op: fabric.OpSend, Local: []fabric.Sge{{Buf: []byte("hi")}}}})
	if err != nil {
		t.Fatal(err)
	}
	var c [1]fabric.Completion
	if p.cq[1].Poll(c[:]) != 1 || c[0].Context != 7 || c[0].Len != 2 {
		t.Fatalf("got %+v", c[0])
	}
}

func TestBreakDisconnectsBothEnds(t *testing.T) {
	p := newPair(t, Options{MaxDelay: 5})
	for i := range 2 {
		if err := p.ep[i].PostRecv([]fabric.Recv{{Buf: make([]byte, 8)}}); err != nil {
			t.Fatal(err)
		}
	}
	p.net.Break(p.ep[0])
	for i := range 2 {
		var c [4]fabric.Completion
		if n := p.cq[i].Poll(c[:]); n != 1 || c[0].ErrKind() != errs.Disconnected {
			t.Fatalf("end %d: %d completions, %+v", i, n, c[0])
		}
		if err := p.ep[i].Post(nil); errs.KindOf(err) != errs.Disconnected {
			t.Fatalf("end %d: %v", i, err)
		}
	}
}

func TestBreakAfterLeavesTheRestUndone(t *testing.T) {
	p := newPair(t, Options{})
	remote, err := p.regs[1].Grant(p.ep[1], 0, 8, fabric.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	p.net.BreakAfter(p.ep[1], 3) // effect, completion, effect
	var wrs []fabric.WR
	for i := range 4 {
		wrs = append(wrs, fabric.WR{
			Op: fabric.OpWrite, Context: uint64(i), Flags: fabric.FlagSignaled,
			Local: []fabric.Sge{{Buf: []byte{byte(i + 1)}}}, Remote: remote.Slice(uint64(i), 1),
		})
	}
	if err := p.ep[0].Post(wrs); err != nil {
		t.Fatal(err)
	}
	if want := []byte{1, 2, 0, 0}; !slices.Equal(p.mem[1][:4], want) {
		t.Fatalf("memory %v, want %v", p.mem[1][:4], want)
	}
	var c [8]fabric.Completion
	if n := p.cq[0].Poll(c[:]); n != 4 {
		t.Fatalf("%d completions", n)
	}
	gone := errs.Disconnected
	for i, want := range []errs.Kind{errs.OK, gone, gone, gone} {
		if c[i].ErrKind() != want {
			t.Errorf("request %d: %v, want %v", i, c[i].Err, want)
		}
	}
}
