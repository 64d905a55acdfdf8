package mem

import (
	"errors"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// Source is where an arena's memory comes from: nil is memory of this process; a device's memory,
// or memory that is shared with another process, can be used instead. Whether a child of a fork
// inherits the memory is up to the source. Safe for concurrent use.
type Source interface {
	// Name is what Stats and errors call it: "memfd".
	Name() string

	// Map maps size bytes of memory, a multiple of the page size, zeroed and starting on a page.
	// They stay mapped until free is called, which happens once.
	Map(size int) (mem []byte, free func() error, err error)
}

// Pages tells which pages an arena consists of.
type Pages uint8

// The pages.
const (
	PagesSmall   Pages = iota // the host's ordinary pages
	PagesAdvised              // the kernel was advised to use huge pages
	PagesHuge                 // huge pages, reserved for this arena
	PagesSource               // whatever the source uses
)

func (p Pages) String() string {
	switch p {
	case PagesSmall:
		return "small"
	case PagesAdvised:
		return "advised"
	case PagesHuge:
		return "huge"
	case PagesSource:
		return "source"
	}
	return "unknown"
}

// hugeBytes is the size of the huge pages that are asked for. It is stated, because the host's
// default may be a gigabyte.
const hugeBytes = 2 << 20

// anonymous maps private memory of this process for an arena. Children of a fork do not inherit it:
// otherwise a write after the fork could leave the registered pages with the child.
func (a *Arena) anonymous(opts *ArenaOptions) error {
	if opts.Huge != No && opts.Bytes >= hugeBytes {
		err := a.mapPages(opts, roundUp(opts.Bytes, hugeBytes), PagesHuge)
		if err == nil {
			return nil
		}
		if opts.Huge == Must {
			return errs.Newf(errs.NoMemory, "mem.OpenArena", "",
				"%d bytes of huge pages: %w (reserve more: sysctl vm.nr_hugepages)", opts.Bytes, err)
		}
		a.notes = append(a.notes, fmt.Sprintf("no reserved huge pages: %v", err))
		err = a.mapPages(opts, roundUp(opts.Bytes, unix.Getpagesize()), PagesAdvised)
		if err == nil || errors.Is(err, errLimit) {
			return err
		}
		a.notes = append(a.notes, fmt.Sprintf("no huge pages on demand: %v", err))
	}
	return a.mapPages(opts, roundUp(opts.Bytes, unix.Getpagesize()), PagesSmall)
}

// mapPages maps size bytes of one kind of pages, within the limit.
func (a *Arena) mapPages(opts *ArenaOptions, size int, pages Pages) error {
	if !opts.Limit.charge(size) {
		return errLimit
	}
	mem, free, err := mapAnonymous(size, pages)
	if err == nil {
		err = unix.Madvise(mem, unix.MADV_DONTFORK)
	}
	if err == nil && pages == PagesAdvised {
		err = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	if err != nil {
		if free != nil {
			_ = free()
		}
		opts.Limit.release(size)
		return err
	}
	a.mem, a.free, a.pages = mem, free, pages
	return nil
}

// foreign maps memory from a source and checks that it keeps its contract.
func (a *Arena) foreign(opts *ArenaOptions) error {
	if opts.Huge == Must {
		return errs.Newf(errs.Invalid, "mem.OpenArena", opts.Source.Name(),
			"huge pages are up to the source")
	}
	size := roundUp(opts.Bytes, unix.Getpagesize())
	if !opts.Limit.charge(size) {
		return errLimit
	}
	mem, free, err := opts.Source.Map(size)
	if err == nil && (len(mem) != size || !pageAligned(mem) || free == nil) {
		err = errs.Newf(errs.Invalid, "mem.OpenArena", opts.Source.Name(),
			"the source gave %d bytes for %d, or none that start on a page", len(mem), size)
		if free != nil {
			_ = free()
		}
	}
	if err != nil {
		opts.Limit.release(size)
		return err
	}
	a.mem, a.free, a.pages = mem[:size:size], free, PagesSource
	return nil
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
