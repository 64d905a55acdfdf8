package logstore

import "unsafe"

// aligned tells whether direct I/O can use the memory as it is.
func aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%blockBytes == 0
}

// alignedBytes makes a buffer that direct I/O can use.
func alignedBytes(n int) []byte {
	b := make([]byte, n+blockBytes)
	at := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % blockBytes)
	if at > 0 {
		at = blockBytes - at
	}
	return b[at : at+n : at+n]
}
