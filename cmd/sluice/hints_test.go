package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
)

// hintRig is a cluster whose one I/O server tells what it was asked for.
type hintRig struct {
	*testing.T
	session *session
	cluster *cluster
	fs      *client.FS
}

func newHintRig(t *testing.T, args string) *hintRig {
	t.Helper()
	s := newSession(t, linkSelf(t))
	s.play("exec sluice up -d --dir c --iods 1 --mem --listen 127.0.0.1:0 " + args + "\nuse c\n")
	h := &hintRig{T: t, session: s}
	var err error
	if h.cluster, err = openCluster(filepath.Join(s.dir, "c")); err != nil {
		t.Fatal(err)
	}
	conn, err := dialBy(t.Context(), s.env["SLUICE_URL"], (providersFlag{}).within(h.cluster),
		client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.close)
	h.fs = conn.fs
	return h
}

func (h *hintRig) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// server asks the I/O server for its counters.
func (h *hintRig) server() *admin.Server {
	h.Helper()
	return theServer(h.T, h.cluster)
}

// used tells by how much counters grow while do runs.
func (h *hintRig) used(do func(), names ...string) map[string]int {
	h.Helper()
	before := h.server()
	do()
	after := h.server()
	grown := map[string]int{}
	for _, name := range names {
		grown[name] = int(after.Count(name) - before.Count(name))
	}
	return grown
}

// write makes a file of so many bytes.
func (h *hintRig) write(path string, bytes int, opts ...client.OpenOption) {
	h.Helper()
	f, err := h.fs.OpenFile(h.Context(), path, os.O_CREATE|os.O_RDWR, 0o600, opts...)
	h.must(err)
	_, err = f.WriteAt(h.Context(), make([]byte, bytes), 0)
	h.must(err)
	h.must(f.Close(h.Context()))
}

// read reads the first bytes of a file.
func (h *hintRig) read(path string, bytes int, opts ...client.OpenOption) {
	h.Helper()
	f, err := h.fs.OpenFile(h.Context(), path, os.O_RDONLY, 0, opts...)
	h.must(err)
	_, err = f.ReadAt(h.Context(), make([]byte, bytes), 0)
	h.must(err)
	h.must(f.Close(h.Context()))
}

// TestHintsReachTheServer: what a file's hints say, or those of an open, is what the I/O server
// does.
func TestHintsReachTheServer(t *testing.T) {
	h := newHintRig(t, "")
	ctx := t.Context()
	const unit = 64 << 10

	// A directory's are those of what is made in it.
	h.must(h.fs.Mkdir(ctx, "/kept", 0o700))
	h.must(h.fs.SetHints(ctx, "/kept", client.How{Policy: client.PolicyKeep, UnitBytes: 4 << 10}))
	got := h.used(func() { h.write("/kept/a", unit) }, "policy_keep", "cache_kept_bytes")
	if got["policy_keep"] < 1 || got["cache_kept_bytes"] != unit {
		t.Errorf("a write to a file that is to be kept: %v", got)
	}
	got = h.used(func() { h.read("/kept/a", unit) }, "policy_keep", "policy_scan", "cache_hits")
	if got["policy_keep"] < 1 || got["policy_scan"] != 0 || got["cache_hits"] != unit/(4<<10) {
		t.Errorf("a read in units of 4 KiB: %v", got)
	}
	h.write("/plain", unit)
	got = h.used(func() { h.read("/plain", unit) }, "policy_keep", "policy_scan", "cache_hits")
	if got["policy_keep"] != 0 || got["policy_scan"] < 1 || got["cache_hits"] != 1 {
		t.Errorf("a read without hints: %v", got)
	}

	// Past the cache, by the file's hints and by those of an open.
	h.must(h.fs.Mkdir(ctx, "/direct", 0o700))
	h.must(h.fs.SetHints(ctx, "/direct", client.How{Mode: client.Direct}))
	direct := []string{"direct_read_bytes", "direct_write_bytes"}
	got = h.used(func() { h.write("/direct/a", 1<<20); h.read("/direct/a", 1<<20) }, direct...)
	if got["direct_read_bytes"] != 1<<20 || got["direct_write_bytes"] != 1<<20 {
		t.Errorf("a direct file: %v", got)
	}
	got = h.used(func() { h.read("/direct/a", 1<<20, client.WithHints(client.How{})) }, direct...)
	if got["direct_read_bytes"] != 0 {
		t.Errorf("a direct file that was opened to be cached: %v", got)
	}
	got = h.used(func() {
		h.write("/d", 1<<20, client.WithHints(client.How{Mode: client.Direct}))
	}, direct...)
	if got["direct_write_bytes"] != 1<<20 {
		t.Errorf("a file that was opened to be direct: %v", got)
	}

	nonsense := client.WithHints(client.How{Policy: 99})
	if _, err := h.fs.OpenFile(ctx, "/d", os.O_RDONLY, 0, nonsense); !errors.Is(err, errs.Invalid) {
		t.Errorf("hints that mean nothing: %v", err)
	}

	// What is read is not kept where that is asked for.
	none := client.WithHints(client.How{Policy: client.PolicyNone})
	got = h.used(func() { h.read("/d", 1<<20, none) }, "policy_none", "cache_misses", "cache_bytes")
	if got["policy_none"] < 1 || got["cache_misses"] < 1 || got["cache_bytes"] > 0 {
		t.Errorf("a file that is not to be kept: %v", got)
	}
}

// TestHintsOnAMount: hints are set and seen as extended attributes, and programs' writes follow.
func TestHintsOnAMount(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse")
	}
	h := newHintRig(t, "--mount m")
	const policy = client.HintPrefix + "cache.policy"
	dir := filepath.Join(h.session.dir, "m", "dir")
	file := filepath.Join(dir, "file")
	h.must(os.Mkdir(dir, 0o700))
	for name, value := range map[string]string{policy: "lru2", client.HintPrefix + "other": "1"} {
		if err := unix.Setxattr(dir, name, []byte(value), 0); err != unix.EINVAL {
			t.Errorf("%s %s: %v, want EINVAL", name, value, err)
		}
	}
	h.must(unix.Setxattr(dir, policy, []byte("lru"), 0))
	got := h.used(func() { h.must(os.WriteFile(file, make([]byte, 64<<10), 0o600)) }, "policy_lru")
	if got["policy_lru"] < 1 {
		t.Errorf("a write below a directory with hints: %v", got)
	}
	value := make([]byte, 64)
	n, err := unix.Getxattr(file, policy, value)
	if err != nil || string(value[:n]) != "lru" {
		t.Errorf("%s is %q, %v", policy, value[:max(n, 0)], err)
	}
	h.must(unix.Removexattr(file, policy))
	n, err = unix.Getxattr(file, policy, value)
	if err != nil || string(value[:n]) != "scan" {
		t.Errorf("%s is %q, %v, when it was removed", policy, value[:max(n, 0)], err)
	}
}
