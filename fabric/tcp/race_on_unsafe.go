//go:build race

package tcp

import (
	"runtime"
	"unsafe"
)

// The race detector does not see what system calls do to memory, nor that what left one socket
// before it arrived at another happened before it. Package syscall tells it, and so must who
// calls the kernel directly: otherwise tests with both ends in one process report races that are
// none, and miss real ones. Only builds with -race have this variable.
var ioOrder byte

// raceEnabled tells tests that counting allocations makes no sense.
const raceEnabled = true

func raceRead(v *vec, n int) {
	runtime.RaceAcquire(unsafe.Pointer(&ioOrder))
	raceRange(v, n, runtime.RaceWriteRange)
}

func raceWrite(v *vec) {
	raceRange(v, v.bytes, runtime.RaceReadRange)
	runtime.RaceReleaseMerge(unsafe.Pointer(&ioOrder))
}

func raceRange(v *vec, n int, touch func(unsafe.Pointer, int)) {
	for i := v.at; n > 0 && i < v.to; i++ {
		p := v.iov[i]
		size := min(n, int(p.Len))
		touch(unsafe.Pointer(p.Base), size)
		n -= size
	}
}
