package fabric

import "unsafe"

// within tells whether inner lies inside outer. It compares addresses only and keeps none of them.
func within(outer, inner []byte) bool {
	if len(inner) == 0 {
		return true
	}
	o := uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	i := uintptr(unsafe.Pointer(unsafe.SliceData(inner)))
	return i >= o && i-o <= uintptr(len(outer)) && uintptr(len(inner)) <= uintptr(len(outer))-(i-o)
}
