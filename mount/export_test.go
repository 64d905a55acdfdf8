package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// handle is what name_to_handle_at(2) says of a path.
func handle(t *testing.T, path string) unix.FileHandle {
	t.Helper()
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	must(t, err)
	return h
}

// byHandle opens what a handle stands for in the mount at a directory.
func byHandle(dir string, h unix.FileHandle, flags int) (*os.File, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	fd, err := unix.OpenByHandleAt(int(at.Fd()), h, flags|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "by handle"), nil
}

// dropCaches has the kernel forget what it can: names and inodes that nobody uses.
func dropCaches(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0))
}

// stale is nil where a handle stands for nothing any more.
func stale(t *testing.T, dir string, h unix.FileHandle) error {
	t.Helper()
	dropCaches(t)
	f, err := byHandle(dir, h, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ESTALE) {
		return nil
	}
	if err == nil {
		err = errors.Join(errors.New("it is still there"), f.Close())
	}
	return err
}

// TestHandles: a handle stands for its inode when the kernel has forgotten it, in another mount,
// and after the mount was made anew; when the inode is gone it is stale.
func TestHandles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("open_by_handle_at(2) needs root")
	}
	c := newCluster(t, 2)
	fs := c.client()
	dir := t.TempDir()
	m, err := Mount(context.Background(), fs, dir, Options{})
	must(t, err)
	other := c.mount(Options{}).Dir()
	deep := filepath.Join(dir, "a", "b")
	must(t, os.MkdirAll(deep, 0o755))
	p := filepath.Join(deep, "f")
	must(t, os.WriteFile(p, []byte("what is in it"), 0o644))
	must(t, os.Symlink("f", filepath.Join(deep, "l")))
	file, link, top := handle(t, p), handle(t, filepath.Join(deep, "l")), handle(t, dir)
	below := handle(t, deep)

	look := func(what, dir string) {
		t.Helper()
		for range 3 {
			dropCaches(t)
			f, err := byHandle(dir, file, unix.O_RDONLY)
			if err != nil {
				t.Fatalf("%s: the file: %v", what, err)
			}
			got := make([]byte, 100)
			n, err := f.Read(got)
			if err != nil || string(got[:n]) != "what is in it" {
				t.Fatalf("%s: %q, %v", what, got[:n], err)
			}
			must(t, f.Close())
			dropCaches(t)
			lookBelow(t, what, dir, below)
			dropCaches(t)
			l, err := byHandle(dir, link, unix.O_PATH|unix.O_NOFOLLOW)
			if err != nil {
				t.Fatalf("%s: the link: %v", what, err)
			}
			must(t, l.Close())
			d, err := byHandle(dir, top, unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				t.Fatalf("%s: the top: %v", what, err)
			}
			must(t, d.Close())
		}
	}
	look("in the mount", dir)
	look("in another", other)
	must(t, m.Unmount())
	m, err = Mount(context.Background(), fs, dir, Options{})
	must(t, err)
	t.Cleanup(func() { must(t, m.Unmount()) })
	look("mounted anew", dir)

	must(t, os.Rename(p, filepath.Join(dir, "moved")))
	look("after it was renamed", dir)
	must(t, os.Remove(filepath.Join(dir, "moved")))
	must(t, os.Remove(filepath.Join(deep, "l")))
	must(t, os.Remove(deep))
	// What the kernel still holds it finds by a handle without asking anybody, and it holds what it
	// is being told about or lets go of at this moment.
	for _, where := range []string{dir, other} {
		for _, h := range []unix.FileHandle{file, link, below} {
			eventually(t, func() error { return stale(t, where, h) })
		}
	}
}

// lookBelow opens a directory by its handle: the kernel finds the way up to the top, and the names
// that lead down.
func lookBelow(t *testing.T, what, dir string, below unix.FileHandle) {
	t.Helper()
	d, err := byHandle(dir, below, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		t.Fatalf("%s: the directory: %v", what, err)
	}
	defer d.Close()
	if path, err := os.Readlink(fmt.Sprint("/proc/self/fd/", d.Fd())); err != nil ||
		path != filepath.Join(dir, "a", "b") {
		t.Fatalf("%s: the directory is at %q, %v", what, path, err)
	}
	if _, err := d.ReadDir(-1); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var up, want unix.Stat_t
	must(t, unix.Fstatat(int(d.Fd()), "..", &up, 0))
	must(t, unix.Stat(filepath.Join(dir, "a"), &want))
	if up.Ino != want.Ino {
		t.Fatalf("%s: above it is %d, not %d", what, up.Ino, want.Ino)
	}
}
