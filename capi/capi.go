// Package capi is libsluice without C: handles that are numbers, structures of sluice.h read from
// memory by offset, errors that become errno values, and package client behind all that. The
// library itself, capi/libsluice, only hands its arguments over, so that what can be wrong with
// them is found here, and tested here.
//
// It trusts nothing that a program passes: handles are looked up, memory is looked at before it is
// touched, sizes are compared. What is wrong is an error of the call and leaves the process alone.
//
// Read capi.go first, then handle.go, memory.go (what a program points to), structs.go (what lies
// there), connect.go, file.go, list.go, queue.go, array.go, names.go.
package capi

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/sluice-storage/sluice/errs"
)

// Lib is all that one process has open. Safe for concurrent use.
type Lib struct {
	objects table
	space   Space
	lent    lent

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// New makes a library over the memory that programs point into.
func New(space Space) *Lib {
	l := &Lib{space: space, conns: map[*conn]struct{}{}}
	l.lent.idle = sync.NewCond(&l.lent.mu)
	return l
}

// Major and Minor are the version of the interface, as in sluice.h.
const (
	Major = 1
	Minor = 0
)

// Version is what sluice_version tells.
func Version(build string) string { return fmt.Sprintf("%d.%d (build %s)", Major, Minor, build) }

// TextMax is how much is told of an error, with the zero behind it: sluice.h has a buffer of that
// size for each thread.
const TextMax = 512

// Do runs a call and turns what comes of it into what C sees: a value that is not negative, or a
// negative errno, whose story is written to text, a buffer of TextMax bytes. A call that panics has
// failed and no more: one that touched memory that is not there is EFAULT.
func Do(text []byte, call func() (int64, error)) (result int64) {
	debug.SetPanicOnFault(true) // of this goroutine: it is a thread's, or a request's
	defer func() {
		if r := recover(); r != nil {
			result = Fail(text, panicked(r))
		}
	}()
	n, err := call()
	if err != nil {
		return Fail(text, err)
	}
	return n
}

// Fail is the result of a call that has failed.
func Fail(text []byte, err error) int64 {
	no := Errno(err)
	if len(text) > 0 {
		story := err.Error()
		if errs.KindOf(err) == errs.Canceled {
			story = "the connection was closed meanwhile"
		}
		putText(text, story)
	}
	return -int64(no)
}

// putText writes a text with a zero behind it, cut where there is no more room.
func putText(to []byte, text string) {
	n := copy(to[:len(to)-1], text)
	to[n] = 0
}

// Errno is what errno is set to for an error; never 0. Calls are ended only by a disconnection.
func Errno(err error) syscall.Errno {
	var own *failure
	switch {
	case errors.As(err, &own):
		return own.no
	case errors.Is(err, io.EOF): // a read handles it; anywhere else it is none of the caller's
		return syscall.EIO
	case errs.KindOf(err) == errs.Canceled:
		return syscall.EBADF
	}
	if no := errs.Errno(err); no != 0 {
		return no
	}
	return syscall.EIO
}

// panicked is the error for a panic.
func panicked(r any) error {
	var fault interface{ Addr() uintptr }
	if err, ok := r.(runtime.Error); ok && errors.As(err, &fault) {
		return fail(syscall.EFAULT, "memory at %#x cannot be used like that", fault.Addr())
	}
	buf := make([]byte, 4<<10)
	return fail(syscall.EIO, "the library has failed: %v\n%s", r, buf[:runtime.Stack(buf, false)])
}

// failure is an error that has an errno and no kind, because only callers from C can make it.
type failure struct {
	no   syscall.Errno
	text string
}

func (f *failure) Error() string { return f.text }

func fail(no syscall.Errno, format string, args ...any) error {
	return &failure{no, fmt.Sprintf(format, args...)}
}
