package mount

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func sparse(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	f := open(t, p, os.O_CREATE|os.O_RDWR)
	for _, off := range []int64{3 << 20, 9 << 20} {
		_, err := f.WriteAt(pattern(1<<20, 1), off)
		must(t, err)
	}
	must(t, f.Truncate(20<<20))
	for _, test := range []struct {
		off    int64
		whence int
		want   int64
	}{
		{0, unix.SEEK_DATA, 3 << 20}, {0, unix.SEEK_HOLE, 0}, {3 << 20, unix.SEEK_HOLE, 4 << 20},
		{4 << 20, unix.SEEK_DATA, 9 << 20}, {9<<20 + 5, unix.SEEK_DATA, 9<<20 + 5},
		{9 << 20, unix.SEEK_HOLE, 10 << 20}, {19 << 20, unix.SEEK_HOLE, 19 << 20},
	} {
		got, err := unix.Seek(int(f.Fd()), test.off, test.whence)
		if err != nil || got != test.want {
			t.Errorf("seek %d whence %d: %d, want %d, %v", test.off, test.whence, got, test.want, err)
		}
	}
	_, err := unix.Seek(int(f.Fd()), 10<<20, unix.SEEK_DATA)
	want(t, err, unix.ENXIO)
	_, err = unix.Seek(int(f.Fd()), 20<<20, unix.SEEK_HOLE)
	want(t, err, unix.ENXIO)
	huge := filepath.Join(dir, "huge")
	must(t, os.WriteFile(huge, nil, 0o644))
	must(t, os.Truncate(huge, 1<<50))
	g := open(t, huge, os.O_RDWR)
	_, err = g.WriteAt([]byte("far"), 1<<50)
	must(t, err)
	off, err := unix.Seek(int(g.Fd()), 0, unix.SEEK_DATA)
	if err != nil || off > 1<<50 || off < 1<<50-65536 {
		t.Errorf("data of a huge file at %d, %v", off, err)
	}
}

func punch(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	data := pattern(6<<20, 4)
	must(t, os.WriteFile(p, data, 0o644))
	f := open(t, p, os.O_RDWR)
	for _, r := range [][2]int64{{100, 50}, {1<<20 - 5, 1<<20 + 10}, {5 << 20, 9 << 20}} {
		must(t, unix.Fallocate(int(f.Fd()), punchMode, r[0], r[1]))
		clear(data[r[0]:min(r[0]+r[1], int64(len(data)))])
		equalFile(t, p, data)
	}
}

func allocates(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	f := open(t, p, os.O_CREATE|os.O_RDWR)
	_, err := f.Write(pattern(1000, 1))
	must(t, err)
	// What cannot be done says so, and nothing changes.
	for _, mode := range []uint32{unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE,
		unix.FALLOC_FL_UNSHARE_RANGE, unix.FALLOC_FL_UNSHARE_RANGE | unix.FALLOC_FL_KEEP_SIZE} {
		want(t, unix.Fallocate(int(f.Fd()), mode, 0, 4096), unix.EOPNOTSUPP)
		equalFile(t, p, pattern(1000, 1))
	}
	data := pattern(1000, 1)
	for _, x := range []struct {
		mode    uint32
		off, n  int64
		grow    bool
		zeroes  bool
		refused unix.Errno
	}{
		{0, 0, 500, false, false, 0},
		{unix.FALLOC_FL_KEEP_SIZE, 100, 3 << 20, false, false, 0},
		{0, 700, 1 << 20, true, false, 0},
		{unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, 900, 2 << 20, false, true, 0},
		{unix.FALLOC_FL_ZERO_RANGE, 10, 2 << 20, true, true, 0},
		{unix.FALLOC_FL_ZERO_RANGE, 3, 4, false, true, 0},
		{0, 0, 0, false, false, unix.EINVAL}, {0, 1 << 62, 1 << 62, false, false, unix.EFBIG},
	} {
		err := unix.Fallocate(int(f.Fd()), x.mode, x.off, x.n)
		if x.refused != 0 {
			want(t, err, x.refused)
			continue
		}
		must(t, err)
		if x.grow {
			data = append(data, make([]byte, x.off+x.n-int64(len(data)))...)
		}
		if x.zeroes {
			clear(data[x.off:min(x.off+x.n, int64(len(data)))])
		}
		equalFile(t, p, data)
	}
	must(t, f.Close())
	equalFile(t, p, data)
	g := open(t, p, os.O_RDONLY)
	want(t, unix.Fallocate(int(g.Fd()), 0, 0, 10), unix.EBADF)
}

// privileges are lost when an ordinary user changes the file.
func privileges(t *testing.T, dir string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	p := filepath.Join(dir, "f")
	for name, script := range map[string]string{
		"write": "echo x >>" + p, "overwrite": "echo x >" + p, "truncate": "truncate -s 1 " + p,
		"chown": "",
	} {
		must(t, os.WriteFile(p, []byte("xyz"), 0o644))
		must(t, unix.Chmod(p, 0o6777))
		if script == "" {
			must(t, os.Chown(p, 5, 5))
		} else {
			cmd := exec.Command("sh", "-c", script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 7, Gid: 7}}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
		}
		var st unix.Stat_t
		must(t, unix.Stat(p, &st))
		if st.Mode&0o7777 != 0o777 {
			t.Errorf("%s: mode %o", name, st.Mode&0o7777)
		}
	}
}

// TestReadDirWhileChanging lists a directory of 5000 entries while others come and go: those that
// stay are seen exactly once.
func TestReadDirWhileChanging(t *testing.T) {
	dir := newMount(t)
	const n = 5000
	var wg sync.WaitGroup
	for part := range 5 {
		wg.Go(func() {
			for i := part; i < n; i += 5 {
				path := fmt.Sprintf("%s/stay%d", dir, i)
				if err := unix.Mknod(path, unix.S_IFREG|0o644, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				p := fmt.Sprintf("%s/go%d", dir, i%100)
				_ = os.WriteFile(p, nil, 0o644)
				_ = os.Rename(p, p+"x")
				_ = os.Remove(p + "x")
			}
		}
	})
	for range 3 {
		d, err := os.Open(dir)
		must(t, err)
		var names []string
		for {
			part, err := d.Readdirnames(100)
			names = append(names, part...)
			if err == io.EOF {
				break
			}
			must(t, err)
		}
		must(t, d.Close())
		names = slices.DeleteFunc(names, func(s string) bool { return s[0] == 'g' })
		slices.Sort(names)
		if len(names) != n || len(slices.Compact(names)) != n {
			t.Errorf("%d names, %d different, want %d", len(names), len(slices.Compact(names)), n)
		}
	}
	close(stop)
	wg.Wait()
}

func xattrs(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	must(t, os.WriteFile(p, nil, 0o644))
	must(t, unix.Setxattr(p, "user.a", []byte("one"), unix.XATTR_CREATE))
	want(t, unix.Setxattr(p, "user.a", []byte("x"), unix.XATTR_CREATE), unix.EEXIST)
	want(t, unix.Setxattr(p, "user.b", []byte("x"), unix.XATTR_REPLACE), unix.ENODATA)
	must(t, unix.Setxattr(p, "user.b", pattern(5000, 1), 0))
	buf := make([]byte, 8192)
	n, err := unix.Getxattr(p, "user.b", buf)
	if err != nil || !bytes.Equal(buf[:n], pattern(5000, 1)) {
		t.Errorf("%d, %v", n, err)
	}
	n, err = unix.Getxattr(p, "user.b", nil)
	if err != nil || n != 5000 {
		t.Errorf("size query: %d, %v", n, err)
	}
	_, err = unix.Getxattr(p, "user.b", buf[:10])
	want(t, err, unix.ERANGE)
	n, err = unix.Listxattr(p, buf)
	names := bytes.Split(bytes.TrimRight(buf[:n], "\x00"), []byte{0})
	if err != nil || len(names) != 2 {
		t.Errorf("%q, %v", buf[:n], err)
	}
	must(t, unix.Removexattr(p, "user.a"))
	_, err = unix.Getxattr(p, "user.a", buf)
	want(t, err, unix.ENODATA)
}
