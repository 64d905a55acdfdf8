package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/client"
)

// hostTree is this host.
type hostTree struct{}

func hostNode(name string, info fs.FileInfo) node {
	n := node{name: name, mode: info.Mode(), size: info.Size(), mtime: info.ModTime(),
		atime: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		n.atime = time.Unix(st.Atim.Unix())
		n.uid, n.gid = st.Uid, st.Gid
		n.rdev, n.dev, n.ino, n.links = uint64(st.Rdev), uint64(st.Dev), st.Ino, uint64(st.Nlink)
	}
	return n
}

func (hostTree) stat(_ context.Context, name string) (node, error) {
	info, err := os.Stat(name)
	if err != nil {
		return node{}, err
	}
	return hostNode(filepath.Base(name), info), nil
}

func (hostTree) lstat(_ context.Context, name string) (node, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return node{}, err
	}
	return hostNode(filepath.Base(name), info), nil
}

func (hostTree) list(_ context.Context, name string) ([]node, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var nodes []node
	for _, e := range entries {
		info, err := e.Info()
		if os.IsNotExist(err) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, hostNode(e.Name(), info))
	}
	return nodes, nil
}

func (hostTree) readlink(_ context.Context, name string) (string, error) {
	return os.Readlink(name)
}

func (hostTree) mkdir(_ context.Context, name string, perm fs.FileMode) error {
	return os.Mkdir(name, perm)
}

func (hostTree) symlink(_ context.Context, target, name string) error {
	return os.Symlink(target, name)
}

func (hostTree) link(_ context.Context, from, to string) error   { return os.Link(from, to) }
func (hostTree) rename(_ context.Context, from, to string) error { return os.Rename(from, to) }

func (hostTree) remove(_ context.Context, name string) error {
	if err := unix.Unlink(name); err != nil {
		return &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

func (hostTree) chown(_ context.Context, name string, uid, gid uint32) error {
	return os.Lchown(name, int(uid), int(gid))
}

func (hostTree) chmod(_ context.Context, name string, mode fs.FileMode) error {
	return os.Chmod(name, mode)
}

func (hostTree) chtimes(_ context.Context, name string, atime, mtime time.Time) error {
	ts := []unix.Timespec{timespec(atime), timespec(mtime)}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimensat", Path: name, Err: err}
	}
	return nil
}

// xattrs are none where the file system has none.
func (hostTree) xattrs(_ context.Context, name string) ([]client.Xattr, error) {
	list, err := growing(func(buf []byte) (int, error) { return unix.Llistxattr(name, buf) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "listxattr", Path: name, Err: err}
	}
	var all []client.Xattr
	for _, x := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if x == "" {
			continue
		}
		value, err := growing(func(buf []byte) (int, error) { return unix.Lgetxattr(name, x, buf) })
		switch {
		case err == nil:
			all = append(all, client.Xattr{Name: x, Value: value})
		case errors.Is(err, unix.ENODATA): // it was removed since
		default:
			return nil, &fs.PathError{Op: "getxattr " + x, Path: name, Err: err}
		}
	}
	return all, nil
}

// growing calls a function with a larger buffer until what it returns fits.
func growing(get func(buf []byte) (int, error)) ([]byte, error) {
	for size := 1 << 10; ; size *= 4 {
		buf := make([]byte, size)
		n, err := get(buf)
		if err == nil {
			return buf[:n], nil
		}
		if !errors.Is(err, unix.ERANGE) || size > 1<<20 {
			return nil, err
		}
	}
}

func (hostTree) setXattr(_ context.Context, name string, x client.Xattr) error {
	if err := unix.Lsetxattr(name, x.Name, x.Value, 0); err != nil {
		return &fs.PathError{Op: "setxattr " + x.Name, Path: name, Err: err}
	}
	return nil
}

func (hostTree) open(_ context.Context, name string) (source, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return hostFile{f}, nil
}

func (t hostTree) reopen(ctx context.Context, name string) (source, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	// Clean pages go, so that the disk is read; where that does not work memory is.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return hostFile{f}, nil
}

func (hostTree) create(_ context.Context, name string, perm fs.FileMode, keep bool) (sink, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if keep {
		flags = os.O_CREATE | os.O_RDWR
	}
	f, err := os.OpenFile(name, flags, perm)
	if err != nil {
		return nil, err
	}
	return hostFile{f}, nil
}

func (hostTree) mknod(_ context.Context, name string, n *node) error {
	mode := uint32(n.mode.Perm())
	switch {
	case n.mode&fs.ModeNamedPipe != 0:
		mode |= unix.S_IFIFO
	case n.mode&fs.ModeSocket != 0:
		mode |= unix.S_IFSOCK
	case n.mode&fs.ModeCharDevice != 0:
		mode |= unix.S_IFCHR
	default:
		mode |= unix.S_IFBLK
	}
	if err := unix.Mknod(name, mode, int(n.rdev)); err != nil {
		return &fs.PathError{Op: "mknod", Path: name, Err: err}
	}
	return nil
}

// hostFile is a file of this host.
type hostFile struct{ *os.File }

func (f hostFile) extent(off, size int64) (from, to int64, err error) {
	from, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case err != nil: // this file system knows nothing of holes
		return off, size, nil
	}
	to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	if err != nil {
		to = size
	}
	return min(from, size), min(to, size), nil
}

func (f hostFile) length() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// resize leaves devices alone, which have the length that they have.
func (f hostFile) resize(size int64) error {
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	return f.Truncate(size)
}

func (f hostFile) punch(off, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return writeZeroes(f, off, n)
	}
	return err
}

// timespec is a time for the kernel; years of nanoseconds would end in 2262.
func timespec(t time.Time) unix.Timespec {
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}
