// Package mem owns the memory that data moves through: arenas of mapped memory, pools of
// equal buffers cut from them, and the one counted copy of the data path. Registered memory
// must not be Go heap, because the garbage collector's scavenger drops pages behind a live
// registration; so buffers come from here.
//
// It does not know what the buffers hold, does not cache, and grants nobody remote rights:
// package msg does that per request.
//
// Read arena.go first, then pool.go and buf.go.
package mem

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"golang.org/x/sys/unix"
)

// Source is where an arena's memory comes from. The default is Anonymous; memory of a device
// or huge pages can stand in its place.
type Source interface {
	// Map returns length bytes, page aligned and zeroed. They stay mapped until Unmap.
	Map(length int) ([]byte, error)

	// Unmap gives back exactly what Map returned.
	Unmap(mem []byte) error
}

// Anonymous is private memory of this process. It is not handed to children of a fork: a
// child that wrote to it would make the kernel move the parent's pages away from under a
// registration.
type Anonymous struct{}

// Map maps fresh zeroed pages.
func (Anonymous) Map(length int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return mem, nil
}

// Unmap returns the pages to the kernel.
func (Anonymous) Unmap(mem []byte) error { return unix.Munmap(mem) }

// Arena is one contiguous mapping from which pools and single ranges are cut, front to back.
// What is cut is never given back: an arena lives and ends as a whole. Safe for concurrent
// use.
type Arena struct {
	src Source
	mem []byte

	// region is nil until Attach. It is written once, under mu, and read on the data path
	// without it.
	region atomic.Pointer[fabric.Region]

	mu     sync.Mutex
	cut    int // bytes handed out by Cut so far
	closed bool
}

// NewArena maps at least bytes of memory, rounded up to whole pages, from src; nil means
// Anonymous.
func NewArena(bytes int, src Source) (*Arena, error) {
	if bytes <= 0 {
		return nil, errs.Newf(errs.Invalid, "mem.NewArena", "", "%d bytes", bytes)
	}
	if src == nil {
		src = Anonymous{}
	}
	page := unix.Getpagesize()
	bytes = (bytes + page - 1) / page * page
	mem, err := src.Map(bytes)
	if err != nil {
		return nil, errs.New(errs.NoMemory, "mem.NewArena", fmt.Sprintf("%d bytes", bytes), err)
	}
	return &Arena{src: src, mem: mem}, nil
}

// Bytes is the whole memory of the arena.
func (a *Arena) Bytes() []byte { return a.mem }

// Attach registers the arena with d, so that its ranges carry a region from then on. An arena
// is attached once; pools that were cut before learn of it, buffers that are out at that
// moment too.
func (a *Arena) Attach(d fabric.Domain) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errs.New(errs.Closed, "mem.Attach", "", nil)
	}
	if a.region.Load() != nil {
		return errs.Newf(errs.Busy, "mem.Attach", "", "the arena is attached already")
	}
	// Register is called with the lock held: it only enters the memory into the domain's
	// table and never calls back into this package.
	region, err := d.Register(a.mem)
	if err != nil {
		return errs.Wrap("mem.Attach", d.Caps().Provider, err)
	}
	a.region.Store(&region)
	return nil
}

// Region is the arena's registration; nil before Attach.
func (a *Arena) Region() fabric.Region {
	if r := a.region.Load(); r != nil {
		return *r
	}
	return nil
}

// Cut takes the next length bytes of the arena, starting at a multiple of align (a power of
// two).
func (a *Arena) Cut(length, align int) ([]byte, error) {
	if length <= 0 || align <= 0 || align&(align-1) != 0 {
		return nil, errs.Newf(errs.Invalid, "mem.Cut", "", "%d bytes aligned to %d", length, align)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	off := (a.cut + align - 1) &^ (align - 1)
	if a.closed || off > len(a.mem) || length > len(a.mem)-off {
		return nil, errs.Newf(errs.NoMemory, "mem.Cut", "",
			"%d bytes wanted, %d of %d left", length, len(a.mem)-a.cut, len(a.mem))
	}
	a.cut = off + length
	return a.mem[off : off+length : off+length], nil
}

// Close takes the registration back and unmaps the memory. Nobody may touch the arena's
// bytes, or use one of its buffers, afterwards. Closing twice is allowed.
func (a *Arena) Close() error {
	a.mu.Lock()
	was := a.closed
	a.closed = true
	a.mu.Unlock()
	if was {
		return nil
	}
	var first error
	if region := a.Region(); region != nil {
		first = region.Close()
	}
	if err := a.src.Unmap(a.mem); first == nil {
		first = err
	}
	return errs.Wrap("mem.Close", "arena", first)
}
