package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/client"
)

// clusterFor starts a cluster for a test, and opens it.
func clusterFor(t *testing.T) (*session, clusterTree) {
	t.Helper()
	s := newSession(t, linkSelf(t))
	s.play("exec sluice up -d --dir c --iods 2 --listen 127.0.0.1:0\nuse c\n")
	c, err := openCluster(filepath.Join(s.dir, "c"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dialBy(t.Context(), s.env["SLUICE_URL"], (providersFlag{}).within(c),
		client.Options{WaitMax: toolMax})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.close)
	return s, clusterTree{fs: conn.fs}
}

// stopping is a progress that interrupts after some bytes.
type stopping struct {
	silent
	left atomic.Int64
	stop func()
}

func (s *stopping) add(n int64) {
	if s.left.Add(-n) <= 0 {
		s.stop()
	}
}

// TestInterruptedCopiesGoOn interrupts copies in both directions in the middle of a file, and goes
// on with them.
func TestInterruptedCopiesGoOn(t *testing.T) {
	s, cluster := clusterFor(t)
	host := filepath.Join(s.dir, "from")
	want := pattern(40 << 20)
	write(t, host, want)
	for _, c := range []struct {
		src, dst tree
		from, to string
		atomic   bool
	}{
		{hostTree{}, cluster, host, "/there", false},
		{hostTree{}, cluster, host, "/atomic", true},
		{cluster, hostTree{}, "/there", filepath.Join(s.dir, "back"), false},
	} {
		ctx, stop := context.WithCancel(t.Context())
		opts := copyOptions{workers: 1, sparse: "auto", atomic: c.atomic}
		p := &stopping{stop: stop}
		p.left.Store(20 << 20)
		first := newCopier(c.dst, opts, p)
		first.copy(ctx, c.src, c.from, c.to)
		sum := first.finish(ctx)
		if !sum.Interrupted || sum.Files != 0 || len(sum.Unfinished) != 1 || len(sum.Failed) != 0 {
			t.Fatalf("%s: %+v", c.to, sum)
		}
		if _, err := c.dst.stat(t.Context(), c.to); (err != nil) != c.atomic {
			t.Errorf("%s after the interruption: %v", c.to, err)
		}
		opts.resume, opts.verify = true, true
		_, sum, err := copyBetween(t, c.src, c.dst, c.from, c.to, opts)
		if err != nil || sum.Verified != 1 || sum.KeptBytes < 12<<20 ||
			sum.KeptBytes+sum.Bytes != 40<<20 {
			t.Fatalf("%s: %+v, %v", c.to, sum, err)
		}
	}
	got, err := os.ReadFile(filepath.Join(s.dir, "back"))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes came back, %v", len(got), err)
	}
}

// TestCtrlC interrupts the program itself.
func TestCtrlC(t *testing.T) {
	s, cluster := clusterFor(t)
	big := filepath.Join(s.dir, "big")
	if err := os.WriteFile(big, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, 8<<30); err != nil {
		t.Fatal(err)
	}
	cmd := s.command([]string{"sluice", "cp", "--sparse=never", "big", "sluice:/big"})
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := eventually("the copy has begun", func() bool {
		_, err := cluster.stat(t.Context(), "/big")
		return err == nil
	})
	if serr := cmd.Process.Signal(syscall.SIGINT); err == nil {
		err = serr
	}
	werr := cmd.Wait()
	if err != nil || werr == nil || cmd.ProcessState.ExitCode() != 130 {
		t.Fatalf("%v, ended with %v, %s", err, werr, problems.String())
	}
	for _, want := range []string{"unfinished: /big", "interrupted after 0 files", "--resume"} {
		if !strings.Contains(problems.String(), want) {
			t.Errorf("no %q in %s", want, problems.String())
		}
	}
}

// TestCopyKeepsEverything copies a tree with all that can be in one to a cluster and back.
func TestCopyKeepsEverything(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away and makes devices")
	}
	s, cluster := clusterFor(t)
	src := filepath.Join(s.dir, "src")
	write(t, filepath.Join(src, "d", "file"), []byte("data"))
	file := filepath.Join(src, "d", "file")
	for _, err := range []error{
		os.Link(file, filepath.Join(src, "second")),
		os.Symlink("d/file", filepath.Join(src, "link")),
		os.Lchown(filepath.Join(src, "link"), 5, 6),
		os.Chown(file, 12, 34),
		os.Chmod(file, 0o751|os.ModeSetuid|os.ModeSetgid),
		os.Chmod(filepath.Join(src, "d"), 0o500|os.ModeSticky),
		unix.Mknod(filepath.Join(src, "null"), unix.S_IFCHR|0o640, int(unix.Mkdev(1, 3))),
		unix.Mknod(filepath.Join(src, "disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(300, 70000))),
		unix.Mknod(filepath.Join(src, "socket"), unix.S_IFSOCK|0o600, 0),
		unix.Mkfifo(filepath.Join(src, "fifo"), 0o604),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	xattrs := unix.Setxattr(file, "user.color", []byte("blue"), 0) == nil
	ts := []unix.Timespec{{Sec: 1000000000, Nsec: 123456789}, {Sec: 1100000000, Nsec: 987654321}}
	for _, name := range []string{"link", "fifo", "d/file", "d", "."} {
		err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(src, name), ts, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			t.Fatal(err)
		}
	}
	opts := copyOptions{recursive: true, noFollow: true, specials: true, lenient: true, keepMode: true,
		keepOwner: true, keepTime: true, keepLinks: true, keepXattrs: true, sparse: "auto"}
	back := filepath.Join(s.dir, "back")
	if _, _, err := copyBetween(t, hostTree{}, cluster, src, "/kept", opts); err != nil {
		t.Fatal(err)
	}
	if _, _, err := copyBetween(t, cluster, hostTree{}, "/kept", back, opts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".", "d", "d/file", "second", "link", "null", "disk", "socket",
		"fifo"} {
		a, b := aboutFile(t, filepath.Join(src, name)), aboutFile(t, filepath.Join(back, name))
		if a != b {
			t.Errorf("%s was\n%s\nand came back as\n%s", name, a, b)
		}
	}
	value := make([]byte, 10)
	n, err := unix.Getxattr(filepath.Join(back, "second"), "user.color", value)
	if xattrs && (err != nil || string(value[:n]) != "blue") {
		t.Errorf("the extended attribute is %q, %v", value[:max(n, 0)], err)
	}
}

// aboutFile is all that a copy keeps of a file.
func aboutFile(t *testing.T, name string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.Fatal(err)
	}
	target, _ := os.Readlink(name)
	size, mtime := st.Size, st.Mtim
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		size = 0 // of a directory, each file system has its own
	}
	return fmt.Sprintf("mode %o uid %d gid %d links %d device %x size %d mtime %d.%d -> %s",
		st.Mode, st.Uid, st.Gid, st.Nlink, st.Rdev, size, mtime.Sec, mtime.Nsec, target)
}
