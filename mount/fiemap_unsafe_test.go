package mount

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestFiemapIsNotThere: the kernel answers FS_IOC_FIEMAP by itself, and asks no FUSE file system.
func TestFiemapIsNotThere(t *testing.T) {
	name := filepath.Join(newMount(t), "f")
	must(t, os.WriteFile(name, pattern(1<<20, 1), 0o644))
	f := open(t, name, os.O_RDWR)
	const fiemap = 0xc020660b
	request := struct {
		start, length              uint64
		flags, mapped, count, zero uint32
		extent                     [56]byte
	}{length: ^uint64(0), count: 1}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemap, uintptr(unsafe.Pointer(&request)))
	want(t, errno, unix.EOPNOTSUPP)
}
