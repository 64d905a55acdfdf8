package regcache

import "unsafe"

// extentOf is where memory lies. Addresses are compared and never turned back into memory.
func extentOf(mem []byte) extent {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return extent{lo, lo + uintptr(len(mem))}
}

// objectOf is the address of the object of Go's heap that the memory is a part of; 0 if it is none.
// There is no public way to ask, and the public functions that need such an object end the
// process when they are given mapped memory. The runtime promises to keep this one as it is
// (go.dev/issue/67401).
func objectOf(mem []byte) uintptr {
	base, _, _ := findObject(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), 0, 0)
	return base
}

//go:linkname findObject runtime.findObject
func findObject(p, refBase, refOff uintptr) (base uintptr, span unsafe.Pointer, index uintptr)

// stretch is n bytes from the beginning of mem on, which lie in the same object.
func stretch(mem []byte, n uintptr) []byte { return unsafe.Slice(unsafe.SliceData(mem), n) }
