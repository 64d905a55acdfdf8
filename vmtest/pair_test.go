package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// failsWithin is how long a tool may take to see that its peer is gone: 3 retries of half a second
// each, which is what the connection manager sets, on a machine that may be very busy.
const failsWithin = 40 * time.Second

// pair is two guests with RDMA devices on one wire.
type pair struct {
	wire *Wire
	a, b *Guest
}

func startPair(t *testing.T) *pair {
	t.Helper()
	lab := Need(t)
	p := &pair{wire: lab.NewWire(WireOptions{})}
	var all sync.WaitGroup
	for name, g := range map[string]**Guest{"left": &p.a, "right": &p.b} {
		all.Go(func() {
			started, err := lab.Start(t.Context(), GuestConfig{Name: name, Wires: []*Wire{p.wire}})
			if err == nil {
				*g = started
				_, err = started.SoftRoCE(t.Context(), p.wire)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Cleanup(func() {
		for _, g := range []*Guest{p.a, p.b} {
			if g == nil {
				continue
			}
			g.Kill()
			if t.Failed() {
				t.Logf("console of %s:\n%s", g.Name(), g.Console())
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return p
}

// TestTwoGuests does with one boot of two guests all that needs both. Its last part kills one.
func TestTwoGuests(t *testing.T) {
	begin := time.Now()
	p := startPair(t)
	t.Logf("up after %.1f s", time.Since(begin).Seconds())
	t.Run("ping", p.ping)
	t.Run("RDMA", p.rdma)
	t.Run("cut", p.cut)
	t.Run("mute", p.mute)
	t.Run("kill", p.kill)
}

func (p *pair) ping(t *testing.T) {
	mustRun(t, p.a, fmt.Sprintf("busybox ping -c 2 -w 20 %v", p.b.Addr(p.wire)))
	mustRun(t, p.b, fmt.Sprintf("busybox ping -c 2 -w 20 -s 4000 %v", p.a.Addr(p.wire)))
}

// writeTool connects with the connection manager, where the number of retries can be chosen.
// Soft-RoCE takes perftest's 7 for "forever".
const writeTool = "ib_write_bw -d rxe0 -F -R --retry_count=3 -s 65536"

// write begins to write from a to b, and returns at once; a's result follows when it has ended. The
// server's end is not waited for: it learns nothing when a connection breaks.
func (p *pair) write(t *testing.T, options string) chan outcome {
	t.Helper()
	mustRun(t, p.b, fmt.Sprintf(`
		pkill ib_write_bw
		(setsid timeout 60 %s %s >/tmp/server 2>&1 &)
		for i in $(seq 100); do rdma res show cm_id | grep -q LISTEN && exit 0; sleep 0.1; done
		cat /tmp/server >&2; exit 1`, writeTool, options))
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		o.Result, o.err = p.a.Run(context.Background(), fmt.Sprintf(
			"exec %s %s %v", writeTool, options, p.b.Addr(p.wire)))
		ended <- o
	}()
	return ended
}

type outcome struct {
	Result
	err error
}

func (p *pair) rdma(t *testing.T) {
	o := <-p.write(t, "-n 200")
	if err := errors.Join(o.err, o.Err()); err != nil || !strings.Contains(o.Stdout, "65536") {
		t.Fatalf("%v\n%s", err, o.Stdout)
	}
	lines := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	t.Log(lines[max(0, len(lines)-2)])
}

// breaks has a transfer run, does something to it, and wants it to fail within a bound.
func (p *pair) breaks(t *testing.T, how func() error) {
	t.Helper()
	ended := p.write(t, "-D 50")
	p.waitFlowing(t)
	begin := time.Now()
	if err := how(); err != nil {
		t.Fatal(err)
	}
	select {
	case o := <-ended:
		took := time.Since(begin)
		if o.err != nil || o.Code == 0 || o.Code > 128 {
			t.Fatalf("code %d after %v: %v\n%s%s", o.Code, took, o.err, o.Stdout, o.Stderr)
		}
		t.Logf("failed after %.1f s: %.200s", took.Seconds(), strings.TrimSpace(o.Stderr))
	case <-time.After(failsWithin):
		t.Fatalf("still running after %v", failsWithin)
	}
}

// waitFlowing waits until the transfer has moved packets, so that it is broken in its middle.
func (p *pair) waitFlowing(t *testing.T) {
	t.Helper()
	mustRun(t, p.a, `
		sent() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }
		from=$(sent)
		for i in $(seq 200); do [ $(sent) -gt $((from + 500)) ] && exit 0; sleep 0.1; done
		exit 1`)
}

func (p *pair) cut(t *testing.T) {
	p.breaks(t, func() error { return p.wire.Cut(t.Context()) })
	for _, g := range []*Guest{p.a, p.b} {
		if got := mustRun(t, g, "cat /sys/class/net/eth0/carrier"); got != "0\n" {
			t.Errorf("%s sees carrier %q", g.Name(), got)
		}
	}
	res, err := p.a.Run(t.Context(), fmt.Sprintf("busybox ping -c 1 -w 2 %v", p.b.Addr(p.wire)))
	if err != nil || res.Code == 0 {
		t.Errorf("ping over a cut wire: %+v, %v", res, err)
	}
	if err := p.wire.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.ping(t)
	p.rdma(t)
}

// mute loses everything in the middle; no carrier goes.
func (p *pair) mute(t *testing.T) {
	p.breaks(t, func() error {
		p.wire.Mute(true)
		return nil
	})
	if got := mustRun(t, p.a, "cat /sys/class/net/eth0/carrier"); got != "1\n" {
		t.Errorf("carrier %q", got)
	}
	p.wire.Mute(false)
	p.ping(t)
}

func (p *pair) kill(t *testing.T) {
	p.breaks(t, func() error {
		p.b.Kill()
		return nil
	})
	// The survivor is well, ends in order, and what it shares is complete.
	file := filepath.Join(p.a.Share(), "file")
	mustRun(t, p.a, "echo data > "+SharePath+"/file")
	if got, err := os.ReadFile(file); err != nil || string(got) != "data\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := p.a.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := p.a.Run(t.Context(), "true"); !errors.Is(err, errs.Disconnected) {
		t.Errorf("it answers: %v", err)
	}
}
