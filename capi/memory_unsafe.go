package capi

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Process is the memory of this process.
type Process struct{}

// Bytes implements Space.
func (p Process) Bytes(addr uintptr, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if !isMapped(addr, n) {
		return nil, fail(syscall.EFAULT, "%d bytes at %#x are not mapped", n, addr)
	}
	return p.Trusted(addr, n), nil
}

// Trusted implements Space.
func (Process) Trusted(addr uintptr, n int) []byte {
	if n == 0 {
		return nil
	}
	// A conversion would do; but it is said that addresses do not become pointers, and for those of
	// Go's heap, where these never lie, that is right.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// residentMax is how many pages one look covers.
const residentMax = 4096

// isMapped tells whether there is memory, by mincore(2): it looks at the tables of the kernel, and
// touches nothing. That memory may be written to it does not tell.
func isMapped(addr uintptr, n int) bool {
	var pages [residentMax]byte
	first := addr &^ (pageBytes - 1)
	last := (addr + uintptr(n) - 1) &^ (pageBytes - 1)
	for at := first; ; {
		count := min((last-at)/pageBytes+1, residentMax)
		_, _, errno := syscall.RawSyscall(unix.SYS_MINCORE, at, count*pageBytes,
			uintptr(unsafe.Pointer(&pages[0])))
		if errno != 0 {
			return false
		}
		if at += count * pageBytes; at > last || at < first {
			runtime.KeepAlive(&pages)
			return true
		}
	}
}

// address is where memory lies.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// mapBytes is memory that is no part of Go's heap.
func mapBytes(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, errs.Wrap("sluice_alloc", "", err)
	}
	return b, nil
}

func unmap(b []byte) { _ = unix.Munmap(b) } // it was mapped, and is not any more
