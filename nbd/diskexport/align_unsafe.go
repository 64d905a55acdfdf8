package diskexport

import "unsafe"

// memAlign is the alignment of memory that direct I/O takes everywhere.
const memAlign = 512

// aligned tells whether all of the list can be given to direct I/O with blocks of that many bytes.
func aligned(bufs [][]byte, grain int64) bool {
	for _, b := range bufs {
		if len(b) == 0 || int64(len(b))%grain != 0 ||
			uintptr(unsafe.Pointer(unsafe.SliceData(b)))%memAlign != 0 {
			return false
		}
	}
	return true
}

// newAligned makes memory that begins at a page.
func newAligned(n int) []byte {
	b := make([]byte, n+blockBytes)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (blockBytes - 1)
	return b[skip : skip+n : skip+n]
}
