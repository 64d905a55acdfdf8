package cluster

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// transferShare is what a transfer of memory by verbs must reach of what the device itself does, on
// a quiet machine.
const transferShare = 0.8

// transferred is what sluice transfer --json prints.
type transferred struct {
	Driver  string
	Seconds float64
	Moved   int64
	Skipped int64
}

// transfer has a service in a, with the host's keys, and a client in b, with its own: a file goes
// there and back by verbs, and memory as fast as the device lets it.
func (r *rig) transfer(t *testing.T) {
	at := r.a.Addr(r.wires[0]).String() + ":9500"
	r.run(t, r.a, `mkdir -p /tmp/in
		(sluice transfer --listen %s --dir /tmp/in --credential /tmp/c/host.json \
			--allow read,write,memory > /tmp/service 2>&1 < /dev/null &)
		for i in $(seq 600); do grep -q listening /tmp/service && exit; sleep 0.1; done
		cat /tmp/service; exit 1`, at)
	move := func(args string) (got transferred) {
		text := r.run(t, r.b, "cd /tmp; sluice transfer --json %s", args)
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return got
	}
	if got := move("f " + at + ":/f"); got.Driver != "verbs" || got.Moved != 8<<20 {
		t.Errorf("a file went by %+v", got)
	}
	move("--driver tcp --verify " + at + ":/f back")
	move("--pieces 16x64K@128K --driver verbs mem:8M " + at + ":mem:")
	sums := strings.Fields(r.run(t, r.b, "cd /tmp; cat f | cksum; cat back | cksum; rm back"))
	there := strings.Fields(r.run(t, r.a, "cat /tmp/in/f | cksum"))
	if !slices.Equal(sums[:2], sums[2:]) || !slices.Equal(sums[:2], there) {
		t.Errorf("other bytes: %v, %v", sums, there)
	}
	refused := r.run(t, r.b, "cd /tmp; sluice transfer f %s:/../f 2>&1 || true", at)
	if !strings.Contains(refused, "invalid argument") {
		t.Errorf("a name out of the folder: %s", refused)
	}
	const large, small, rounds = 64, 16, 3
	times := map[string][]float64{}
	for range rounds {
		for _, size := range []string{"64M", "16M"} {
			got := move("--driver verbs mem:" + size + " " + at + ":mem:")
			times[size] = append(times[size], got.Seconds)
		}
	}
	spent := slices.Min(times["64M"]) - slices.Min(times["16M"])
	device, rate := r.device(t), (large-small)/spent
	t.Logf("memory by verbs: %.1f MiB/s, ib_write_bw there: %.1f MiB/s, share %.2f (seconds %.2f and "+
		"%.2f)", rate, device, rate/device, times["64M"], times["16M"])
	if os.Getenv("SLUICE_SOAK") != "" && rate/device < transferShare {
		t.Errorf("a share of %.2f, at least %.2f is expected", rate/device, transferShare)
	}
}
