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

// first is the piece in front, or nothing.
func (v *vec) first() []byte {
	if v.at == v.to {
		return nil
	}
	return unsafe.Slice(v.iov[v.at].Base, v.iov[v.at].Len)
}

// copyIn copies b into the pieces, from the front, and returns how much fitted. It drops nothing.
func (v *vec) copyIn(b []byte) (n int) {
	for i := v.at; i < v.to && n < len(b); i++ {
		n += copy(unsafe.Slice(v.iov[i].Base, v.iov[i].Len), b[n:])
	}
	return n
}

// copyOut appends the first n bytes to b. It drops nothing.
func (v *vec) copyOut(b []byte, n int) []byte {
	for i := v.at; i < v.to && n > 0; i++ {
		p := unsafe.Slice(v.iov[i].Base, v.iov[i].Len)
		p = p[:min(n, len(p))]
		b = append(b, p...)
		n -= len(p)
	}
	return b
}

// take moves up to max bytes from the front to the end of b.
func (v *vec) take(b []byte, max int) []byte {
	n := min(max, v.bytes)
	b = v.copyOut(b, n)
	v.drop(n)
	return b
}

// addPart adds n bytes of another list, without the first skip.
func (v *vec) addPart(o *vec, skip, n int) {
	for i := o.at; i < o.to && n > 0; i++ {
		p := unsafe.Slice(o.iov[i].Base, o.iov[i].Len)
		s := min(skip, len(p))
		skip -= s
		p = p[s:]
		p = p[:min(n, len(p))]
		v.add(p)
		n -= len(p)
	}
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
