package capi

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
)

// TestLent compares the list of loans with a map of bytes, under random loans and returns.
func TestLent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	l := New(Process{})
	const bytes, base = 400, 0x1000
	var is [bytes]*loan // by byte; nil: never lent
	for range 5000 {
		addr := base + uintptr(rnd.IntN(bytes))
		n := 1 + rnd.IntN(20)
		n = min(n, base+bytes-int(addr))
		at := is[addr-base]
		switch rnd.IntN(3) {
		case 0:
			part := is[addr-base:][:n]
			if slices.ContainsFunc(part, func(o *loan) bool { return o != nil }) {
				continue // memory is lent once at a time
			}
			o := &loan{addr: addr, n: n}
			l.lent.add(o)
			for i := range part {
				part[i] = o
			}
		case 1:
			o, err := l.lent.end(addr)
			if want := at != nil && at.addr == addr; want != (err == nil) {
				t.Fatalf("end at %#x: %v, %v", addr, o, err)
			}
			if err == nil { // it is forgotten: such memory is unmapped
				for i := range is {
					if is[i] == o {
						is[i] = nil
					}
				}
			}
		case 2:
			o, err := l.lent.use(addr, n)
			checkUse(t, is[addr-base:][:n], o, err)
			l.lent.done(o)
		}
	}
}

// checkUse compares what use has said of memory with what is known of its bytes.
func checkUse(t *testing.T, is []*loan, got *loan, err error) {
	t.Helper()
	var first *loan
	for _, o := range is {
		if first == nil {
			first = o
		}
	}
	switch {
	case first == nil:
		if got != nil || err != nil {
			t.Fatalf("memory that was never lent: %v, %v", got, err)
		}
	case is[0] == first && is[len(is)-1] == first:
		if got != first || err != nil {
			t.Fatalf("memory of a loan: %v, %v", got, err)
		}
	default:
		if Errno(err) != syscall.EFAULT {
			t.Fatalf("memory of several loans: %v, %v", got, err)
		}
	}
}

// TestLentInUse keeps memory from being given back while a request works with it.
func TestLentInUse(t *testing.T) {
	l := New(Process{})
	o := &loan{addr: 0x1000, n: 100}
	l.lent.add(o)
	got, err := l.lent.use(o.addr+50, 50)
	if got != o || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	_, err = l.lent.end(o.addr)
	wantErrno(t, "memory in use", err, syscall.EBUSY)
	l.lent.done(got)
	_, err = l.lent.use(o.addr+50, 51)
	wantErrno(t, "behind its end", err, syscall.EFAULT)
	if _, err = l.lent.end(o.addr); err != nil {
		t.Fatal(err)
	}
	_, err = l.lent.end(o.addr)
	wantErrno(t, "a second time", err, syscall.EINVAL)
}
