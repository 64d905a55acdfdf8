package attach

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// leastRatio is what attaching to the first read may take of what nbd-client takes, which finds a
// gateway that runs, on a quiet machine.
const leastRatio = 1.5

// firstRead holds the time from the command to the first block against that of nbd-client, by
// turns: the median of each. docs/figures/attach.md has what came out on a quiet machine.
func (r *rig) firstRead(t *testing.T) {
	if res, err := r.try(t, "command -v nbd-client"); err != nil {
		t.Skipf("there is no nbd-client here: %s", res.Stderr)
	}
	const rounds = 9
	out := r.run(t, `(sluice nbd --listen 127.0.0.1:10810 --export name=v,volume=v > gateway 2>&1 \
			< /dev/null & echo $! > pid)
		until grep -q serving gateway; do sleep 0.1; done
		now() { date +%%s%%N; }
		for i in $(seq %d); do
			from=$(now)
			sluice attach w /dev/nbd4 > /dev/null
			dd if=/dev/nbd4 of=/dev/null bs=4k count=1 iflag=direct status=none
			echo sluice $(($(now) - from)); sluice detach w > /dev/null
			from=$(now)
			nbd-client -N v -C 4 127.0.0.1 10810 /dev/nbd5 > /dev/null 2>&1
			dd if=/dev/nbd5 of=/dev/null bs=4k count=1 iflag=direct status=none
			echo client $(($(now) - from)); nbd-client -d /dev/nbd5 > /dev/null
		done
		kill $(cat pid); while kill -0 $(cat pid) 2> /dev/null; do sleep 0.1; done`, rounds)
	times := map[string][]float64{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		ns, err := strconv.ParseFloat(words[len(words)-1], 64)
		if err != nil || len(words) != 2 {
			t.Fatalf("%q: %v", line, err)
		}
		times[words[0]] = append(times[words[0]], ns/1e9)
	}
	slices.Sort(times["sluice"])
	slices.Sort(times["client"])
	ours, theirs := times["sluice"][rounds/2], times["client"][rounds/2]
	t.Logf("attached and first block read after %.2f s, by nbd-client %.2f s: ratio %.2f (%.2f %.2f)",
		ours, theirs, ours/theirs, times["sluice"], times["client"])
	if ours/theirs > leastRatio {
		t.Errorf("a ratio of %.2f, at most %.1f is expected", ours/theirs, leastRatio)
	}
}

// randomLives does random things to a device, killing included, and checks after each what was
// written; at the end nothing is left of it.
func (r *rig) randomLives(t *testing.T) {
	seed, steps := uint64(time.Now().UnixNano()), 6
	if soak() {
		steps = 100
	}
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SLUICE_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	attached, mark := false, 0
	for step := range steps {
		what := rnd.IntN(6)
		var script string
		switch {
		case !attached:
			script = "sluice attach w > /dev/null"
			attached = true
		case what == 0:
			script = "sluice detach w > /dev/null"
			attached = false
		case what == 1:
			// Where nobody stands by yet, the device is nobody's until it is attached again.
			script = fmt.Sprintf("p=$(%s); s=$(%s) || true; kill -9 $p; "+
				"while kill -0 $p 2> /dev/null; do sleep 0.1; done; [ -n \"$s\" ] || sluice attach w",
				serving, standing)
		case what == 2:
			script = fmt.Sprintf("%s > /dev/null; p=$(%s) || true; [ -z \"$p\" ] || { kill -9 $p; "+
				"while kill -0 $p 2> /dev/null; do sleep 0.1; done; }", serving, standing)
		case what == 3: // both: the device is nobody's until somebody attaches or detaches it
			script = "pkill -9 'sluice-(attach|standby)'"
			if rnd.IntN(2) == 0 {
				script += "; sluice attach w > /dev/null"
			} else {
				script += "; sluice detach w > /dev/null"
				attached = false
			}
		case what == 4:
			script = "sluice attach w > /dev/null & sluice attach w > /dev/null & wait"
		default:
			mark++
			script = fmt.Sprintf("echo %d | dd of=/dev/sluice/w bs=512 count=1 oflag=direct "+
				"conv=sync,fsync status=none", mark)
		}
		t.Logf("%d: %s", step, script)
		r.run(t, "%s", script)
		if attached && mark > 0 {
			got := r.run(t, "dd if=/dev/sluice/w bs=512 count=1 iflag=direct status=none | head -1")
			if strings.TrimSpace(got) != strconv.Itoa(mark) {
				t.Fatalf("step %d: read %q, written %d", step, got, mark)
			}
		}
	}
	if attached {
		r.run(t, "sluice detach w")
	}
	r.nothing(t)
}
