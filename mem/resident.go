package mem

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// populate allocates every page, so that no page fault comes later, during a transfer.
func (a *Arena) populate() error {
	err := unix.Madvise(a.mem, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) && a.pages != PagesSource {
		// A kernel before 5.14 does not know the advice. The memory is fresh and ours: a zero
		// written into each page changes nothing.
		for i := 0; i < len(a.mem); i += unix.Getpagesize() {
			a.mem[i] = 0
		}
		err = nil
	}
	if err != nil {
		return errs.Newf(errs.NoMemory, "mem.OpenArena", "", "%d bytes could not be made present: %w",
			len(a.mem), err)
	}
	a.populated = true
	return nil
}

// lock keeps the pages from being written to swap. It makes them present, too.
func (a *Arena) lock() error {
	err := unix.Mlock(a.mem)
	if err == nil {
		a.locked, a.populated = true, true
		return nil
	}
	var limit unix.Rlimit
	allowed := "unknown"
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		allowed = strconv.FormatUint(limit.Cur, 10)
	}
	return errs.Newf(errs.NoMemory, "mem.OpenArena", "",
		"%d bytes could not be locked: %w (allowance %s bytes: raise ulimit -l or LimitMEMLOCK)",
		len(a.mem), err, allowed)
}

// hugeResident asks the kernel how many bytes of the arena lie on huge pages at this moment.
func (a *Arena) hugeResident() int {
	switch a.pages {
	case PagesHuge:
		return len(a.mem)
	case PagesAdvised:
	default:
		return 0
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0
	}
	defer f.Close()
	lo := uint64(addrOf(a.mem))
	n, err := anonHuge(f, lo, lo+uint64(len(a.mem)))
	runtime.KeepAlive(a)
	if err != nil {
		return 0
	}
	// A neighbour of the same kind may have been merged with the arena into one mapping.
	return int(min(n, uint64(len(a.mem))))
}

// anonHuge adds up AnonHugePages of the mappings that overlap [lo, hi) in the text of smaps:
//
//	7f0000000000-7f0000400000 rw-p 00000000 00:00 0
//	Size:               4096 kB
//	AnonHugePages:      4096 kB
func anonHuge(r io.Reader, lo, hi uint64) (uint64, error) {
	var total uint64
	inside := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "AnonHugePages:"); ok {
			if !inside {
				continue
			}
			kb, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 40)
			if err != nil {
				return 0, fmt.Errorf("smaps: %w", err)
			}
			total += kb << 10
			continue
		}
		if from, to, ok := mapping(line); ok {
			inside = from < hi && lo < to
		}
	}
	return total, lines.Err()
}

// mapping reads the first line of an entry of smaps.
func mapping(line string) (from, to uint64, ok bool) {
	span, _, ok := strings.Cut(line, " ")
	if !ok {
		return 0, 0, false
	}
	first, second, ok := strings.Cut(span, "-")
	if !ok {
		return 0, 0, false
	}
	from, err1 := strconv.ParseUint(first, 16, 64)
	to, err2 := strconv.ParseUint(second, 16, 64)
	return from, to, err1 == nil && err2 == nil
}
