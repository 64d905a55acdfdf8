package tcp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vecMax is how many pieces one system call moves: a few small frames, or one with maxSge pieces.
const vecMax = 128

// vec is a list of memory pieces for readv and writev that shrinks from the front as bytes move.
// It keeps its pieces alive for the garbage collector until they are dropped.
type vec struct {
	iov    [vecMax]unix.Iovec
	at, to int // iov[at:to] remain
	bytes  int // in them
}

func (v *vec) reset() {
	clear(v.iov[:v.to])
	v.at, v.to, v.bytes = 0, 0, 0
}

// room is the number of pieces that can still be added.
func (v *vec) room() int { return vecMax - v.to }

func (v *vec) add(b []byte) {
	if len(b) == 0 {
		return
	}
	v.iov[v.to].Base = unsafe.SliceData(b)
	v.iov[v.to].Len = uint64(len(b))
	v.to++
	v.bytes += len(b)
}

// drop takes n bytes from the front.
func (v *vec) drop(n int) {
	v.bytes -= n
	for n > 0 {
		p := &v.iov[v.at]
		if uint64(n) < p.Len {
			p.Base = (*byte)(unsafe.Add(unsafe.Pointer(p.Base), n))
			p.Len -= uint64(n)
			return
		}
		n -= int(p.Len)
		*p = unix.Iovec{}
		v.at++
	}
}

func (v *vec) readv(fd uintptr) (int, syscall.Errno) {
	n, errno := v.call(unix.SYS_READV, unix.SYS_READ, fd)
	if errno == 0 {
		raceRead(v, n)
	}
	return n, errno
}

func (v *vec) writev(fd uintptr) (int, syscall.Errno) {
	raceWrite(v)
	return v.call(unix.SYS_WRITEV, unix.SYS_WRITE, fd)
}

// call uses the plain variant for a single piece, which is cheaper in the kernel.
func (v *vec) call(many, one, fd uintptr) (int, syscall.Errno) {
	for {
		var n uintptr
		var errno syscall.Errno
		p := &v.iov[v.at]
		if v.to-v.at == 1 {
			n, _, errno = syscall.Syscall(one, fd, uintptr(unsafe.Pointer(p.Base)), uintptr(p.Len))
		} else {
			count := uintptr(v.to - v.at)
			n, _, errno = syscall.Syscall(many, fd, uintptr(unsafe.Pointer(p)), count)
		}
		if errno != syscall.EINTR {
			return int(n), errno
		}
	}
}
