package shm

import (
	"sync/atomic"
	"unsafe"
)

// The types laid over mapped memory here consist of atomics only. Slicing checks the sizes.

func wordsOf(b []byte) *words { return (*words)(unsafe.Pointer(&b[:wordsBytes][0])) }

func bitmapOf(b []byte) *bitmap { return (*bitmap)(unsafe.Pointer(&b[:refusedBytes][0])) }

func slotsOf(b []byte, n int) []slot {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*slot)(unsafe.Pointer(&b[:n*slotBytes][0])), n)
}

// wordOf is the word at the beginning of a line of a ring.
func wordOf(b []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[:8][0])) }

// address is where memory begins. It is for comparison only and keeps nothing alive.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
