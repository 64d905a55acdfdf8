package shm

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// seals are required of memory that two processes share: it cannot shrink, so that mapped pages
// stay; it cannot grow, so that its size need be checked only once; and no seals can be added.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newMemfd makes sealed memory of size bytes that has all its pages: a host without memory is an
// error here and not a fault later. Where it is lent, whoever is given the file can only read it,
// and pages come when they are first written: by then they are there for the reader.
func newMemfd(name string, size int, lent bool) (int, []byte, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // a kernel that does not know the last flag
		fd, err = unix.MemfdCreate(name, flags)
	}
	var mem []byte
	if err == nil {
		if mem, err = populate(fd, size, lent); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		kind := errs.KindOf(err)
		if kind == errs.NoSpace {
			kind = errs.NoMemory
		}
		return -1, nil, errs.New(kind, "shm.memory", name, err)
	}
	return fd, mem, nil
}

// populate maps a memory file, allocates its pages and seals it.
func populate(fd, size int, lent bool) ([]byte, error) {
	if err := affordable(size); err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, err
	}
	with := seals | unix.F_SEAL_FUTURE_WRITE // the mapping that there is stays writable
	if !lent {
		with = seals
		if err := allocate(fd, int64(size)); err != nil {
			return nil, err
		}
	}
	mem, err := mapShared(fd, size, writable)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, with); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

// affordable refuses more memory than the host has available: allocating it could make the kernel
// kill processes.
func affordable(size int) error {
	const small = 16 << 20
	if size < small {
		return nil
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil // unknown: try
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	have := 0
	if n, _ := fmt.Sscanf(rest, "%d kB", &have); n == 1 && size>>10 >= have {
		return errs.Newf(errs.NoMemory, "shm.memory", "", "%d kB of %d kB", size>>10, have)
	}
	return nil
}

// allocate allocates all pages of a file.
func allocate(fd int, size int64) error {
	for {
		if err := unix.Fallocate(fd, 0, 0, size); err != unix.EINTR {
			return err
		}
	}
}

// How a mapping may be used.
const (
	readable = unix.PROT_READ
	writable = unix.PROT_READ | unix.PROT_WRITE
)

// mapShared maps a file. A child of a fork does not inherit the mapping.
func mapShared(fd, size, use int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, size, use, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(mem, unix.MADV_DONTFORK) // both may fail
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	return mem, nil
}

// checkMemfd looks at memory that a peer passed: it must be what newMemfd makes, of this size.
// Anything else is errs.Protocol.
func checkMemfd(fd int, size int64, lent bool) error {
	bad := func(why string) error {
		return errs.Newf(errs.Protocol, "shm", "memory of the peer", "%s", why)
	}
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return bad("no memory file: " + err.Error())
	}
	if have&seals != seals {
		return bad("it can shrink or grow")
	}
	if !lent && have&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return bad("it cannot be written")
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return bad("not ordinary memory") // huge pages fault when there are none left
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return bad("no file")
	}
	page := int64(os.Getpagesize())
	if st.Size != size || size <= 0 || size%page != 0 {
		return bad("its size is not what was announced")
	}
	if !lent && st.Blocks*512 < size {
		return bad("it lacks pages")
	}
	return nil
}

// openMemfd checks and maps what a peer passed. The descriptor stays the caller's.
func openMemfd(fd int, size int64) ([]byte, error) {
	if err := checkMemfd(fd, size, false); err != nil {
		return nil, err
	}
	mem, err := mapShared(fd, int(size), writable)
	if err != nil {
		return nil, errs.Wrap("shm", "memory of the peer", err)
	}
	return mem, nil
}
