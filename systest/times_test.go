package systest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// timesOf is what `sluice stat --json` says of the times of a file.
type timesOf struct {
	Atime, Mtime, Ctime, Btime string
}

func (c *cluster) timesOf(t *testing.T, path string) timesOf {
	t.Helper()
	var all []timesOf
	must(t, json.Unmarshal([]byte(c.sluice(t, "stat", "--json", path)), &all))
	return all[0]
}

// TestFarTimesStay: times that lie centuries away, and times of birth, survive a restart of
// everything, a dump and its restoration, and tools show them.
func TestFarTimesStay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 1, mount: true})
	dates := map[string]string{"future": "2500-01-01 00:00:00.000000001",
		"past": "1600-02-03 04:05:06.789", "dir": "1677-01-01", "edge": "2262-04-12"}
	must(t, os.Mkdir(filepath.Join(c.mnt, "dir"), 0o755))
	want, far := map[string]string{}, map[string]timesOf{}
	show := func(name string) string {
		p := filepath.Join(c.mnt, name)
		return run(t, "", "stat", "-c", "%x %y %w", p) +
			run(t, "", "ls", "-d", "--time=birth", "--time-style=full-iso", "-l", p)
	}
	for name, date := range dates {
		run(t, "", "touch", "-d", date, filepath.Join(c.mnt, name))
		want[name], far[name] = show(name), c.timesOf(t, "/"+name)
		if born := run(t, "", "stat", "-c", "%w", filepath.Join(c.mnt, name)); born == "-\n" {
			t.Fatalf("%s has no time of birth", name)
		}
		if far[name].Mtime != far[name].Atime || far[name].Btime == "" {
			t.Fatalf("%s: %+v", name, far[name])
		}
	}
	check := func(when string) {
		t.Helper()
		for name := range dates {
			if got := show(name); got != want[name] {
				t.Errorf("%s, %s: %s, want %s", when, name, got, want[name])
			}
			if got := c.timesOf(t, "/"+name); got != far[name] {
				t.Errorf("%s, %s: %+v, want %+v", when, name, got, far[name])
			}
		}
	}
	check("at once")
	backup := filepath.Join(t.TempDir(), "backup")
	c.sluice(t, "meta", "dump", backup)
	c.restart(t)
	check("after a restart")
	c.stop(t)
	must(t, os.Rename(filepath.Join(c.dir, "meta"), filepath.Join(c.dir, "old")))
	run(t, "", c.bin, "meta", "load", "--dir", c.dir, backup)
	c.start(t)
	c.awaitReady(t, c.opts)
	check("after it was loaded")
}

// inodesUsed is how many inodes the file system has.
func inodesUsed(t *testing.T, dir string) uint64 {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	return st.Files - st.Ffree
}

// TestTmpfileOfAKilledMount: what a program had open without a name is gone with its mount; what
// it has given a name stays, with what was synced. A check finds nothing wrong before and after.
func TestTmpfileOfAKilledMount(t *testing.T) {
	t.Parallel()
	opts := clusterOptions{iods: 2, mount: true, extra: []string{"--session-time", "2s"}}
	c := startCluster(t, opts)
	before := inodesUsed(t, c.mnt)
	const n = 5
	data := make([]byte, 100_000)
	var files []*os.File
	for i := range data {
		data[i] = byte(i)
	}
	for i := range n {
		f, err := os.OpenFile(c.mnt, unix.O_TMPFILE|os.O_RDWR, 0o600)
		must(t, err)
		files = append(files, f)
		_, err = f.Write(data)
		must(t, err)
		must(t, f.Sync())
		if i == 0 {
			must(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD,
				filepath.Join(c.mnt, "kept"), unix.AT_SYMLINK_FOLLOW))
		}
	}
	if got := inodesUsed(t, c.mnt); got != before+n {
		t.Fatalf("%d inodes, %d before %d were made", got, before, n)
	}
	c.sluice(t, "fsck")
	must(t, syscall.Kill(c.pidOf(t, "mount"), syscall.SIGKILL))
	for _, f := range files {
		_ = f.Close() // which the mount that is gone cannot answer
	}
	c.awaitReady(t, opts)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var st unix.Statfs_t
		if err := unix.Statfs(c.mnt, &st); err == nil && st.Files-st.Ffree == before+1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d inodes, want %d", inodesUsed(t, c.mnt), before+1)
		}
	}
	got, err := os.ReadFile(filepath.Join(c.mnt, "kept"))
	if err != nil || string(got) != string(data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	c.sluice(t, "fsck")
}
