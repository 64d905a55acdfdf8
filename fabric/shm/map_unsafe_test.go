package shm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapOver maps a file in the place of memory that is mapped already.
func mapOver(mem []byte, fd int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(&mem[0]), uintptr(len(mem)),
		unix.PROT_READ|unix.PROT_WRITE, syscall.MAP_SHARED|unix.MAP_FIXED)
	return err
}
