package cluster

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// leastShare is what a client must reach of what the device itself does between the two machines,
// when it reads from a server's cache, on a quiet machine: there it is 0.9 (docs/figures/hosts.md).
// A machine that is busy with other tests says nothing of that: this is for make soak.
const leastShare = 0.7

// speed holds what a client reads by verbs against ib_write_bw. Two files of different lengths are
// copied in turns; the difference between their times is that of the data alone, without the start
// of the program. The shortest times are those that others have disturbed least.
func (r *rig) speed(t *testing.T) {
	const large, small, rounds = 48, 8, 3
	r.run(t, r.b, "cd /tmp; head -c %dM /dev/zero > l && sluice cp l sluice:/large && rm l && "+
		"sluice cp f sluice:/small", large)
	times := map[string][]float64{}
	for line := range strings.Lines(r.run(t, r.b, `cd /tmp; for i in $(seq %d); do
			for n in large small; do
				from=$(date +%%s%%N); sluice cp -f sluice:/$n x; echo $n $(($(date +%%s%%N) - from))
			done
		done; rm x`, rounds)) {
		words := strings.Fields(line)
		ns, err := strconv.ParseFloat(words[len(words)-1], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		times[words[0]] = append(times[words[0]], ns/1e9)
	}
	spent := slices.Min(times["large"]) - slices.Min(times["small"])
	device := r.device(t)
	rate := (large - small) / spent
	t.Logf("1 MiB reads from cache by verbs: %.1f MiB/s, ib_write_bw there: %.1f MiB/s, share %.2f "+
		"(seconds %.2f and %.2f)", rate, device, rate/device, times["large"], times["small"])
	if rate/device < leastShare {
		t.Errorf("a share of %.2f, at least %.2f is expected", rate/device, leastShare)
	}
}

// device is the rate of ib_write_bw between the machines, in MiB/s: the best of two runs.
func (r *rig) device(t *testing.T) (best float64) {
	const program = "ib_write_bw -d rxe0 -x 1 -s 1048576 -n 30"
	for range 2 {
		r.run(t, r.a, "(%s > /tmp/bw 2>&1 &)", program)
		out := r.run(t, r.b, "for i in $(seq 30); do %s %s 2>/dev/null && exit; sleep 1; done",
			program, r.a.Addr(r.wires[0]))
		for line := range strings.Lines(out) {
			words := strings.Fields(line) // bytes, iterations, peak, average, rate of messages
			if len(words) == 5 && words[0] == "1048576" {
				got, err := strconv.ParseFloat(words[3], 64)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				best = max(best, got)
			}
		}
	}
	if best == 0 {
		t.Skip("ib_write_bw told nothing: the machine is too busy to tell a speed")
	}
	return best
}

// carried is how many bytes the I/O server has sent to clients by a provider, as its metrics say.
func (r *rig) carried(t *testing.T, provider string) uint64 {
	t.Helper()
	text := r.run(t, r.a, "curl -sS http://$(cat /tmp/c/run/iod1.admin)/metrics | "+
		"grep pushed_bytes_total")
	name := `sluice_msg_provider_pushed_bytes_total{provider="` + provider + `"} `
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return uint64(n)
		}
	}
	return 0
}

// inStatus wants status to tell of what a provider has carried.
func (r *rig) inStatus(t *testing.T, providers ...string) {
	t.Helper()
	text := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Second) {
		// On a busy machine a server may be too slow to answer.
		text = r.run(t, r.a, "cd /tmp; sluice status --json --dir c || true")
		if strings.Contains(text, `"bytes_out_`+providers[0]+`"`) {
			break
		}
	}
	for _, p := range providers {
		if !strings.Contains(text, `"bytes_out_`+p+`"`) {
			t.Errorf("status does not tell what went by %s: %s", p, text)
		}
	}
}

// readBy waits until the program that reads all the time does so by a provider.
func (r *rig) readBy(t *testing.T, provider string) {
	t.Helper()
	began, first := time.Now(), r.carried(t, provider)
	const some = 4 << 20 // more than whatever was under way
	for r.carried(t, provider) < first+some {
		if time.Since(began) > patience {
			t.Fatalf("nothing goes by %s: %s", provider,
				r.run(t, r.b, "tail -n 20 /tmp/reader; rdma link"))
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("read by %s after %v", provider, time.Since(began).Round(100*time.Millisecond))
}

// remove takes a device away. The kernel waits until every program has let go of it: who does not,
// and what it does instead, is told.
func (r *rig) remove(t *testing.T, g *vmtest.Guest, device string) {
	t.Helper()
	out := r.run(t, g, `cd /tmp; (rdma link del %s && echo gone) > removed 2>&1 < /dev/null &
		for i in $(seq 600); do grep -q gone /tmp/removed && exit; sleep 0.1; done
		cat /tmp/removed; rdma link; rdma resource show qp; rdma resource show cm_id
		for fd in /proc/[0-9]*/fd/*; do
			case $(readlink $fd) in /dev/infiniband/*) echo $fd $(readlink $fd);; esac
		done
		for w in /tmp/c/run/*.admin; do
			[ ! -e $w ] || curl -sS "http://$(cat $w)/debug/pprof/goroutine?debug=2" | grep -A 12 verbs
		done; ps ax`, device)
	if out != "" {
		t.Fatalf("%s of %s is not removed:\n%s", device, g.Name(), out)
	}
}

// fallAndClimb takes RDMA devices away, while a program of the client reads a file on its mount,
// and gives them back: it goes on by tcp, then by verbs again, and has read nothing wrong. (Each
// machine keeps one device, and they are on different wires: the library of the connection manager
// does not let go of a machine's last one.)
func (r *rig) fallAndClimb(t *testing.T) {
	r.run(t, r.b, `cd /tmp; rm -f stop; (n=0; while [ ! -e stop ]; do
			dd if=mnt/f bs=1M iflag=direct status=none | cmp - f || echo wrong
			n=$((n+1)); echo read $n; sleep 0.2
		done; echo end) > reader 2>&1 < /dev/null &`)
	r.readBy(t, "verbs")
	r.remove(t, r.a, "rxe1")
	r.remove(t, r.b, "rxe0")
	r.readBy(t, "tcp")
	r.run(t, r.a, "rdma link add rxe1 type rxe netdev eth1")
	r.run(t, r.b, "rdma link add rxe0 type rxe netdev eth0")
	r.readBy(t, "verbs")
	out := r.run(t, r.b,
		"cd /tmp; touch stop; until grep -q end reader; do sleep 0.2; done; cat reader")
	if strings.Contains(out, "wrong") || strings.Contains(out, "rror") {
		t.Errorf("what was read: %s", out)
	}
	t.Log(strings.Count(out, "read "), "times was the file read")
	r.inStatus(t, "verbs", "tcp")
}
