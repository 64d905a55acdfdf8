package vmtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSweepLeavesWhatIsInUse(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	used, err := newScratch("used")
	if err != nil {
		t.Fatal(err)
	}
	left, err := newScratch("left")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left.path, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	left.lock.Close() // as the end of its process does
	sweep(dir, time.Hour)
	if _, err := os.Stat(left.path); err != nil {
		t.Fatalf("it is not old enough: %v", err)
	}
	sweep(dir, 0)
	all, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(all) != 1 || all[0] != used.path {
		t.Fatalf("left are %q", all)
	}
	used.remove()
	if _, err := os.Stat(used.path); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// orphanEnv makes this test binary a process that starts a guest, and is killed.
const orphanEnv = "VMTEST_ORPHAN"

// TestNoGuestOutlivesItsProcess kills a process that has a guest, without warning.
func TestNoGuestOutlivesItsProcess(t *testing.T) {
	lab := Need(t)
	if os.Getenv(orphanEnv) != "" {
		g, err := lab.Start(context.Background(), GuestConfig{Name: "orphan"})
		t.Fatalf("%v, %v: it was to be killed before", g, err)
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), orphanEnv+"=yes", "TMPDIR="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guest := waitFor(t, func() string { return childOf(cmd.Process.Pid, "-name\x00orphan\x00") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatalf("it ended well: %s", out.String())
	}
	waitFor(t, func() string {
		line, err := os.ReadFile(filepath.Join("/proc", guest, "cmdline"))
		if err != nil || len(line) == 0 { // gone, or nothing is left but its number
			return "gone"
		}
		return ""
	})
	sweep(dir, 0)
	if left, _ := filepath.Glob(filepath.Join(dir, scratchPrefix+"*")); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
}

// waitFor asks until there is an answer.
func waitFor(t *testing.T, ask func() string) string {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(20 * time.Millisecond) {
		if got := ask(); got != "" {
			return got
		}
	}
	t.Fatal("waited in vain")
	return ""
}

// childOf finds a process by its parent and a part of its command line.
func childOf(parent int, part string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(stat), ") ") // after the name: state, parent
		var state string
		var of int
		if _, err := fmt.Sscan(rest, &state, &of); err != nil || of != parent {
			continue
		}
		dir := filepath.Dir(file)
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.Contains(string(line), part) {
			return filepath.Base(dir)
		}
	}
	return ""
}
