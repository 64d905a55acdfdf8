package diskexport

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// discardRange tells a block device that a range is not needed.
func discardRange(fd int, off, length int64) error {
	arg := [2]uint64{uint64(off), uint64(length)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.BLKDISCARD,
		uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return errno
	}
	return nil
}
