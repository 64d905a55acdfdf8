package net

import (
	"sync/atomic"
	"unsafe"
)

// wordAt is a word of shared memory that both processes change. off is a multiple of 4 within mem.
func wordAt(mem []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[off : off+4 : off+4][0]))
}
