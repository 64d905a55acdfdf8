package regcache

import "unsafe"

// extentOf is where memory lies. Addresses are compared and never turned back into memory.
func extentOf(mem []byte) extent {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return extent{lo, lo + uintptr(len(mem))}
}
