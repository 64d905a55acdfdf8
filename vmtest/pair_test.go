package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// patience bounds waits that end early in all cases but failures; it says nothing about speed.
const patience = 4 * time.Minute

// pair is two guests with RDMA devices on one wire.
type pair struct {
	wire *Wire
	a, b *Guest
}

func startPair(t *testing.T) *pair {
	t.Helper()
	lab := Need(t)
	p := &pair{wire: lab.NewWire(WireOptions{})}
	p.a, p.b = lab.StartCouple(t, GuestConfig{
		Wires: []*Wire{p.wire}, Modules: []string{"brd", "nbd"}, CPUs: 1,
	})
	return p
}

// ping wants packets to go both ways, sooner or later: the first ones after a failure may be lost.
func (p *pair) ping(t *testing.T) {
	t.Helper()
	mustRun(t, p.a, fmt.Sprintf("until busybox ping -c 1 -W 1 %v; do :; done", p.b.Addr(p.wire)))
	mustRun(t, p.b, fmt.Sprintf("until busybox ping -c 1 -W 1 -s 4000 %v; do :; done",
		p.a.Addr(p.wire)))
}

// perftest is a program of that package with options. With -x 1 it does not search the whole table
// of addresses, which takes an emulated machine seconds.
func perftest(name, options string) string {
	return fmt.Sprintf("%s -d rxe0 -x 1 -F %s", name, options)
}

// breakable is a transfer that sees when its peer is gone: 3 retries of 2 s. The number can be
// chosen only with the connection manager (-R); Soft-RoCE takes perftest's own 7 for "forever".
func breakable() string { return perftest("ib_write_bw", "-s 65536 -D 3600 -R --retry_count=3") }

// serve starts a server in b and returns when it listens: for the connection manager, or on a
// socket. The one before is waited for: as long as it exists it may listen too.
func (p *pair) serve(t *testing.T, command string) {
	t.Helper()
	mustRun(t, p.b, fmt.Sprintf(`
		while pkill -9 -x 'ib_write_bw|ib_send_lat'; do sleep 0.1; done
		setsid %s >/tmp/server 2>&1 </dev/null & pid=$!
		until { rdma res show cm_id; ss -Hltnp; } | grep -q "LISTEN .*pid[ =]$pid[ ,]"; do
			kill -0 $pid || { cat /tmp/server >&2; exit 1; }
			sleep 0.1
		done`, command))
}

// serverState tells what b knows of its server, for failures.
func (p *pair) serverState() string {
	res, err := p.b.Run(context.Background(),
		"echo server:; cat /tmp/server; pgrep -a ib_; rdma res show cm_id")
	return fmt.Sprintln(res.Stdout, res.Stderr, err)
}

// client begins a transfer from a to b; its result follows when it has ended. The server's end is
// not waited for: it learns nothing when a connection breaks.
func (p *pair) client(t *testing.T, command string) chan outcome {
	t.Helper()
	p.serve(t, command)
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		o.Result, o.err = p.a.Exec(context.Background(), Command{
			Script: fmt.Sprintf("exec %s %v", command, p.b.Addr(p.wire)), Limit: 2 * patience,
		})
		ended <- o
	}()
	return ended
}

type outcome struct {
	Result
	err error
}

// transfer wants a transfer to succeed, and logs the line of its figures.
func (p *pair) transfer(t *testing.T, command, figures string) {
	t.Helper()
	o := <-p.client(t, command)
	if err := errors.Join(o.err, o.Err()); err != nil {
		t.Fatalf("%v\n%s", err, p.serverState())
	}
	for line := range strings.Lines(o.Stdout) {
		if strings.HasPrefix(strings.TrimSpace(line), figures+" ") {
			t.Log(strings.TrimSpace(line))
			return
		}
	}
	t.Fatalf("no figures: %s", o.Stdout)
}

func (p *pair) writes(t *testing.T) {
	p.transfer(t, perftest("ib_write_bw", "-s 65536 -n 100"), "65536")
}

func (p *pair) latency(t *testing.T) {
	p.transfer(t, perftest("ib_send_lat", "-s 8 -n 50"), "8")
}

// breaks has a transfer run, does something to it in its middle, and wants it to fail by itself.
func (p *pair) breaks(t *testing.T, how func() error) {
	t.Helper()
	ended := p.flow(t)
	begin := time.Now()
	if err := how(); err != nil {
		t.Fatal(err)
	}
	select {
	case o := <-ended:
		if o.err != nil || o.Code == 0 || o.Code > 128 {
			t.Fatalf("code %d: %v\n%s%s", o.Code, o.err, o.Stdout, o.Stderr)
		}
		t.Logf("failed after %.1f s: %.200s", time.Since(begin).Seconds(),
			strings.TrimSpace(o.Stderr))
	case <-time.After(patience):
		t.Fatalf("still running after %v", patience)
	}
}

// flow begins a breakable transfer and returns when it moves packets.
//
// With the connection manager perftest connects twice, and its client does not wait for the server
// to listen for the second time: on a busy machine it is refused, and crashes. That says nothing
// about the lab, so it begins again.
func (p *pair) flow(t *testing.T) chan outcome {
	t.Helper()
	const refused = "RDMA_CM_EVENT_REJECTED"
	for range 20 {
		ended := p.client(t, breakable())
		o, flows := p.waitFlowing(t, ended)
		if flows {
			return ended
		}
		if o.err != nil || !strings.Contains(o.Stderr, refused) {
			t.Fatalf("ended too early: %v, %v\n%s", o.err, o.Err(), p.serverState())
		}
		t.Log("perftest's server was too slow for its client: once more")
	}
	t.Fatal("perftest does not connect")
	return nil
}

// waitFlowing waits until a transfer has moved packets, so that it is broken in its middle, or has
// ended.
func (p *pair) waitFlowing(t *testing.T, ended <-chan outcome) (o outcome, flows bool) {
	t.Helper()
	first, begin := p.sent(t), time.Now()
	for p.sent(t) < first+300 {
		select {
		case o = <-ended:
			return o, false
		case <-time.After(100 * time.Millisecond):
		}
		if time.Since(begin) > patience {
			t.Fatalf("nothing flows: %s", p.serverState())
		}
	}
	return o, true
}

// sent is how many RDMA packets a has sent.
func (p *pair) sent(t *testing.T) int {
	t.Helper()
	text := mustRun(t, p.a, "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts")
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (p *pair) cut(t *testing.T) {
	p.breaks(t, func() error { return p.wire.Cut(t.Context()) })
	for _, g := range []*Guest{p.a, p.b} {
		if got := mustRun(t, g, "cat /sys/class/net/eth0/carrier"); got != "0\n" {
			t.Errorf("%s sees carrier %q", g.Name(), got)
		}
	}
	res, err := p.a.Run(t.Context(), fmt.Sprintf("busybox ping -c 1 -w 1 %v", p.b.Addr(p.wire)))
	if err != nil || res.Code == 0 {
		t.Errorf("ping over a cut wire: %+v, %v", res, err)
	}
	if err := p.wire.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.ping(t) // that RDMA goes through again is how the next part begins
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
	p.ping(t) // that RDMA goes through again is how the next part begins
}

func (p *pair) kill(t *testing.T) {
	p.breaks(t, func() error {
		killed(t, p.b)
		return nil
	})
}

// stop wants the survivor to be well, to end in order, and what it shares to be complete.
func (p *pair) stop(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, p.a, "echo data > "+SharePath+"/file")
	if err := os.Link(filepath.Join(p.a.Share(), "file"), filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	if err := p.a.Stop(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != "data\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := p.a.Run(t.Context(), "true"); !errors.Is(err, errs.Disconnected) {
		t.Errorf("it answers: %v", err)
	}
}
