package shm

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of the kernel's futex interface.
const (
	futexWakeOp  = 1
	futexPrivate = 128
	futexU32     = 2 // the size of a word in futex_waitv
)

// futexWaiter is one word of a futex_waitv.
type futexWaiter struct {
	val   uint64
	addr  uint64
	flags uint32
	_     uint32
}

func (w *futexWaiter) set(word *atomic.Uint32, val uint32, private bool) {
	w.addr, w.val, w.flags = uint64(uintptr(unsafe.Pointer(word))), uint64(val), futexU32
	if private {
		w.flags |= futexPrivate
	}
}

// futexWait sleeps until one of the words is woken or holds another value than expected. Words may
// have been unmapped: then it returns at once. It is false where the kernel does not have
// futex_waitv.
func futexWait(list []futexWaiter) bool {
	_, _, errno := syscall.Syscall6(unix.SYS_FUTEX_WAITV,
		uintptr(unsafe.Pointer(&list[0])), uintptr(len(list)), 0, 0, 0, 0)
	return errno != syscall.ENOSYS && errno != syscall.EPERM
}

// futexWake wakes all sleepers of a word.
func futexWake(word *atomic.Uint32, private bool) {
	op := uintptr(futexWakeOp)
	if private {
		op |= futexPrivate
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), op, 1<<31-1)
}

// yield gives the core to another thread, if one waits for it.
func yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
