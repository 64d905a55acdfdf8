package capi

import (
	"bytes"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sluice-storage/sluice/client"
)

// Space is the memory that programs point into.
type Space interface {
	// Bytes is n bytes at an address, or EFAULT where they are not mapped. n is not negative.
	Bytes(addr uintptr, n int) ([]byte, error)
	// Trusted is Bytes for memory that somebody has looked at already.
	Trusted(addr uintptr, n int) []byte
}

// bytesMax bounds one buffer: what a process can address.
const bytesMax = 1 << 47

// view is Bytes with the checks that need no look at the memory.
func view(s Space, addr uintptr, n uint64) ([]byte, error) {
	switch {
	case n == 0:
		return nil, nil
	case addr == 0:
		return nil, fail(syscall.EFAULT, "a null pointer for %d bytes", n)
	case n > bytesMax || uint64(addr) > math.MaxUint64-n:
		return nil, fail(syscall.EINVAL, "%d bytes are more than a process has", n)
	}
	return s.Bytes(addr, int(n))
}

// pageBytes is the least that is mapped.
const pageBytes = 4096

// stringMax is more than any path has.
const stringMax = 2 * pageBytes

// text is the string at an address, which ends with a zero. It looks at one page after the other:
// the next one need not be there. ok is false for a null pointer.
func text(s Space, addr uintptr) (str string, ok bool, err error) {
	if addr == 0 {
		return "", false, nil
	}
	var all []byte
	for len(all) < stringMax {
		b, err := s.Bytes(addr, int(pageBytes-addr%pageBytes))
		if err != nil {
			return "", false, err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(all, b[:i]...)), true, nil
		}
		all = append(all, b...)
		addr += uintptr(len(b))
	}
	return "", false, fail(syscall.ENAMETOOLONG, "a text of more than %d bytes", stringMax)
}

// lent is the memory of Alloc, by address. What was lent and is free again is remembered, because
// small pieces come from one mapping that stays: without that nobody would notice who uses them
// later. There are few places in that mapping, so that the list does not grow for ever.
type lent struct {
	low, high atomic.Uint64 // all of it lies in [low, high); 0: there was none yet

	mu   sync.Mutex
	idle *sync.Cond // a loan has no user any more
	list []*loan    // by address; they do not overlap
}

// loan is one piece.
type loan struct {
	addr   uintptr
	n      int
	conn   *conn
	memory *client.Memory // nil: mapped is what it is
	mapped []byte         // by this package
	users  int            // requests under way; guarded by lent.mu
	over   bool           // it was given back; guarded by lent.mu
}

// at is where the first loan lies that ends behind an address.
func (l *lent) at(addr uintptr) int {
	i, _ := slices.BinarySearchFunc(l.list, addr, func(o *loan, a uintptr) int {
		if o.addr+uintptr(o.n) <= a {
			return -1
		}
		return 1
	})
	return i
}

// add notes a loan in place of earlier ones that lay there.
func (l *lent) add(o *loan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := o.addr + uintptr(o.n)
	i := l.at(o.addr)
	j := i
	for j < len(l.list) && l.list[j].addr < end {
		j++
	}
	l.list = slices.Replace(l.list, i, j, o)
	if low := l.low.Load(); low == 0 || uint64(o.addr) < low {
		l.low.Store(uint64(o.addr))
	}
	if uint64(end) > l.high.Load() {
		l.high.Store(uint64(end))
	}
}

// use notes that a request works with memory, and returns what to tell done; nil for memory that
// was never lent, which is most.
func (l *lent) use(addr uintptr, n int) (*loan, error) {
	if low := l.low.Load(); low == 0 || uint64(addr) >= l.high.Load() ||
		uint64(addr)+uint64(n) <= low || n == 0 {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.at(addr)
	if i == len(l.list) || l.list[i].addr >= addr+uintptr(n) {
		return nil, nil
	}
	o := l.list[i]
	switch {
	case o.over:
		return nil, fail(syscall.EFAULT, "memory at %#x was given back by sluice_free", addr)
	case addr < o.addr || addr+uintptr(n) > o.addr+uintptr(o.n):
		return nil, fail(syscall.EFAULT, "%d bytes at %#x reach out of the %d at %#x that "+
			"sluice_alloc has lent", n, addr, o.n, o.addr)
	}
	o.users++
	return o, nil
}

func (l *lent) done(o *loan) {
	if o == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.users--; o.users == 0 {
		l.idle.Broadcast()
	}
}

// find is the loan that begins at an address and is not over.
func (l *lent) find(addr uintptr) *loan {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.at(addr)
	if i == len(l.list) || l.list[i].addr != addr || l.list[i].over {
		return nil
	}
	return l.list[i]
}

// end ends a loan, for the one caller that gets it.
func (l *lent) end(addr uintptr) (*loan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.at(addr)
	if i == len(l.list) || l.list[i].addr != addr || l.list[i].over {
		return nil, fail(syscall.EINVAL, "nothing is lent at %#x", addr)
	}
	o := l.list[i]
	if o.users > 0 {
		return nil, fail(syscall.EBUSY, "%d requests use the memory at %#x", o.users, addr)
	}
	o.over = true
	if o.memory == nil || o.n > bufferMax { // its mapping goes, others may come there
		l.list = slices.Delete(l.list, i, i+1)
	}
	return o, nil
}

// bufferMax is the largest piece that comes from the mapping that stays: see client.FS.Alloc.
const bufferMax = 1 << 20

// endAll ends what a connection has lent, and waits for requests of others that work with it. Its
// own have ended.
func (l *lent) endAll(c *conn) (all []*loan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slices.ContainsFunc(l.list, func(o *loan) bool { return o.conn == c && o.users > 0 }) {
		l.idle.Wait()
	}
	l.list = slices.DeleteFunc(l.list, func(o *loan) bool {
		if o.conn != c {
			return false
		}
		if !o.over {
			all = append(all, o)
		}
		o.over = true
		return true
	})
	return all
}

// free gives the memory back.
func (o *loan) free() {
	if o.memory != nil {
		o.memory.Free()
		return
	}
	unmap(o.mapped)
}

// Alloc is sluice_alloc.
func (l *Lib) Alloc(h Handle, n uint64) (uintptr, error) {
	c, err := l.conn(h)
	if err != nil {
		return 0, err
	}
	defer c.leave()
	if n == 0 || n > bytesMax {
		return 0, fail(syscall.EINVAL, "memory of %d bytes", n)
	}
	o := &loan{n: int(n), conn: c}
	if m := c.fs.TryAlloc(o.n); m != nil {
		o.memory, o.addr = m, address(m.Bytes())
	} else if o.mapped, err = mapBytes(o.n); err == nil {
		// Never of Go's heap, which a program in C must not hold on to, and which ends the process where
		// there is no more.
		o.addr = address(o.mapped)
	} else {
		return 0, err
	}
	l.lent.add(o)
	return o.addr, nil
}

// Free is sluice_free.
func (l *Lib) Free(addr uintptr) error {
	o, err := l.lent.end(addr)
	if err != nil {
		return err
	}
	o.free()
	return nil
}

// IsShared is sluice_is_shared.
func (l *Lib) IsShared(addr uintptr) (int64, error) {
	o := l.lent.find(addr)
	switch {
	case o == nil:
		return 0, fail(syscall.EINVAL, "nothing is lent at %#x", addr)
	case o.memory != nil:
		return 1, nil
	}
	return 0, nil
}
