package shm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// tally is what an end has posted and not seen completed.
type tally struct {
	requests, recvs int
	credits         int // messages that the peer has receives for
	ended           bool
}

// traffic posts a bit of everything, with much of it under way, until the connection ends, and then
// waits for the rest. It is an error if something does not complete, or completes in a way that
// it must not.
func (n *end) traffic(ctx context.Context, rng *rand.Rand) error {
	y := &tally{recvs: endDepth, credits: endDepth / 4}
	dst := make([]fabric.Completion, 16)
	for !y.ended || y.requests > 0 || y.recvs > 0 {
		for !y.ended && y.requests < endDepth/2 {
			if err := n.ep.Post([]fabric.WR{n.random(y, rng)}); err != nil {
				y.ended = true
				if errs.KindOf(err) != errs.Disconnected {
					return err
				}
				break
			}
			y.requests++
		}
		got, err := n.cq.Wait(ctx, dst)
		if err != nil {
			return fmt.Errorf("%+v left: %w", *y, err)
		}
		for _, c := range dst[:got] {
			if err := n.count(y, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *end) count(y *tally, c fabric.Completion) error {
	if c.Err != nil {
		y.ended = true
		if c.ErrKind() != errs.Disconnected {
			return fmt.Errorf("ended with %+v", c)
		}
	}
	if c.Op != fabric.OpRecv {
		y.requests--
		return nil
	}
	y.recvs--
	y.credits++
	if !y.ended && n.recv(int(c.Context)) == nil {
		y.recvs++
	}
	return nil
}

func (n *end) random(y *tally, rng *rand.Rand) fabric.WR {
	size := 1 << rng.IntN(20)
	wr := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled}
	switch rng.IntN(4) {
	case 0:
		wr.Op = fabric.OpRead
	case 1:
		if y.credits > 0 {
			y.credits--
			wr.Op = fabric.OpWriteImm
		}
	case 2:
		if y.credits > 0 {
			y.credits--
			wr.Op = fabric.OpSend
			size = min(size, msgBytes)
		}
	}
	wr.Local = []fabric.Sge{{Reg: n.reg, Buf: n.mem[1<<20:][:size]}}
	if wr.Op != fabric.OpSend {
		wr.Remote = n.theirs.Slice(uint64(rng.IntN(1<<20)), uint64(size))
	}
	return wr
}

// meet connects n with a peer in another process that makes traffic: a client or a server.
func meet(t *testing.T, n *end, server bool, seed uint64) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addr := addresses(t)()
	if server {
		c := start(t, "server traffic", addr, seed, 0, n.lends())
		select {
		case <-c.ready:
		case <-ctx.Done():
			t.Fatal("the child does not listen")
		}
		fatal(t, n.dial(ctx, addr))
		fatal(t, n.swap(ctx))
		return c
	}
	l, err := n.dom.Connector().Listen(addr)
	fatal(t, err)
	defer l.Close()
	c := start(t, "client traffic", addr, seed, 0, n.lends())
	fatal(t, n.accept(ctx, l))
	fatal(t, n.swap(ctx))
	return c
}

// shared counts what could be left behind: descriptors and mappings of memory files.
func shared(t *testing.T) (fds, maps int) {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	fatal(t, err)
	for _, f := range dir {
		to, _ := os.Readlink("/proc/self/fd/" + f.Name())
		if strings.Contains(to, "sluice") || strings.HasPrefix(to, "socket:") {
			fds++
		}
	}
	text, err := os.ReadFile("/proc/self/maps")
	fatal(t, err)
	return fds, strings.Count(string(text), "/memfd:sluice")
}

// TestKill kills the peer in the middle of traffic, again and again: everything completes, and
// nothing is left behind.
func TestKill(t *testing.T) {
	for name, opts := range map[string]Options{"arenas": {}, "lent": {Lent: NewLent()}} {
		t.Run(name, func(t *testing.T) { testKill(t, opts) })
	}
}

func testKill(t *testing.T, opts Options) {
	before := goleak.IgnoreCurrent()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	n, err := newEnd(opts, 0)
	fatal(t, err)
	fds, maps := shared(t)
	for round := range 20 {
		if t.Failed() {
			break
		}
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			c := meet(t, n, round%2 == 1, rng.Uint64())
			delay := time.Duration(rng.IntN(20000)) * time.Microsecond
			time.AfterFunc(delay, func() { _ = c.Process.Kill() })
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := n.traffic(ctx, rng); err != nil {
				t.Fatalf("after %v: %v", delay, err)
			}
			begin := time.Now()
			n.reg.Revoke(n.mine)
			fatal(t, n.ep.Close())
			if took := time.Since(begin); took > 30*time.Second {
				t.Fatalf("closing took %v", took)
			}
		})
	}
	if f, m := shared(t); f > fds || m > maps {
		t.Errorf("%d descriptors and %d mappings, before %d and %d", f, m, fds, maps)
	}
	fatal(t, n.close())
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// TestStopped stops the peer in the middle of traffic: nothing waits for it beyond the bound.
func TestStopped(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const stall = 200 * time.Millisecond
	for round := range 8 {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			opts := Options{StallTimeout: stall}
			if round >= 4 {
				opts.Lent = NewLent()
			}
			n, err := newEnd(opts, 0)
			fatal(t, err)
			c := meet(t, n, round%3 != 0, rng.Uint64())
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- n.traffic(ctx, rand.New(rand.NewPCG(seed, uint64(round)))) }()
			time.Sleep(time.Duration(rng.IntN(10000)) * time.Microsecond)
			fatal(t, c.Process.Signal(syscall.SIGSTOP))
			begin := time.Now()
			n.reg.Revoke(n.mine)
			fatal(t, n.ep.Close())
			if took := time.Since(begin); took > 2*stall+30*time.Second {
				t.Fatalf("it took %v", took)
			}
			if err := <-ended; err != nil && !strings.Contains(err.Error(), "closed") {
				t.Fatal(err)
			}
			var dst [4 * endDepth]fabric.Completion
			n.cq.Poll(dst[:]) // what traffic left when it saw the end
			fatal(t, n.close())
		})
	}
}

// TestKillEarly kills peers around their hello.
func TestKillEarly(t *testing.T) {
	n, err := newEnd(Options{HelloTimeout: 2 * time.Second}, 0)
	fatal(t, err)
	defer func() { fatal(t, n.close()) }()
	addr := addresses(t)()
	l, err := n.dom.Connector().Listen(addr)
	fatal(t, err)
	for i := range 6 {
		c := start(t, "client traffic", addr, 1, 0)
		time.AfterFunc(time.Duration(i*15)*time.Millisecond, func() { _ = c.Process.Kill() })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if err := n.accept(ctx, l); err == nil {
			var dst [1]fabric.Completion
			for dst[0].Err == nil {
				if err := n.recv(0); err != nil {
					break
				}
				if _, err := n.cq.Wait(context.Background(), dst[:]); err != nil {
					t.Fatal(err)
				}
			}
			fatal(t, n.ep.Close())
		}
		cancel()
	}
}
