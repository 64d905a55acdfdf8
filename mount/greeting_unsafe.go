package mount

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// greetingOf reads the kernel's first request. The kernel writes it in the host's order, as go-fuse
// reads all others.
func greetingOf(b []byte) (in fuse.InitIn, ok bool) {
	if uintptr(len(b)) > unsafe.Sizeof(in) {
		b = b[:unsafe.Sizeof(in)]
	}
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in)), b)
	return in, uintptr(n) >= unsafe.Sizeof(fuse.InHeader{})+8
}

// outHeader is the kernel's struct fuse_out_header.
type outHeader struct {
	length uint32
	status int32
	unique uint64
}

// bytes are the header as the kernel reads it.
func (h *outHeader) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Sizeof(*h))
}
