package fabric

import "unsafe"

// OffsetIn returns where inner starts inside outer, or -1 when it does not lie inside. It only
// compares addresses.
func OffsetIn(outer, inner []byte) int {
	o := uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	i := uintptr(unsafe.Pointer(unsafe.SliceData(inner)))
	if i < o || i-o > uintptr(len(outer)) || uintptr(len(inner)) > uintptr(len(outer))-(i-o) {
		return -1
	}
	return int(i - o)
}
