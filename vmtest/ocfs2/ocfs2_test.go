package ocfs2

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/vmtest"
)

// TestOCFS2 makes a file system of two nodes by what the manual says, and uses it as a cluster
// does. One node dies, the other goes on; in the end the file system is whole.
func TestOCFS2(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines")
	}
	r := newRig(t)
	r.typed(t, "The volume")
	r.typed(t, "The device")
	r.part(t, "blocks", r.blocks)
	r.typed(t, "The nodes")
	r.typed(t, "The file system")
	r.part(t, "files", r.files)
	r.part(t, "one directory", r.oneDirectory)
	r.part(t, "renames", r.renames)
	r.typed(t, "Look at it")
	if soak() {
		r.part(t, "bench", r.bench)
	}
	for range rounds() {
		r.part(t, "a node dies", r.nodeDies)
		if r.n2 == nil && rounds() > 1 {
			r.part(t, "a node comes back", r.nodeReturns)
		}
	}
	r.part(t, "whole", r.whole)
}

// part is a subtest without which the next ones make no sense.
func (r *rig) part(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	begin, spent := time.Now(), r.spent()
	if !t.Run(name, run) {
		t.FailNow()
	}
	t.Logf("%s: %.1f s, %.1f s of processors", name, time.Since(begin).Seconds(),
		(r.spent() - spent).Seconds())
}

// spent is the time of processors that the machines have used which are there.
func (r *rig) spent() (all time.Duration) {
	for _, g := range []*vmtest.Guest{r.h1, r.n1, r.n2} {
		if g != nil {
			all += g.Spent()
		}
	}
	return all
}

// blocks: what one node has written to the device past its page cache, the other one reads past its
// own, at once, also what was there before and was read.
func (r *rig) blocks(t *testing.T) {
	const places = "for at in 0 1 4000"
	nodes := r.nodes()
	for round := range 2 {
		from, to := nodes[round%2], nodes[1-round%2]
		want := r.run(t, from, places+`; do head -c 200K /dev/urandom > /tmp/x
			dd if=/tmp/x of=$DEV bs=200K seek=$at oflag=direct conv=notrunc status=none
			sha256sum < /tmp/x; done`)
		got := r.run(t, to, places+`; do dd if=$DEV bs=200K skip=$at count=1 iflag=direct status=none |
			sha256sum; done`)
		if got != want || strings.Count(want, "\n") != 3 {
			t.Fatalf("round %d: %s has written\n%sand %s reads\n%s", round, from.Name(), want, to.Name(),
				got)
		}
	}
}

// files: what one node writes is there on the other one, when it looks, changed as often as you
// like.
func (r *rig) files(t *testing.T) {
	r.run(t, r.n1, `mkdir -p /mnt/web/tree/a/b; cd /mnt/web/tree; for i in $(seq 10); do
		head -c $((i * 3000)) /dev/urandom > a/$i; done; ln -s a/1 link; ln a/2 a/b/hard; chmod 750 a/3`)
	const sums = `cd /mnt/web/tree; find . -printf '%p %y %m %n %s %l\n' | sort;
		find . -type f | sort | xargs sha256sum`
	want, got := r.both(t, "%s", sums)
	if got != want || strings.Count(want, "\n") < 20 {
		t.Fatalf("n1 has\n%s\nn2 has\n%s", want, got)
	}
	nodes := r.nodes()
	for round := range 3 {
		from, to := nodes[round%2], nodes[1-round%2]
		want := r.run(t, from, `cd /mnt/web; echo %d >> ball; truncate -s %d cut; cat ball;
			stat -c %%s cut`, round, 70000/(round+1))
		if got := r.run(t, to, "cd /mnt/web; cat ball; stat -c %%s cut"); got != want {
			t.Fatalf("round %d: %s has left %q, %s finds %q", round, from.Name(), want, to.Name(), got)
		}
	}
	r.run(t, r.n2, "rm -r /mnt/web/tree")
	if out := r.run(t, r.n1, "ls /mnt/web"); strings.Contains(out, "tree") {
		t.Errorf("n2 has removed what n1 still sees: %s", out)
	}
}

// oneDirectory has both nodes make names, compete for names, and append to one file, under a lock,
// in one directory at the same time. Without the lock stock kernels lose lines: the manual says so.
func (r *rig) oneDirectory(t *testing.T) {
	r.run(t, r.n1, "mkdir /mnt/web/crowd")
	a, b := r.both(t, `cd /mnt/web/crowd; won=0; for i in $(seq 6); do
			echo $HOSTNAME $i > $HOSTNAME-$i; (flock 9; echo $HOSTNAME $i >> log) 9> lock
			(set -C; echo $HOSTNAME > only-$i) 2>/dev/null && won=$((won + 1))
		done; echo $won`)
	t.Logf("of 6 names that both wanted n1 got %s, n2 %s", strings.TrimSpace(a), strings.TrimSpace(b))
	want, got := r.both(t, `cd /mnt/web/crowd; ls; cat n[12]-* only-*; sort log;
		for n in n1 n2; do grep -c "^$n " log; cat only-* | grep -c $n; done; true`)
	if got != want {
		t.Errorf("n1 has\n%s\nn2 has\n%s", want, got)
	}
	lines := strings.Fields(want)
	counts := lines[len(lines)-4:]
	if counts[0] != "6" || counts[2] != "6" || counts[1] != strings.TrimSpace(a) ||
		counts[3] != strings.TrimSpace(b) {
		t.Errorf("lines and names of n1, then n2: %q; they have won %q and %q", counts, a, b)
	}
	if n := strings.Count(want, "only-"); n != 6 {
		t.Errorf("%d names that both wanted, there should be 6", n)
	}
}

// renames: of two nodes that move the same file one does; a file that is replaced by a rename is
// always there, and whole.
func (r *rig) renames(t *testing.T) {
	r.run(t, r.n1, `cd /mnt/web; mkdir from to; echo 0000 > current
		for i in $(seq 4); do echo $i > from/$i; done`)
	a, b := r.both(t, `cd /mnt/web; won=0; for i in $(seq 4); do
			mv from/$i to/$i-$HOSTNAME 2>/dev/null && won=$((won + 1))
			if [ $HOSTNAME = n1 ]; then
				printf '%%04d\n' $i > new; mv new current
			else
				text=$(cat current) && [ ${#text} = 4 ] || { echo "current: $text"; exit 1; }
			fi
		done; echo $won`)
	t.Logf("of 4 files n1 has moved %s, n2 %s", strings.TrimSpace(a), strings.TrimSpace(b))
	want, got := r.both(t, `cd /mnt/web; ls from to; cat to/* current; ls to | grep -c n1;
		ls to | grep -c n2; ls to | wc -l; ls from | wc -l`)
	lines := strings.Fields(want)
	counts := lines[len(lines)-4:]
	if got != want || counts[0] != strings.TrimSpace(a) || counts[1] != strings.TrimSpace(b) ||
		counts[2] != "4" || counts[3] != "0" {
		t.Errorf("n1 has\n%s\nn2 has\n%s", want, got)
	}
}

// whole takes the file system down and has it checked.
func (r *rig) whole(t *testing.T) {
	out := r.typed(t, "Take it down")
	if !strings.Contains(out, "All passes succeeded") || strings.Contains(out, "<n>") {
		t.Errorf("fsck.ocfs2 says: %s", out)
	}
}
