package shm

import "unsafe"

// What is laid over mapped memory here is made of atomics only; newView has checked the sizes by
// slicing.

func wordsOf(b []byte) *words { return (*words)(unsafe.Pointer(&b[:wordsBytes][0])) }

func bitmapOf(b []byte) *bitmap { return (*bitmap)(unsafe.Pointer(&b[:refusedBytes][0])) }

func slotsOf(b []byte, n int) []slot {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*slot)(unsafe.Pointer(&b[:n*slotBytes][0])), n)
}

// address is where memory begins. It compares addresses only and keeps nothing alive.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
