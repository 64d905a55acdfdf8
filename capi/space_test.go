package capi

import (
	"syscall"
)

// fakeSpace is memory at an address of its own, in which a test puts what a program would.
type fakeSpace struct {
	base  uintptr
	bytes []byte
}

// newSpace has n bytes. Address 0 is no part of it, as in a process.
func newSpace(n int) *fakeSpace { return &fakeSpace{base: 0x10000, bytes: make([]byte, n)} }

func (s *fakeSpace) Bytes(addr uintptr, n int) ([]byte, error) {
	if addr < s.base || uint64(addr-s.base)+uint64(n) > uint64(len(s.bytes)) {
		return nil, fail(syscall.EFAULT, "%d bytes at %#x", n, addr)
	}
	return s.Trusted(addr, n), nil
}

func (s *fakeSpace) Trusted(addr uintptr, n int) []byte {
	at := addr - s.base
	return s.bytes[at : at+uintptr(n) : at+uintptr(n)]
}

// writer puts fields into a space, one structure after the other.
type writer struct {
	s  *fakeSpace
	at uintptr
}

func (s *fakeSpace) writer() *writer { return &writer{s, s.base} }

func (w *writer) u32(v uint32) *writer {
	native.PutUint32(w.s.bytes[w.at-w.s.base:], v)
	w.at += 4
	return w
}

func (w *writer) u64(v uint64) *writer {
	native.PutUint64(w.s.bytes[w.at-w.s.base:], v)
	w.at += 8
	return w
}

func (w *writer) i64(v int64) *writer { return w.u64(uint64(v)) }

// text puts a text with a zero behind it and returns where it is.
func (w *writer) text(s string) uintptr {
	at := w.at
	copy(w.s.bytes[at-w.s.base:], s+"\x00")
	w.at += uintptr(len(s)+8) &^ 7
	return at
}
