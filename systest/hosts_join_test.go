package systest

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/systest/hosttest"
)

// firstHost makes the cluster, with one host.
func (b *bed) firstHost() {
	b.t.Helper()
	b.typed(b.host("h1"), "sluice up -d --dir /var/lib/sluice --listen 10.1.0.1:9400 --iods 1")
}

// TestJoinKilled: a host that is killed again and again while it is made, joins, and starts becomes
// a host in the end, once, by one use of its token.
func TestJoinKilled(t *testing.T) {
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d (SLUICE_SEED)", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	b := newBed(t)
	h1, h2 := b.host("h1"), b.host("h2")
	b.until(rng, h1, "init", "--dir", b.folder(h1), "--listen", h1.Addr+":9400")
	b.serve(h1)
	b.typed(h1, "sluice token create --host --dir /var/lib/sluice")
	b.until(rng, h2, "join", h1.Addr+":9401", b.token, "--dir", b.folder(h2))
	// It may have been killed at the very end, when it had not yet said that it was done.
	_, err := b.sluice(h2, "join", h1.Addr+":9401", b.token, "--dir", b.folder(h2))
	must(t, err)
	b.serve(h2)
	out, err := b.sluice(h1, "host", "ls", "--json", "--dir", b.folder(h1))
	must(t, err)
	var hosts []struct{ Name string }
	must(t, json.Unmarshal([]byte(out), &hosts))
	if len(hosts) != 2 {
		t.Errorf("the hosts are %v", hosts)
	}
	b.until(rng, h1, "key", "rotate", "authority", "--dir", b.folder(h1))
	out, err = b.sluice(h1, "key", "rotate", "authority", "--retire", "--dir", b.folder(h1))
	if err != nil || !strings.Contains(out, "authority") {
		t.Errorf("%s %v", out, err)
	}
}

// until kills a command at random moments, later each time, and repeats it, until it has ended
// well.
func (b *bed) until(rng *rand.Rand, h *hosttest.Host, args ...string) {
	b.t.Helper()
	kills := 0
	for limit := 5 * time.Millisecond; ; limit += limit / 4 {
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Duration(rng.Int64N(int64(limit))))
		cmd := h.Command(ctx, b.bin, args...) // which is killed when ctx ends
		out, err := cmd.CombinedOutput()
		killed := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			b.t.Logf("%v on %s: %d kills", args[:1], h.Name, kills)
			return
		case !killed && strings.Contains(string(out), "valid already"):
			return // it was done before it was killed
		case !killed || limit > time.Minute:
			b.t.Fatalf("%v on %s, after %d kills: %v\n%s", args, h.Name, kills, err, out)
		}
		kills++
	}
}

// TestMountOfAMember: somebody who is not root, with a client key of his own, mounts what his token
// lets him see.
func TestMountOfAMember(t *testing.T) {
	const uid, other = "1", "2" // of daemon and bin: fusermount wants users that have a name
	b := newBed(t)
	b.firstHost()
	h1, c1 := b.host("h1"), b.host("c1")
	for _, dir := range []string{filepath.Dir(b.bin), filepath.Dir(c1.Dir),
		filepath.Dir(filepath.Dir(c1.Dir))} { // which are for root alone
		must(t, os.Chmod(dir, 0o755))
	}
	for _, line := range []string{"mkdir -p /home/ann", "chown " + uid + ":" + uid + " /home/ann"} {
		_, err := b.sluice(h1, append(strings.Fields(line), "--url", "sluice://"+h1.Addr+":9400",
			"--credential", filepath.Join(b.folder(h1), "host.json"))...)
		must(t, err)
	}
	b.typed(h1, "sluice token create --client ann --path /home/ann --dir /var/lib/sluice")
	home := c1.Path("ann")
	as := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return c1.Run(ctx, "setpriv", append([]string{"--reuid", uid, "--regid", uid, "--clear-groups",
			"env", "HOME=" + home, "SLUICE_CREDENTIAL="}, args...)...)
	}
	_, err := c1.Run(t.Context(), "sh", "-c", "mkdir -p "+home+"/mnt && chown -R "+uid+" "+home+
		" && chmod 755 "+c1.Dir+" && cd "+c1.Dir+" && mknod fuse c 10 229 && chmod 666 fuse && "+
		"mount --bind fuse /dev/fuse") // where only root may use it
	must(t, err)
	if out, err := as("sh", "-c", "test -w /dev/fuse && command -v fusermount3"); err != nil {
		t.Skipf("users cannot mount here: %s %v", out, err)
	}
	_, err = as(b.bin, "join", h1.Addr+":9401", b.token, "--mount", home+"/mnt")
	must(t, err)
	defer func() { _, _ = as(b.bin, "umount", home+"/mnt") }()
	_, err = as("sh", "-c", "echo hello > "+home+"/mnt/f && cat "+home+"/mnt/f")
	must(t, err)
	out, err := b.sluice(h1, "stat", "--json", "/home/ann/f", "--url", "sluice://"+h1.Addr+":9400",
		"--credential", filepath.Join(b.folder(h1), "host.json"))
	if err != nil || !strings.Contains(out, `"uid": `+uid) {
		t.Errorf("%s %v", out, err)
	}
	// Another user of the same machine has no key.
	_, err = c1.Run(t.Context(), "setpriv", "--reuid", other, "--regid", other, "--clear-groups",
		"env", "HOME=/nonexistent", b.bin, "ls", "--url", "sluice://"+h1.Addr+":9400", "/")
	if err == nil || !strings.Contains(err.Error(), "no credential") {
		t.Errorf("somebody without a key: %v", err)
	}
	_, err = c1.Run(t.Context(), "setpriv", "--reuid", other, "--regid", other, "--clear-groups",
		b.bin, "ls", "--credential", filepath.Join(home, ".config/sluice/client.json"), "--url",
		"sluice://"+h1.Addr+":9400", "/")
	if err == nil {
		t.Error("somebody uses another's key")
	}
	if _, err := os.Stat(c1.Outside(filepath.Join(home, ".config/sluice/client.json"))); err != nil {
		t.Error(err)
	}
}
