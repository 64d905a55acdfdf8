// Package errs is the vocabulary of operating errors: what failed (operation and object), why
// (kind) and what lies underneath. A Kind survives the wire and maps to exactly one errno, so that
// an error raised by a disk on one host reaches a program on another one with its meaning intact.
//
// It does not hold programmer errors: those panic through internal/invariant.
//
// Read errs.go first, then kind.go for the table of kinds.
package errs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Error is one operating error. All fields but Kind may be empty.
type Error struct {
	Op     string // what was attempted, e.g. "stripe.Write"
	Object string // on what, e.g. "object 12.1.3" or a path
	Kind   Kind   // why it failed; decides the errno and whether a retry makes sense
	Err    error  // the cause, if any; does not cross the wire except as text
}

// New returns an *Error. A nil cause is allowed.
func New(kind Kind, op, object string, cause error) error {
	return &Error{Op: op, Object: object, Kind: kind, Err: cause}
}

// Newf returns an *Error whose cause is a formatted text.
func Newf(kind Kind, op, object, format string, args ...any) error {
	return &Error{Op: op, Object: object, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Wrap puts operation and object around a cause and keeps the cause's kind. Wrap of nil is nil.
func Wrap(op, object string, cause error) error {
	if cause == nil {
		return nil
	}
	return &Error{Op: op, Object: object, Kind: KindOf(cause), Err: cause}
}

// Error reads "op object: kind: cause", leaving out what is empty and a cause that repeats the
// kind.
func (e *Error) Error() string {
	s := e.Op
	if e.Object != "" {
		if s != "" {
			s += " "
		}
		s += e.Object
	}
	if s != "" {
		s += ": "
	}
	if e.Err == nil {
		return s + e.Kind.String()
	}
	var inner *Error
	if errors.As(e.Err, &inner) && inner.Kind == e.Kind {
		return s + e.Err.Error()
	}
	return s + e.Kind.String() + ": " + e.Err.Error()
}

// Unwrap gives errors.Is and errors.As access to the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, errs.NotFound) and errors.Is(err, fs.ErrNotExist) work for every layer.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Kind:
		return e.Kind == t
	case syscall.Errno:
		return e.Kind.Errno() == t
	}
	switch target {
	case fs.ErrNotExist:
		return e.Kind == NotFound
	case fs.ErrExist:
		return e.Kind == Exists
	case fs.ErrPermission:
		return e.Kind == Access || e.Kind == Perm
	case fs.ErrInvalid:
		return e.Kind == Invalid
	case fs.ErrClosed:
		return e.Kind == Closed
	}
	return false
}

// KindOf finds the kind of any error: an *Error's own, an errno's, a context's, a file system's.
// nil gives OK; what nobody knows gives IO, because an unknown failure must never look like
// success.
func KindOf(err error) Kind {
	switch e := err.(type) { // without looking into it, which allocates
	case nil:
		return OK
	case *Error:
		return e.Kind
	case Kind:
		return e
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		return FromErrno(no)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return TimedOut
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	case errors.Is(err, fs.ErrExist):
		return Exists
	case errors.Is(err, fs.ErrPermission):
		return Access
	case errors.Is(err, fs.ErrClosed):
		return Closed
	}
	return IO
}

// Errno is the errno of any error; 0 for nil.
func Errno(err error) syscall.Errno { return KindOf(err).Errno() }
