package capi

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

func TestHandles(t *testing.T) {
	var tab table
	seen := map[Handle]bool{}
	for i := range 1000 {
		h, err := tab.add(kindFile, &file{})
		if err != nil {
			t.Fatal(err)
		}
		if h == 0 || seen[h] || int64(h) < 0 {
			t.Fatalf("handle %#x of round %d", h, i)
		}
		seen[h] = true
		if _, err := get[*file](&tab, kindFile, h); err != nil {
			t.Fatal(err)
		}
		_, err = get[*dir](&tab, kindDir, h)
		wantErrno(t, "another kind", err, syscall.EBADF)
		if i%3 == 0 {
			continue // it stays, so that the table grows
		}
		if _, err := take[*file](&tab, kindFile, h); err != nil {
			t.Fatal(err)
		}
		_, err = take[*file](&tab, kindFile, h)
		wantErrno(t, "a second time", err, syscall.EBADF)
	}
	for h := range Handle(100) {
		_, err := get[*file](&tab, kindFile, h<<placeBits|placeMask)
		wantErrno(t, "a number", err, syscall.EBADF)
	}
}

// TestHandleRace has many close the same handle: one of them does.
func TestHandleRace(t *testing.T) {
	var tab table
	for range 200 {
		h, err := tab.add(kindQueue, &queue{})
		if err != nil {
			t.Fatal(err)
		}
		var closed atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := take[*queue](&tab, kindQueue, h); err == nil {
					closed.Add(1)
				}
			})
		}
		wg.Wait()
		if closed.Load() != 1 {
			t.Fatalf("%d have closed it", closed.Load())
		}
	}
}

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		err error
		no  syscall.Errno
	}{
		{errs.New(errs.NotFound, "op", "name", nil), syscall.ENOENT},
		{errs.NoSpace, syscall.ENOSPC},
		{errs.Canceled, syscall.EBADF},
		{io.EOF, syscall.EIO},
		{errors.New("anything"), syscall.EIO},
		{fail(syscall.EFAULT, "text"), syscall.EFAULT},
		{syscall.EACCES, syscall.EACCES},
	} {
		if no := Errno(c.err); no != c.no {
			t.Errorf("%v: %v, want %v", c.err, no, c.no)
		}
	}
}

func TestDo(t *testing.T) {
	var text [TextMax]byte
	if n := Do(text[:], func() (int64, error) { return 7, nil }); n != 7 || text[0] != 0 {
		t.Errorf("%d, %q", n, text[0])
	}
	n := Do(text[:], func() (int64, error) { panic("something") })
	if n != -int64(syscall.EIO) || text[0] == 0 || text[TextMax-1] != 0 {
		t.Errorf("a panic: %d", n)
	}
	n = Do(text[:], func() (int64, error) {
		var p Process
		p.Trusted(16, 8)[0] = 1
		return 0, nil
	})
	if n != -int64(syscall.EFAULT) && n != -int64(syscall.EIO) { // a null pointer is Go's own business
		t.Errorf("a fault: %d", n)
	}
	b, err := mapBytes(pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	addr := address(b)
	if !isMapped(addr, pageBytes) {
		t.Error("memory is not mapped")
	}
	unmap(b)
	n = Do(text[:], func() (int64, error) {
		var p Process
		p.Trusted(addr, 8)[0] = 1
		return 0, nil
	})
	if n != -int64(syscall.EFAULT) {
		t.Errorf("a fault: %d", n)
	}
	if _, err := (Process{}).Bytes(addr, 8); Errno(err) != syscall.EFAULT {
		t.Errorf("memory that is gone: %v", err)
	}
}
