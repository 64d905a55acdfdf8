package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	benchmount "github.com/sluice-storage/sluice/bench/mount"
)

// needPeers skips a test where the peers of bench mount cannot run.
func needPeers(t *testing.T) {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("only root can start them; it takes half a minute")
	}
	for _, name := range []string{"glusterfsd", "mfsmaster", "mfschunkserver", "mfsmount"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s here", name)
		}
	}
}

// TestBenchMountPeers runs GlusterFS and MooseFS where they are installed: started, written,
// started anew with their servers, read.
func TestBenchMountPeers(t *testing.T) {
	needPeers(t)
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(linkSelf(t), "sluice"), "bench", "mount", "--quick",
		"--systems", "glusterfs,moosefs", "--only", "seq-read,find", "--cold", "servers", "--dir", dir,
		"--json")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, problems.String())
	}
	var rows bench.Rows
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{benchmount.Gluster, benchmount.Moose} {
		for _, name := range []string{"seq-read", "find"} {
			if r := rows.Find(name, who, ""); r == nil || r.Value <= 0 {
				t.Errorf("%s by %s: %+v\n%s", name, who, r, problems.String())
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestBenchMountInterrupted interrupts a bench in the middle of its work: it must end everything
// that it has started, and leave nothing.
func TestBenchMountInterrupted(t *testing.T) {
	if !canMount() {
		t.Skip("no FUSE here")
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(linkSelf(t), "sluice"), "bench", "mount", "--quick", "--rounds",
		"1000", "--only", "names-.*", "--dir", dir)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := func() string { text, _ := os.ReadFile(log.Name()); return string(text) }
	for end := time.Now().Add(time.Minute); !strings.Contains(read(), "round 1 of 1000"); {
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			t.Fatalf("it does not begin: %s", read())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ended well, and said nothing")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v\n%s", left, err, read())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left behind, %v: %s", err, mounts)
	}
	if name := runningBelow(t, dir); name != "" {
		t.Errorf("a process is left behind: %s", name)
	}
}

// runningBelow finds a process whose arguments name a folder.
func runningBelow(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if text, _ := os.ReadFile(name); strings.Contains(string(text), dir) {
			return strings.ReplaceAll(string(text), "\x00", " ")
		}
	}
	return ""
}
