package ocfs2

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// soak tells whether there is time for more than make test has.
func soak() bool { return os.Getenv("SLUICE_SOAK") != "" }

// rounds is how often a node dies. Recovery takes half a minute, most of which is the time after
// which nodes take each other for dead: see threshold.
func rounds() int {
	if soak() {
		return 4
	}
	return 1
}

// life is what a node does until it dies, or is told to stop: it writes files, each durably, and
// tells the host what is in it only then. Both nodes do that in one directory, so that each needs
// locks that the other one has.
const life = `cd /mnt/web/life; rm -f /host-rw/told /host-rw/stop
	(i=0; while [ ! -e /host-rw/stop ]; do
		i=$((i + 1)); f=$HOSTNAME-%d-$i; head -c 20000 /dev/urandom > /tmp/own
		dd if=/tmp/own of=$f bs=20000 conv=fsync status=none ||
			{ echo "failed $i" >> /host-rw/told; break; }
		echo $f $(sha256sum < /tmp/own) >> /host-rw/told
	done; echo end >> /host-rw/told) > /dev/null 2>&1 < /dev/null &`

// told is what a node has told: whole lines.
func told(t *testing.T, g *vmtest.Guest) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.Share(), "told"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	return lines[:len(lines)-1]
}

// await waits until a node has told that many lines.
func await(t *testing.T, g *vmtest.Guest, lines int) {
	t.Helper()
	for end := time.Now().Add(patience); len(told(t, g)) < lines; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s has told %d lines, %d were waited for", g.Name(), len(told(t, g)), lines)
		}
	}
}

// nodeDies: the power of one node goes while both write. The other one recovers what the dead one
// left and goes on; nothing that was durable is lost. Meanwhile the verbs test uses the time.
func (r *rig) nodeDies(t *testing.T) {
	round := time.Now().Unix()
	r.both(t, "mkdir -p /mnt/web/life")
	r.both(t, life, round)
	await(t, r.n1, 5)
	await(t, r.n2, 5)
	r.run(t, r.n2, "cp /etc/sluice/client.json /host-rw/")
	r.share = r.n2.Share()
	r.n2.Kill()
	died := time.Now()
	before := len(told(t, r.n1))
	dead := told(t, r.n2)
	r.n2 = nil
	if !r.proved {
		r.part(t, "verbs", r.verbs)
		r.proved = true
	}
	await(t, r.n1, before+5)
	t.Logf("n1 has written %d files since n2 died, %.0f s ago", len(told(t, r.n1))-before,
		time.Since(died).Seconds())
	said := r.run(t, r.n1, "dmesg | grep -E 'evicted|replay journal' || true")
	if t.Log(said); !strings.Contains(said, "replay journal") {
		t.Errorf("n1 has recovered nothing: %s", said)
	}
	r.run(t, r.n1, "touch /host-rw/stop")
	list := strings.Join(append(dead, r.ended(t)...), "\n") + "\n"
	if strings.Contains(list, "failed") {
		t.Fatalf("a write has failed: %s", list)
	}
	if err := os.WriteFile(filepath.Join(r.n1.Share(), "list"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	out := r.run(t, r.n1, `cd /mnt/web/life; echo 3 > /proc/sys/vm/drop_caches
		while read name sum rest; do
			[ "$(sha256sum < $name)" = "$sum  -" ] || echo "lost: $name"; done < /host-rw/list
		echo compared; ls | wc -l`)
	if strings.Contains(out, "lost") || !strings.Contains(out, "compared") {
		t.Errorf("durable files are not what they were: %s", out)
	}
	t.Logf("%d files of n2, %d of n1, and there are: %s", len(dead), len(told(t, r.n1)), out)
}

// ended waits for n1's program to stop, and is all that it has told.
func (r *rig) ended(t *testing.T) []string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		lines := told(t, r.n1)
		if n := len(lines) - 1; n >= 0 && lines[n] == "end" {
			return lines[:n]
		}
		if time.Now().After(end) {
			t.Fatalf("n1 does not stop: %s", fmt.Sprint(lines))
		}
	}
}

// nodeReturns: a node that has died comes back, as a machine does that was switched on again. What
// it had on its disk are its credential and the nodes' configuration.
func (r *rig) nodeReturns(t *testing.T) {
	g, err := r.start(t, 2, r.share)
	r.n2 = g
	if err != nil {
		t.Fatal(err)
	}
	r.run(t, g, "mkdir -p /etc/sluice; install -m 600 /host-rw/client.json /etc/sluice/")
	for _, heading := range []string{"The device", "The nodes", "The file system"} {
		for _, c := range r.commands(t, heading) {
			if c[0] == "n2" || c[0] == "n1,n2" {
				r.run(t, g, "%s", c[1])
			}
		}
	}
	want, got := r.both(t, "ls /mnt/web /mnt/web/life")
	if got != want {
		t.Errorf("n1 has\n%s\nn2 has\n%s", want, got)
	}
}
