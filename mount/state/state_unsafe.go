package state

import (
	"sync/atomic"
	"unsafe"
)

// word is the word at a place, which is a multiple of 8. The memory is mapped, so that it does not
// move.
func (t *Table) word(at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&t.mem[at : at+8][0]))
}
