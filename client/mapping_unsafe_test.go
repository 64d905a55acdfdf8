package client

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is memory that a program maps itself, at the same address each time.
type mapping struct {
	size uintptr
	at   unsafe.Pointer // nil: nowhere yet
}

func (m *mapping) mapAgain(t testing.TB) []byte {
	t.Helper()
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if m.at != nil {
		flags |= unix.MAP_FIXED_NOREPLACE
	}
	at, err := unix.MmapPtr(-1, 0, m.at, m.size, unix.PROT_READ|unix.PROT_WRITE, flags)
	must(t, err)
	m.at = at
	return unsafe.Slice((*byte)(at), m.size)
}

func (m *mapping) unmap(t testing.TB) {
	t.Helper()
	must(t, unix.MunmapPtr(m.at, m.size))
}
