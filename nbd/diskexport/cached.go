package diskexport

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/seg"
)

// CachedContext is the metadata context that tells what is in memory: bit 0 of the state says
// that all of a run is in the cache that the export reads through, ours or the kernel's, bit 1
// that some of it is. It is true of the moment in which it was asked for. Kernels before 6.5
// cannot tell; then all states are 0.
const CachedContext = "sluice:cached"

// States of CachedContext.
const (
	cachedAll  = 1 << 0
	cachedSome = 1 << 1
)

// Runs of equal state are found in steps of at least cachedUnit and at most cachedStep bytes.
const (
	cachedUnit = 64 << 10
	cachedStep = 64 << 20
)

// Contexts implements nbd.Contexter.
func (e *Export) Contexts() []nbd.Context {
	return []nbd.Context{{Name: CachedContext, Status: e.cached}}
}

// cached appends runs of equal state. Steps grow while nothing changes, and shrink when something
// does.
func (e *Export) cached(
	_ context.Context, off, length int64, most int, dst []nbd.Status,
) ([]nbd.Status, error) {
	have, end, step := len(dst), off+length, int64(cachedUnit)
	for off < end {
		n := min(step-off%cachedUnit, e.d.size-off)
		state, err := e.cachedState(off, n)
		if err != nil {
			return dst, errs.Wrap("diskexport.cached", e.d.name, err)
		}
		if state == cachedSome && step > cachedUnit {
			step = cachedUnit
			continue
		}
		switch last := len(dst) - 1; {
		case len(dst) > have && dst[last].Flags == state:
			dst[last].Len += n
			step = min(2*step, cachedStep)
		case len(dst)-have == most:
			return dst, nil
		default:
			dst = append(dst, nbd.Status{Len: n, Flags: state})
			step = cachedUnit
		}
		off += n
	}
	return dst, nil
}

// cachedState counts what is in memory of a range.
func (e *Export) cachedState(off, n int64) (state uint32, err error) {
	var have int64
	if e.readsCache() {
		have = e.d.cache().Query(e.d.id, seg.Contig(off, n))
		return stateOf(have, n), nil
	}
	all := int64(0)
	err = e.d.each(off, n, func(p *part, at, _, n int64) error {
		pages, total, err := p.pages(at, n)
		have, all = have+pages, all+total
		return err
	})
	return stateOf(have, all), err
}

func stateOf(have, all int64) uint32 {
	switch {
	case have >= all:
		return cachedAll | cachedSome
	case have > 0:
		return cachedSome
	}
	return 0
}

// pages counts the pages of a range, and those that the kernel has in memory; none where it does
// not tell.
func (p *part) pages(at, n int64) (have, all int64, err error) {
	all = (at+n-1)/pageBytes - at/pageBytes + 1
	if p.noStat.Load() {
		return 0, all, nil
	}
	var st unix.Cachestat_t
	asked := unix.CachestatRange{Off: uint64(at), Len: uint64(n)}
	err = unix.Cachestat(uint(p.file.Fd()), &asked, &st, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
		p.noStat.Store(true)
		return 0, all, nil
	}
	return int64(st.Cache), all, err
}

// Cache implements nbd.Cacher: the range is read in the background where that is into a cache.
func (e *Export) Cache(ctx context.Context, off, length int64) error {
	switch e.mode {
	case Page:
		return e.d.each(off, length, func(p *part, at, _, n int64) error {
			err := retry(func() error {
				return unix.Fadvise(int(p.file.Fd()), at, n, unix.FADV_WILLNEED)
			})
			return errs.Wrap("diskexport.Cache", p.path, err)
		})
	case Cached:
		e.d.cacheOn()
		for end := off + min(length, e.d.cache().ReadShare()/2); off < end; off += loanBytes {
			loan, err := e.borrow(ctx, off, min(end-off, loanBytes, e.d.cache().ChunkMax()))
			if err != nil {
				return err
			}
			loan.Release()
		}
	}
	return nil
}
