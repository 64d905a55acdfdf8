package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore asks which pages are in memory.
func mincore(mem, vec []byte) error {
	_, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		uintptr(unsafe.Pointer(&vec[0])))
	if no != 0 {
		return no
	}
	return nil
}
