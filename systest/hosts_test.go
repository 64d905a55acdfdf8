package systest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/systest/hosttest"
)

// bed is a cluster on hosts of its own, made by what docs/ops/cluster.md says.
type bed struct {
	*hosttest.Bed
	t     *testing.T
	bin   string
	token string // that was printed last
}

// newBed makes hosts h1, h2, h3, the client c1 and more clients, on which nothing runs yet.
func newBed(t *testing.T, more ...string) *bed {
	t.Helper()
	bin, err := builtBinary()
	must(t, err)
	b := &bed{Bed: hosttest.New(t, append([]string{"h1", "h2", "h3", "c1"}, more...)...), t: t,
		bin: bin}
	t.Cleanup(b.stop)
	return b
}

func (b *bed) host(name string) *hosttest.Host {
	for _, h := range b.Hosts {
		if h.Name == name {
			return h
		}
	}
	b.t.Fatalf("there is no host %s", name)
	return nil
}

func isClient(h *hosttest.Host) bool { return strings.HasPrefix(h.Name, "c") }

func (b *bed) folder(h *hosttest.Host) string { return h.Path("sluice") }
func (b *bed) mnt(h *hosttest.Host) string    { return h.Path("mnt") }

// env is the environment of programs on a host: root's credential must not be the machine's.
func (b *bed) env(h *hosttest.Host) []string {
	return []string{"env", "SLUICE_CREDENTIAL=" + h.Path("client.json"), "HOME=" + h.Dir,
		"XDG_RUNTIME_DIR=" + h.Dir}
}

// sluice runs the program on a host; where it runs as a member of the cluster's hosts it has
// --dir, and no credential of a client.
func (b *bed) sluice(h *hosttest.Host, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Minute)
	defer cancel()
	line := append(append(b.env(h), b.bin), args...)
	if !isClient(h) {
		line = append([]string{"env", "HOME=" + h.Dir, b.bin}, args...)
	}
	return h.Run(ctx, line[0], line[1:]...)
}

// typed runs a command as the documentation has it.
func (b *bed) typed(h *hosttest.Host, line string) string {
	b.t.Helper()
	for from, to := range map[string]string{"10.1.0.1": b.host("h1").Addr, "TOKEN": b.token,
		"/var/lib/sluice": b.folder(h), "/mnt/lab": b.mnt(h)} {
		line = strings.ReplaceAll(line, from, to)
	}
	began := time.Now()
	out, err := b.sluice(h, strings.Fields(line)[1:]...)
	if err != nil {
		b.t.Fatalf("%s# %s\n%v", h.Name, line, err)
	}
	b.t.Logf("%s# %.60s: %.1f s", h.Name, line, time.Since(began).Seconds())
	if found := tokenText.FindString(out); found != "" {
		b.token = found
	}
	return out
}

var (
	tokenText = regexp.MustCompile(`sluice1\.\S+`)
	typedLine = regexp.MustCompile(`(?m)^    (h1|h2|h3|c1)# (sluice .*)$`)
)

// setUp types the first commands of the documentation, up to the heading that begins the next part.
func (b *bed) setUp() (looks [][]string) {
	b.t.Helper()
	text, err := os.ReadFile("../docs/ops/cluster.md")
	must(b.t, err)
	making, looking, _ := bytes.Cut(text, []byte("## Look at it"))
	lines := typedLine.FindAllStringSubmatch(string(making), -1)
	if len(lines) == 0 || len(lines) > 6 {
		b.t.Fatalf("%d commands are typed, at most six should be", len(lines))
	}
	must(b.t, os.MkdirAll(b.host("c1").Outside(b.mnt(b.host("c1"))), 0o755))
	for _, l := range lines {
		b.typed(b.host(l[1]), l[2])
	}
	return typedLine.FindAllStringSubmatch(string(looking), -1)
}

// stop ends what runs, mounts first.
func (b *bed) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for i := len(b.Hosts) - 1; i >= 0; i-- {
		h := b.Hosts[i]
		if _, err := os.Stat(h.Outside(b.folder(h))); err != nil && !isClient(h) {
			continue // it was never one of the cluster
		}
		args := []string{"down", "--dir", b.folder(h)}
		if isClient(h) {
			args = []string{"umount", b.mnt(h)}
		}
		if out, err := h.Run(ctx, b.bin, args...); err != nil && b.t.Failed() {
			b.t.Logf("%s: %v %s %v", h.Name, args, out, err)
		}
		if b.t.Failed() {
			b.logs(h)
		}
	}
}

func (b *bed) logs(h *hosttest.Host) {
	var names []string
	for _, pattern := range []string{"sluice/log/*.log", "*.log", "*/*.log"} {
		found, _ := filepath.Glob(filepath.Join(h.Outside(h.Dir), pattern))
		names = append(names, found...)
	}
	for _, name := range names {
		text, _ := os.ReadFile(name)
		b.t.Logf("%s %s:\n%s", h.Name, filepath.Base(name), text[max(0, len(text)-4000):])
	}
}

// stripes is on how many servers a file has data.
func (b *bed) stripes(h *hosttest.Host, path string) (n int) {
	b.t.Helper()
	out, err := b.sluice(h, "stat", "--json", path)
	must(b.t, err)
	var info []struct{ Stripes []struct{ Data int64 } }
	must(b.t, json.Unmarshal([]byte(out), &info))
	for _, s := range info[0].Stripes {
		if s.Data > 0 {
			n++
		}
	}
	return n
}

// TestHosts: three empty hosts and a client become a cluster by what the documentation says, as it
// stands there. A file that the client writes is striped over all hosts, and read on another one.
func TestHosts(t *testing.T) {
	b := newBed(t)
	for _, l := range b.setUp() {
		b.typed(b.host(l[1]), l[2])
	}
	c1, h2 := b.host("c1"), b.host("h2")
	data := record(7, 0, 24<<20)
	must(t, os.WriteFile(c1.Outside(filepath.Join(b.mnt(c1), "big")), data, 0o644))
	if n := b.stripes(c1, "/big"); n != 3 {
		t.Errorf("it lies on %d hosts", n)
	}
	got := h2.Path("copy")
	own := filepath.Join(b.folder(h2), "host.json")
	_, err := b.sluice(h2, "cp", "--credential", own, "sluice:/big", got)
	must(t, err)
	text, err := os.ReadFile(h2.Outside(got))
	must(t, err)
	if !bytes.Equal(text, data) {
		t.Errorf("%d bytes were read on another host, and they are not those that were written",
			len(text))
	}
}
