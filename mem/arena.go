// Package mem owns the memory that data moves through: arenas of mapped memory, pools and zones of
// equal buffers cut from them, and counted copies. Memory that stays registered is not Go heap: it
// is mapped, locked and shared as providers need it, and children of a fork do not inherit it,
// unless a Source says otherwise.
//
// Ownership: an arena belongs to its opener and is closed last. A buffer belongs to its pool or
// zone; Take gives it to one holder, Lend adds a holder, and the last holder's Return frees it.
// Buffers are never split or joined, so memory does not fragment.
//
// Blocking: only the Take methods that are given a context wait, in order, until it ends. Several
// buffers are taken in one step or not at all, so that two takers cannot deadlock with half of
// their buffers each. Nothing else waits, except OpenArena and Close for the kernel.
//
// Concurrency: everything may be used by many goroutines. No lock is held while another package is
// called, except in Attach.
//
// Errors: errs.NoMemory where there is not enough memory, errs.Invalid for what can never succeed,
// and errs.TimedOut or errs.Canceled when a wait was given up. A Return too many, a use after the
// last Return and the like are programmer errors and panic; under -tags invariants more of them are
// found, and the place where the buffer was taken is named.
//
// It does not know what the buffers hold, does not cache, and grants no remote rights: package msg
// does that per request. A program's own memory is registered by regcache, below.
//
// Read arena.go first, then buf.go, pool.go (equal buffers, first come first served) and zones.go
// (buffers from 64 KiB to 2 MiB, shared fairly among users).
package mem

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Want says whether a property of an arena is required.
type Want uint8

// The values of Want.
const (
	Wish Want = iota // try; ArenaStats tell whether it succeeded
	Must             // fail without it
	No               // do not try
)

// ArenaOptions say what memory an arena is made of.
type ArenaOptions struct {
	// Bytes is the least size; it is rounded up to whole pages. Must be positive.
	Bytes int

	// Source is where the memory comes from. Default nil: anonymous memory of this process.
	Source Source

	// Huge asks for huge pages of 2 MiB, for arenas of at least that size: reserved ones, else (not
	// with Must) transparent ones. Up to the source if there is one. Default Wish.
	Huge Want

	// Populate allocates all pages at once, so that no page fault comes later. Default Wish.
	Populate Want

	// Lock locks the pages in memory, within the process's limit (RLIMIT_MEMLOCK). Default Wish.
	Lock Want

	// Limit bounds this arena together with others. Default nil: no bound but Bytes.
	Limit *Limit
}

// bytesMax is more than a process can address, and can be rounded up without overflow.
const bytesMax = 1 << 56

func (o ArenaOptions) validate() error {
	switch {
	case o.Bytes <= 0 || o.Bytes > bytesMax:
		return errs.Newf(errs.Invalid, "mem.OpenArena", "", "%d bytes", o.Bytes)
	case o.Huge > No || o.Populate > No || o.Lock > No:
		return errs.Newf(errs.Invalid, "mem.OpenArena", "", "Wish, Must and No are all there is")
	case o.Huge == Must && o.Bytes < hugeBytes:
		return errs.Newf(errs.Invalid, "mem.OpenArena", "", "%d bytes are no huge page", o.Bytes)
	}
	return nil
}

// ArenaStats tell what an arena is and how much of it is used.
type ArenaStats struct {
	Source    string   // its name; "anonymous" without one
	Bytes     int      // mapped, all rounding included
	Cut       int      // cut for pools, zones and others, including alignment
	Pages     Pages    // the kind of pages
	HugeBytes int      // on huge pages at this moment
	Locked    bool     // locked in memory
	Populated bool     // every page was made present at the start
	Notes     []string // why a property that was tried is missing
}

// Arena is one contiguous mapping from which pools and single ranges are cut, front to back. Cut
// ranges are not freed one by one: an arena is freed as a whole. Safe for concurrent use.
type Arena struct {
	mem    []byte
	free   func() error
	source string
	limit  *Limit
	pages  Pages
	notes  []string

	locked, populated bool

	// attached is nil until Attach. It is replaced under mu, and read on the data path without it.
	attached atomic.Pointer[[]attachment]

	mu     sync.Mutex
	cut    int // bytes cut so far
	homes  []home
	closed bool
}

// attachment is one registration of the whole arena.
type attachment struct {
	domain fabric.Domain
	region fabric.Region
}

// NewArena maps at least bytes of memory, rounded up to whole pages, from src; nil means anonymous
// memory. Pages are ordinary ones, allocated when they are first touched. See OpenArena for more.
func NewArena(bytes int, src Source) (*Arena, error) {
	return OpenArena(ArenaOptions{Bytes: bytes, Source: src, Huge: No, Populate: No, Lock: No})
}

// OpenArena maps memory as opts say.
func OpenArena(opts ArenaOptions) (*Arena, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	a := &Arena{limit: opts.Limit, source: "anonymous"}
	var err error
	if opts.Source == nil {
		err = a.anonymous(&opts)
	} else {
		a.source = opts.Source.Name()
		err = a.foreign(&opts)
	}
	if err != nil {
		kind := errs.NoMemory
		if errors.Is(err, errs.Invalid) {
			kind = errs.Invalid
		}
		return nil, errs.New(kind, "mem.OpenArena", fmt.Sprintf("%d bytes", opts.Bytes), err)
	}
	err = a.want(opts.Populate, a.populate)
	if err == nil {
		err = a.want(opts.Lock, a.lock)
	}
	if err != nil {
		_ = a.Close()
		return nil, err
	}
	return a, nil
}

// want tries a property, and fails only if it is required.
func (a *Arena) want(w Want, have func() error) error {
	if w == No {
		return nil
	}
	err := have()
	if err != nil && w == Wish {
		a.notes = append(a.notes, err.Error())
		return nil
	}
	return err
}

// Bytes is the whole memory of the arena.
func (a *Arena) Bytes() []byte { return a.mem }

// Stats returns the properties of the arena. It reads a file of the kernel, which takes a moment.
func (a *Arena) Stats() ArenaStats {
	a.mu.Lock()
	s := ArenaStats{
		Source: a.source, Bytes: len(a.mem), Cut: a.cut, Pages: a.pages,
		Locked: a.locked, Populated: a.populated, Notes: a.notes,
	}
	closed := a.closed
	a.mu.Unlock()
	if !closed {
		s.HugeBytes = a.hugeResident()
	}
	return s
}

// Attach registers the arena with d, so that its ranges carry a region from then on, also those of
// buffers that were cut or taken before. An arena can be attached to several domains, to each of
// them once.
func (a *Arena) Attach(d fabric.Domain) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errs.New(errs.Closed, "mem.Attach", "", nil)
	}
	if a.RegionOf(d) != nil {
		return errs.Newf(errs.Busy, "mem.Attach", "", "the arena is attached already")
	}
	// Register is called with the lock held: it only enters the memory into the domain's
	// table and never calls back into this package.
	region, err := d.Register(a.mem)
	if err != nil {
		return errs.Wrap("mem.Attach", d.Caps().Provider, err)
	}
	all := append([]attachment(nil), a.attachments()...)
	all = append(all, attachment{d, region})
	a.attached.Store(&all)
	return nil
}

// Region is the arena's registration with the domain it was attached to first; nil before Attach.
func (a *Arena) Region() fabric.Region {
	if all := a.attached.Load(); all != nil {
		return (*all)[0].region
	}
	return nil
}

// RegionOf is the arena's registration with d; nil if it is not attached to it.
func (a *Arena) RegionOf(d fabric.Domain) fabric.Region {
	for _, at := range a.attachments() {
		if at.domain == d {
			return at.region
		}
	}
	return nil
}

func (a *Arena) attachments() []attachment {
	if all := a.attached.Load(); all != nil {
		return *all
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

// Close ends the registrations and unmaps the memory. Nobody may touch the arena's bytes, or use
// one of its buffers, afterwards: under -tags invariants a buffer that is still out panics. Closing
// twice is allowed.
func (a *Arena) Close() error {
	a.mu.Lock()
	was, homes := a.closed, a.homes
	a.closed = true
	a.mu.Unlock()
	if was {
		return nil
	}
	if invariant.Enabled {
		for _, h := range homes {
			checkLeaks(h)
		}
	}
	var first error
	for _, at := range a.attachments() {
		if err := at.region.Close(); first == nil {
			first = err
		}
	}
	if err := a.free(); first == nil {
		first = err
	}
	a.limit.release(len(a.mem))
	return errs.Wrap("mem.Close", "arena", first)
}

// addHome adds a pool or zone of the arena.
func (a *Arena) addHome(h home) {
	a.mu.Lock()
	a.homes = append(a.homes, h)
	a.mu.Unlock()
}
