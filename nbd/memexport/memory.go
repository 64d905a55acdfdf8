// Package memexport serves memory as a block device: sparse, gone with the process. Pages come to
// life with their first write and are given back by trims and zeroes.
//
// It does not bound what clients write: the size of the export does.
//
// Read memory.go first, then blocks.go for the map of what is allocated.
package memexport

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
)

// blockBytes is the unit of allocation as the map knows it. The kernel's pages are smaller, so
// that a block that holds one written byte costs one page.
const blockBytes = 64 << 10

// Memory is an nbd.Export in memory. All of it is one mapping that is reserved but not populated,
// so that any range is one slice, and a slice that was lent stays mapped whatever is trimmed
// meanwhile: it then reads as zeroes.
type Memory struct {
	data   []byte
	blocks *blocks
}

// New returns a device of size bytes, all zero.
func New(size int64) (*Memory, error) {
	m := &Memory{blocks: newBlocks(size)}
	if size < 0 || int64(int(size)) != size {
		return nil, errs.Newf(errs.Invalid, "memexport.New", "", "size %d", size)
	}
	if size == 0 {
		return m, nil
	}
	var err error
	m.data, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, errs.Wrap("memexport.New", fmt.Sprintf("%d bytes", size), err)
	}
	return m, nil
}

// Size is the device's size in bytes.
func (m *Memory) Size() int64 { return int64(len(m.data)) }

// Instant is true: nothing here waits.
func (m *Memory) Instant() bool { return true }

// Description names the kind of the export.
func (m *Memory) Description() string { return "memory" }

// ReadAt copies the range into p.
func (m *Memory) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, m.data[off:])
	return nil
}

// Slice lends the range itself. It stays mapped until Close, so there is nothing to release.
func (m *Memory) Slice(off int64, length int) ([]byte, func(), error) {
	end := off + int64(length)
	return m.data[off:end:end], nothing, nil
}

func nothing() {}

// WriteAt copies p into the range. Memory is as durable as it gets, so fua means nothing.
//
// The data goes first and the mark second, while free clears the mark first and drops the data
// second: whichever way the two interleave, a block without a mark is all zero when both have
// ended.
func (m *Memory) WriteAt(_ context.Context, p []byte, off int64, _ bool) error {
	copy(m.data[off:], p)
	m.blocks.mark(off, int64(len(p)))
	return nil
}

// Flush has nothing to do.
func (m *Memory) Flush(context.Context) error { return nil }

// Trim gives back the blocks that lie wholly in the range.
func (m *Memory) Trim(_ context.Context, off, length int64, _ bool) error {
	lo, hi := m.whole(off, length)
	return m.free(lo, hi)
}

// WriteZeroes gives whole blocks back, unless they are to stay, and clears the rest.
func (m *Memory) WriteZeroes(_ context.Context, off, length int64, flags nbd.ZeroFlags) error {
	end := off + length
	lo, hi := m.whole(off, length)
	if flags.NoHole {
		clear(m.data[off:end])
		m.blocks.mark(off, length)
		return nil
	}
	if lo >= hi {
		m.clearMarked(off, end)
		return nil
	}
	m.clearMarked(off, lo)
	m.clearMarked(hi, end)
	return m.free(lo, hi)
}

// clearMarked zeroes a part of a block, unless the block is not there anyway.
func (m *Memory) clearMarked(off, end int64) {
	for off < end {
		next := min(end, (off/blockBytes+1)*blockBytes)
		if m.blocks.marked(off / blockBytes) {
			clear(m.data[off:next])
		}
		off = next
	}
}

// whole is the part of the range that consists of whole blocks; the last block of the device may be
// a short one.
func (m *Memory) whole(off, length int64) (lo, hi int64) {
	lo = (off + blockBytes - 1) / blockBytes * blockBytes
	hi = off + length
	if hi != m.Size() {
		hi = hi / blockBytes * blockBytes
	}
	return lo, hi
}

// free drops whole blocks. Whoever reads them meanwhile sees old data or zeroes.
func (m *Memory) free(lo, hi int64) error {
	if lo >= hi {
		return nil
	}
	m.blocks.clear(lo, hi-lo)
	return errs.Wrap("memexport.free", "", unix.Madvise(m.data[lo:hi], unix.MADV_DONTNEED))
}

// Map reports blocks that were never written, or given back, as holes.
func (m *Memory) Map(
	_ context.Context, off, length int64, most int, dst []nbd.Extent,
) ([]nbd.Extent, error) {
	end := off + length
	for n := 0; off < end && n < most; n++ {
		next, used := m.blocks.run(off/blockBytes, (end+blockBytes-1)/blockBytes)
		to := min(next*blockBytes, m.Size())
		dst = append(dst, nbd.Extent{Len: to - off, Hole: !used, Zero: !used})
		off = to
	}
	return dst, nil
}

// Close gives the memory back. Nothing may use the device or its slices any more.
func (m *Memory) Close() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return errs.Wrap("memexport.Close", "", unix.Munmap(data))
}
