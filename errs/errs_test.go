package errs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

func TestEveryKindHasItsOwnErrno(t *testing.T) {
	seen := map[syscall.Errno]Kind{}
	for k := Kind(0); k < kindCount; k++ {
		if kinds[k].text == "" {
			t.Errorf("kind %d has no text", k)
		}
		if other, ok := seen[k.Errno()]; ok {
			t.Errorf("%v and %v share errno %v", k, other, k.Errno())
		}
		seen[k.Errno()] = k
		if got := FromErrno(k.Errno()); got != k {
			t.Errorf("FromErrno(%v.Errno()) = %v", k, got)
		}
	}
}

func TestKindOfFindsTheInnermostMeaning(t *testing.T) {
	base := New(Stale, "stripe.Write", "object 1.2.3", nil)
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{nil, OK},
		{Wrap("iod.Write", "", base), Stale},
		{fmt.Errorf("outer: %w", base), Stale},
		{syscall.ENOSPC, NoSpace},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, NotFound},
		{context.DeadlineExceeded, TimedOut},
		{context.Canceled, Canceled},
		{errors.New("who knows"), IO},
		{Busy, Busy},
	} {
		if got := KindOf(c.err); got != c.want {
			t.Errorf("KindOf(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

// TestLostWays: what the kernel says when a host cannot be reached passes when it can be.
func TestLostWays(t *testing.T) {
	for _, no := range []syscall.Errno{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNREFUSED,
		syscall.ENETDOWN, syscall.EPIPE} {
		if k := FromErrno(no); k != Disconnected || !k.Passing() {
			t.Errorf("%v is %v", no, k)
		}
	}
}

func TestErrorsIsSeesKindsAndErrnos(t *testing.T) {
	err := fmt.Errorf("while mounting: %w", New(NotFound, "meta.Lookup", "/a", nil))
	if !errors.Is(err, NotFound) || !errors.Is(err, fs.ErrNotExist) ||
		!errors.Is(err, syscall.ENOENT) {
		t.Fatalf("%v is not recognised as not found", err)
	}
	if errors.Is(err, Exists) {
		t.Fatalf("%v claims to be Exists", err)
	}
}

func TestTextNamesOperationObjectAndCause(t *testing.T) {
	err := Wrap("iod.Read", "file 7", New(IO, "stripe.Read", "object 7.1.0", syscall.EIO))
	const want = "iod.Read file 7: stripe.Read object 7.1.0: input/output error: input/output error"
	if err.Error() != want {
		t.Fatalf("got  %q\nwant %q", err.Error(), want)
	}
}

func TestUnknownKindFromNewerPeer(t *testing.T) {
	k := Kind(60000)
	if k.Valid() || k.Errno() != syscall.EIO {
		t.Fatalf("kind from the future: valid=%v errno=%v", k.Valid(), k.Errno())
	}
}
