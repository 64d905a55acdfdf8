package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBenchNBDInterrupted interrupts a bench in the middle of its work: it must end everything that
// it has started, a peer that is a daemon by itself included, and leave nothing.
func TestBenchNBDInterrupted(t *testing.T) {
	if _, err := exec.LookPath("fio"); err != nil {
		t.Skip("needs fio: make deps")
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(linkSelf(t), "sluice"), "bench", "nbd", "--quick", "--rounds",
		"1000", "--only", "disk-randread-4k-d16", "--servers", "sluice,nbd-server,qemu-nbd,null", "--dir",
		dir)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := func() string { text, _ := os.ReadFile(log.Name()); return string(text) }
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(read(), "round 1 of 1000"); {
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
	if name := runningBelow(t, dir); name != "" {
		t.Errorf("a process is left behind: %s", name)
	}
}
