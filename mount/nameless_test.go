package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// temp opens a file without a name in a directory.
func temp(t *testing.T, dir string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR|flags, 0o640)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// fileIno is the inode number of an open file.
func fileIno(t *testing.T, f *os.File) meta.Ino {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	return meta.Ino(st.Ino)
}

// awaitGone waits until the service has forgotten an inode.
func awaitGone(t *testing.T, c *cluster, ino meta.Ino) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		_, err := c.meta.GetAttr(t.Context(), meta.Caller{}, ino)
		if errs.KindOf(err) == errs.NotFound {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("inode %d is still there", ino)
		}
	}
}

// TestTmpfile: O_TMPFILE makes a file that nobody sees, that is gone with its last descriptor, and
// that linkat(2) gives a name with all that was written to it: small, and larger than that.
func TestTmpfile(t *testing.T) {
	for _, mode := range []CacheMode{CacheCloseToOpen, CacheStrict, CacheWriteback} {
		t.Run(string(mode), func(t *testing.T) { testTmpfile(t, mode) })
	}
}

func testTmpfile(t *testing.T, mode CacheMode) {
	c := newCluster(t, 2)
	dir, other := c.mount(Options{Cache: mode}).Dir(), c.mount(Options{Cache: mode}).Dir()
	for _, size := range []int{0, 100, 100_000, 3 << 20} {
		data := pattern(size, 3)
		for _, linked := range []bool{false, true} {
			f := temp(t, dir, 0)
			_, err := f.Write(data)
			must(t, err)
			var st unix.Stat_t
			must(t, unix.Fstat(int(f.Fd()), &st))
			if st.Nlink != 0 || st.Size != int64(size) || st.Mode != unix.S_IFREG|0o640 {
				t.Fatalf("%+v", st)
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
				t.Fatalf("%v, %v", names, err)
			}
			p := filepath.Join(dir, "name")
			if linked {
				must(t, linkFd(f, p))
				want(t, linkFd(f, p), unix.EEXIST)
				must(t, unix.Fstat(int(f.Fd()), &st))
				if st.Nlink != 1 {
					t.Fatalf("%d links", st.Nlink)
				}
			}
			must(t, f.Close())
			if !linked {
				awaitGone(t, c, meta.Ino(st.Ino))
				continue
			}
			equalFile(t, p, data)
			equalFile(t, filepath.Join(other, "name"), data)
			must(t, os.Remove(p))
			awaitGone(t, c, meta.Ino(st.Ino))
		}
	}
}

// TestTmpfileOpenedAgain: by way of /proc it is opened a second time, which keeps it, and gives it
// a name after the first descriptor is closed. One that was opened with O_EXCL never gets a name.
func TestTmpfileOpenedAgain(t *testing.T) {
	c := newCluster(t, 2)
	dir := c.mount(Options{}).Dir()
	f := temp(t, dir, 0)
	_, err := f.WriteString("some data")
	must(t, err)
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	must(t, err)
	defer again.Close()
	must(t, f.Close())
	if got, err := io.ReadAll(again); err != nil || string(got) != "some data" {
		t.Fatalf("%q, %v", got, err)
	}
	must(t, linkFd(again, filepath.Join(dir, "name")))
	if os.Geteuid() == 0 {
		must(t, unix.Linkat(int(again.Fd()), "", unix.AT_FDCWD, filepath.Join(dir, "second"),
			unix.AT_EMPTY_PATH))
	}
	must(t, again.Close())
	equalFile(t, filepath.Join(dir, "name"), []byte("some data"))

	never := temp(t, dir, os.O_EXCL)
	ino := fileIno(t, never)
	want(t, linkFd(never, filepath.Join(dir, "never")), unix.ENOENT)
	must(t, never.Close())
	awaitGone(t, c, ino)
}

// TestTmpfileRights: who may not write in a directory makes nothing there; what is made belongs to
// who made it; sparse files, attributes and locks are as on others.
func TestTmpfileRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be others")
	}
	dir := newCluster(t, 1).mount(Options{AllowOther: true}).Dir()
	must(t, os.Chmod(dir, 0o777))
	shut := filepath.Join(dir, "shut")
	must(t, os.Mkdir(shut, 0o755))
	group := filepath.Join(dir, "group")
	must(t, os.Mkdir(group, 0o777))
	must(t, unix.Chmod(group, 0o2777))
	must(t, os.Chown(group, 0, 77))
	asUser(t, 1234, func() {
		_, err := os.OpenFile(shut, unix.O_TMPFILE|os.O_RDWR, 0o600)
		if !errors.Is(err, unix.EACCES) {
			t.Errorf("%v, want EACCES", err)
		}
		for d, gid := range map[string]uint32{dir: 1234, group: 77} {
			f, err := os.OpenFile(d, unix.O_TMPFILE|os.O_RDWR, 0o600)
			if err != nil {
				t.Error(err)
				continue
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Uid != 1234 || st.Gid != gid {
				t.Errorf("%s: owner %d %d, %v", d, st.Uid, st.Gid, err)
			}
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Error(err)
			}
			if err := unix.Fsetxattr(int(f.Fd()), "user.x", []byte("y"), 0); err != nil {
				t.Error(err)
			}
			if err := f.Truncate(1 << 30); err != nil {
				t.Error(err)
			}
			if err := f.Sync(); err != nil {
				t.Error(err)
			}
			f.Close()
		}
	})
}

// asUser does something as a user of that number and group. Only the thread is another then.
func asUser(t *testing.T, id int, do func()) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		unix.RawSyscall(unix.SYS_SETFSGID, uintptr(id), 0, 0)
		unix.RawSyscall(unix.SYS_SETFSUID, uintptr(id), 0, 0)
		do()
	}()
	<-over
}
