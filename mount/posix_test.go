package mount

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPosix is a table of operations with what POSIX and Linux say of them. Each case has a
// directory of its own.
func TestPosix(t *testing.T) {
	root := newCluster(t, 4).mount(Options{AllowOther: true}).Dir()
	must(t, os.Chmod(root, 0o777))
	for name, test := range posixCases() {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(root, name)
			must(t, os.Mkdir(dir, 0o755))
			test(t, dir)
		})
	}
}

func posixCases() map[string]func(t *testing.T, dir string) {
	return map[string]func(t *testing.T, dir string){
		"write-read": writeRead, "append": appends, "truncate": truncates,
		"exclusive": exclusive, "links": links, "symlinks": symlinks, "rename": renames,
		"rename-flags": renameFlags, "rename-open": renameOverOpen, "unlink-open": unlinkOpen,
		"times": times, "modes": modes, "xattrs": xattrs, "statfs": statfs, "sparse": sparse,
		"punch": punch, "allocate": allocates, "mmap": mmapShared, "mknod": mknods,
		"directories": directories, "locks": locks, "direct": direct, "sync": syncs,
		"big": bigFile, "names": longNames, "owner": owners, "privileges": privileges,
	}
}

func want(t *testing.T, err error, no unix.Errno) {
	t.Helper()
	if !errors.Is(err, no) {
		t.Errorf("%v, want %v", err, no)
	}
}

func open(t *testing.T, path string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flag, 0o644)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func equalFile(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes, want %d, or other ones", path, len(got), len(want))
	}
}

func writeRead(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	data := pattern(5<<20+77, 1)
	must(t, os.WriteFile(p, data, 0o644))
	equalFile(t, p, data)
	f := open(t, p, os.O_RDWR)
	for _, off := range []int64{0, 1, 4095, 1<<20 - 1, 3 << 20, 5<<20 + 70} {
		patch := pattern(5000, byte(off))
		_, err := f.WriteAt(patch, off)
		must(t, err)
		if int(off)+len(patch) > len(data) {
			data = append(data, make([]byte, int(off)+len(patch)-len(data))...)
		}
		copy(data[off:], patch)
		if st, err := f.Stat(); err != nil || st.Size() != int64(len(data)) {
			t.Fatalf("size %v, %v", st.Size(), err)
		}
	}
	must(t, f.Close())
	equalFile(t, p, data)
}

func appends(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	a, b := open(t, p, os.O_CREATE|os.O_WRONLY|os.O_APPEND), open(t, p, os.O_WRONLY|os.O_APPEND)
	for range 50 {
		_, err := a.WriteString("aaaa")
		must(t, err)
		_, err = b.WriteString("bb")
		must(t, err)
	}
	equalFile(t, p, bytes.Repeat([]byte("aaaabb"), 50))
}

func truncates(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	data := pattern(3<<20, 2)
	must(t, os.WriteFile(p, data, 0o644))
	for _, size := range []int64{3<<20 - 1, 2 << 20, 1<<20 + 5, 4097, 100, 0} {
		must(t, os.Truncate(p, size))
		equalFile(t, p, data[:size])
	}
	must(t, os.Truncate(p, 1<<20))
	equalFile(t, p, make([]byte, 1<<20))
	_ = open(t, p, os.O_RDONLY|os.O_TRUNC) // POSIX leaves it open; every Linux file system does it
	equalFile(t, p, nil)
	must(t, os.WriteFile(p, data, 0o644))
	f := open(t, p, os.O_RDWR|os.O_TRUNC)
	if st, err := f.Stat(); err != nil || st.Size() != 0 {
		t.Fatalf("O_TRUNC left %d bytes, %v", st.Size(), err)
	}
	_, err := f.WriteAt([]byte("end"), 10)
	must(t, err)
	must(t, f.Truncate(12))
	equalFile(t, p, append(make([]byte, 10), "en"...))
}

func exclusive(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	_ = open(t, p, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	_, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	want(t, err, unix.EEXIST)
	_, err = os.OpenFile(filepath.Join(dir, "none"), os.O_RDWR, 0)
	want(t, err, unix.ENOENT)
	_, err = os.OpenFile(dir, os.O_WRONLY, 0)
	want(t, err, unix.EISDIR)
	_, err = os.OpenFile(filepath.Join(p, "x"), os.O_RDONLY, 0)
	want(t, err, unix.ENOTDIR)
}

func links(t *testing.T, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte("one"), 0o644))
	must(t, os.Link(a, b))
	var st unix.Stat_t
	must(t, unix.Stat(b, &st))
	if st.Nlink != 2 {
		t.Errorf("%d links", st.Nlink)
	}
	must(t, os.WriteFile(b, []byte("two!"), 0o644))
	equalFile(t, a, []byte("two!"))
	must(t, os.Remove(a))
	equalFile(t, b, []byte("two!"))
	want(t, os.Link(b, b), unix.EEXIST)
	want(t, os.Link(dir, filepath.Join(dir, "d")), unix.EPERM)
}

func symlinks(t *testing.T, dir string) {
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644))
	l := filepath.Join(dir, "l")
	must(t, os.Symlink("f", l))
	equalFile(t, l, []byte("x"))
	if s, err := os.Readlink(l); err != nil || s != "f" {
		t.Errorf("%q, %v", s, err)
	}
	st, err := os.Lstat(l)
	if err != nil || st.Mode()&os.ModeSymlink == 0 || st.Size() != 1 {
		t.Errorf("%v, %v", st, err)
	}
	must(t, os.Symlink("self", filepath.Join(dir, "self")))
	_, err = os.Stat(filepath.Join(dir, "self"))
	want(t, err, unix.ELOOP)
	must(t, os.Remove(l))
	equalFile(t, filepath.Join(dir, "f"), []byte("x"))
}

func renames(t *testing.T, dir string) {
	j := func(s string) string { return filepath.Join(dir, s) }
	must(t, os.MkdirAll(j("d/e"), 0o755))
	must(t, os.WriteFile(j("a"), []byte("a"), 0o644))
	must(t, os.WriteFile(j("b"), []byte("b"), 0o644))
	must(t, os.Rename(j("a"), j("b")))
	equalFile(t, j("b"), []byte("a"))
	must(t, os.Rename(j("b"), j("d/e/c")))
	equalFile(t, j("d/e/c"), []byte("a"))
	want(t, os.Rename(j("d"), j("d/e/x")), unix.EINVAL)
	want(t, os.Rename(j("none"), j("x")), unix.ENOENT)
	must(t, os.Mkdir(j("full"), 0o755))
	must(t, os.WriteFile(j("full/x"), nil, 0o644))
	want(t, unix.Rename(j("d"), j("full")), unix.ENOTEMPTY)
	must(t, os.Mkdir(j("empty"), 0o755))
	must(t, unix.Rename(j("d"), j("empty")))
	equalFile(t, j("empty/e/c"), []byte("a"))
	must(t, os.WriteFile(j("file"), nil, 0o644))
	want(t, unix.Rename(j("file"), j("full")), unix.EISDIR)
	want(t, unix.Rename(j("full"), j("file")), unix.ENOTDIR)
}

func renameFlags(t *testing.T, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte("a"), 0o644))
	must(t, os.WriteFile(b, []byte("b"), 0o644))
	at := unix.AT_FDCWD
	want(t, unix.Renameat2(at, a, at, b, unix.RENAME_NOREPLACE), unix.EEXIST)
	must(t, unix.Renameat2(at, a, at, b, unix.RENAME_EXCHANGE))
	equalFile(t, a, []byte("b"))
	equalFile(t, b, []byte("a"))
	must(t, unix.Renameat2(at, a, at, filepath.Join(dir, "c"), unix.RENAME_NOREPLACE))
	want(t, unix.Renameat2(at, a, at, b, unix.RENAME_EXCHANGE), unix.ENOENT)
	must(t, unix.Renameat2(at, b, at, filepath.Join(dir, "d"), unix.RENAME_WHITEOUT))
	var st unix.Stat_t
	must(t, unix.Lstat(b, &st))
	if st.Mode != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("a whiteout has mode %o, device %d", st.Mode, st.Rdev)
	}
	equalFile(t, filepath.Join(dir, "d"), []byte("a"))
	want(t, unix.Renameat2(at, b, at, a, unix.RENAME_WHITEOUT|unix.RENAME_EXCHANGE), unix.EINVAL)
}

func renameOverOpen(t *testing.T, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must(t, os.WriteFile(a, []byte("old"), 0o644))
	f := open(t, a, os.O_RDWR)
	must(t, os.WriteFile(b, []byte("new"), 0o644))
	must(t, os.Rename(b, a))
	_, err := f.WriteAt([]byte("OLD and more"), 0)
	must(t, err)
	got := make([]byte, 12)
	_, err = f.ReadAt(got, 0)
	if err != nil || string(got) != "OLD and more" {
		t.Errorf("%q, %v", got, err)
	}
	equalFile(t, a, []byte("new"))
}

func unlinkOpen(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	f := open(t, p, os.O_CREATE|os.O_RDWR)
	data := pattern(2<<20, 3)
	_, err := f.Write(data)
	must(t, err)
	must(t, os.Remove(p))
	_, err = os.Stat(p)
	want(t, err, unix.ENOENT)
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	if st.Nlink != 0 || st.Size != 2<<20 {
		t.Errorf("links %d, size %d", st.Nlink, st.Size)
	}
	_, err = f.WriteAt([]byte("tail"), 2<<20)
	must(t, err)
	must(t, f.Sync())
	got := make([]byte, 2<<20+4)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, append(data, "tail"...)) {
		t.Errorf("other bytes, %v", err)
	}
	must(t, f.Truncate(5))
	must(t, f.Chmod(0o600))
}

func times(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	f := open(t, p, os.O_CREATE|os.O_RDWR)
	_, err := f.WriteString("x")
	must(t, err)
	at, mt := time.Unix(123456789, 987654321), time.Unix(-5, 4)
	must(t, os.Chtimes(p, at, mt))
	must(t, f.Close())
	var st unix.Stat_t
	must(t, unix.Stat(p, &st))
	if st.Mtim.Nano() != mt.UnixNano() || st.Atim.Nano() != at.UnixNano() {
		t.Errorf("times %v %v: closing undid them", st.Atim, st.Mtim)
	}
	before := time.Now().Add(-time.Second).UnixNano()
	must(t, os.WriteFile(p, []byte("y"), 0o644))
	must(t, unix.Stat(p, &st))
	if st.Mtim.Nano() < before || st.Ctim.Nano() < before {
		t.Errorf("writing did not change the times: %v", st.Mtim)
	}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{
		{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}, 0))
}

func modes(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	must(t, os.WriteFile(p, nil, 0o644))
	for _, m := range []uint32{0o600, 0o4755, 0o2755, 0o1777, 0} {
		must(t, unix.Chmod(p, m))
		var st unix.Stat_t
		must(t, unix.Stat(p, &st))
		if st.Mode&0o7777 != m {
			t.Errorf("mode %o, want %o", st.Mode&0o7777, m)
		}
	}
}

func owners(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	must(t, os.WriteFile(p, nil, 0o644))
	if os.Geteuid() != 0 {
		want(t, os.Chown(p, 0, 0), unix.EPERM)
		return
	}
	must(t, os.Chown(p, 12, 34))
	var st unix.Stat_t
	must(t, unix.Stat(p, &st))
	if st.Uid != 12 || st.Gid != 34 {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
}

func statfs(t *testing.T, dir string) {
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	if st.Blocks*uint64(st.Bsize) != 4<<30 || st.Bfree == 0 || st.Namelen != 255 || st.Ffree == 0 {
		t.Errorf("%+v", st)
	}
}

func mknods(t *testing.T, dir string) {
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o644))
	st, err := os.Lstat(fifo)
	if err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("%v, %v", st, err)
	}
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(fifo, []byte("through"), 0) }()
	equalFile(t, fifo, []byte("through"))
	must(t, <-done)
	must(t, unix.Mknod(filepath.Join(dir, "reg"), unix.S_IFREG|0o600, 0))
	equalFile(t, filepath.Join(dir, "reg"), nil)
	if os.Geteuid() == 0 {
		dev := filepath.Join(dir, "dev")
		must(t, unix.Mknod(dev, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		var st unix.Stat_t
		must(t, unix.Stat(dev, &st))
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
			t.Errorf("mode %o device %x", st.Mode, st.Rdev)
		}
	}
}

func directories(t *testing.T, dir string) {
	sub := filepath.Join(dir, "sub")
	must(t, os.Mkdir(sub, 0o755))
	want(t, os.Mkdir(sub, 0o755), unix.EEXIST)
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	if st.Nlink != 3 {
		t.Errorf("%d links of a directory with one subdirectory", st.Nlink)
	}
	must(t, os.WriteFile(filepath.Join(sub, "f"), nil, 0o644))
	want(t, unix.Rmdir(sub), unix.ENOTEMPTY)
	want(t, unix.Unlink(sub), unix.EISDIR)
	want(t, unix.Rmdir(filepath.Join(sub, "f")), unix.ENOTDIR)
	must(t, os.RemoveAll(sub))
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	must(t, d.Sync())
	names, err := d.Readdirnames(-1)
	if err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// locks are the kernel's: SQLite needs fcntl locks within one mount.
func locks(t *testing.T, dir string) {
	f := open(t, filepath.Join(dir, "f"), os.O_CREATE|os.O_RDWR)
	g := open(t, filepath.Join(dir, "f"), os.O_RDWR)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	want(t, unix.Flock(int(g.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	lock := &unix.Flock_t{Type: unix.F_WRLCK, Start: 10, Len: 5}
	must(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, lock))
	want(t, unix.FcntlFlock(g.Fd(), unix.F_OFD_SETLK, lock), unix.EAGAIN)
}

func direct(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	data := pattern(1<<20, 8)
	must(t, os.WriteFile(p, data, 0o644))
	fd, err := unix.Open(p, unix.O_RDWR|unix.O_DIRECT, 0)
	must(t, err)
	defer unix.Close(fd)
	buf, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	defer unix.Munmap(buf)
	if n, err := unix.Pread(fd, buf, 0); err != nil || !bytes.Equal(buf[:n], data) {
		t.Fatalf("%d, %v", n, err)
	}
	for i := range buf {
		buf[i]++
	}
	if n, err := unix.Pwrite(fd, buf, 4096); err != nil || n != len(buf) {
		t.Fatalf("%d, %v", n, err)
	}
	equalFile(t, p, append(data[:4096:4096], buf...))
}

func syncs(t *testing.T, dir string) {
	f := open(t, filepath.Join(dir, "f"), os.O_CREATE|os.O_RDWR)
	must(t, f.Sync())
	_, err := f.WriteString("x")
	must(t, err)
	must(t, f.Sync())
	must(t, unix.Fdatasync(int(f.Fd())))
	r := open(t, filepath.Join(dir, "f"), os.O_RDONLY)
	must(t, r.Sync())
	g := open(t, filepath.Join(dir, "g"), os.O_CREATE|os.O_RDWR|os.O_SYNC)
	_, err = g.WriteString("y")
	must(t, err)
}

func bigFile(t *testing.T, dir string) {
	p := filepath.Join(dir, "f")
	f := open(t, p, os.O_CREATE|os.O_RDWR)
	data := pattern(1<<20, 1)
	for i := range 32 {
		data[0] = byte(i)
		_, err := f.Write(data)
		must(t, err)
	}
	_, err := f.Seek(0, io.SeekStart)
	must(t, err)
	got := make([]byte, 1<<20)
	for i := range 32 {
		_, err := io.ReadFull(f, got)
		must(t, err)
		if data[0] = byte(i); !bytes.Equal(got, data) {
			t.Fatalf("other bytes in MiB %d", i)
		}
	}
}

func longNames(t *testing.T, dir string) {
	long := string(bytes.Repeat([]byte("n"), 255))
	must(t, os.WriteFile(filepath.Join(dir, long), nil, 0o644))
	_, err := os.Create(filepath.Join(dir, long+"x"))
	want(t, err, unix.ENAMETOOLONG)
	for _, odd := range []string{"sp ace", "new\nline", "\xff\xfe", "日本"} {
		must(t, os.WriteFile(filepath.Join(dir, odd), []byte(odd), 0o644))
		equalFile(t, filepath.Join(dir, odd), []byte(odd))
	}
}
