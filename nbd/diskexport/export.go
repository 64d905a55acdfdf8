package diskexport

import (
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// Export is an nbd.Export of a disk in one mode. Safe for concurrent use.
type Export struct {
	d        *disk
	mode     Mode
	readOnly bool
	how      relay.How
}

var (
	_ nbd.Export    = (*Export)(nil)
	_ nbd.Trimmer   = (*Export)(nil)
	_ nbd.Zeroer    = (*Export)(nil)
	_ nbd.Mapper    = (*Export)(nil)
	_ nbd.Streamer  = (*Export)(nil)
	_ nbd.Starver   = (*Export)(nil)
	_ nbd.NowReader = (*Export)(nil)
	_ nbd.Instant   = (*Export)(nil)
	_ nbd.Describer = (*Export)(nil)
	_ nbd.Sizer     = (*Export)(nil)
	_ nbd.Unaligner = (*Export)(nil)
	_ nbd.Fixed     = (*Export)(nil)
	_ nbd.Contexter = (*Export)(nil)
	_ nbd.Cacher    = (*Export)(nil)
	_ nbd.Batcher   = (*Export)(nil)
)

// Size is the disk's size when it was opened.
func (e *Export) Size() int64 { return e.d.size }

// Description is the kind of the export; paths are nobody's business.
func (e *Export) Description() string {
	kind := "file"
	switch {
	case e.d.members > 1:
		kind = fmt.Sprintf("%d members, striped by %d KiB", e.d.members, e.d.unit>>10)
	case e.d.parts[0].block:
		kind = "block device"
	}
	return kind + ", " + e.mode.String()
}

// BlockSizes states the blocks that need not be read to be written. What is smaller is served as
// well.
func (e *Export) BlockSizes() (minimum, preferred, maximum uint32) {
	if e.mode.direct() && e.d.size%e.d.grain == 0 {
		return uint32(e.d.grain), blockBytes, 0
	}
	return 1, blockBytes, 0
}

// Unaligned is true: the stated minimum is what suits the disk, smaller requests are served.
func (e *Export) Unaligned() bool { return true }

// ReadOnly tells whether the export takes no changes.
func (e *Export) ReadOnly() bool { return e.readOnly }

// Instant is true for files in memory, where nothing waits for a device.
func (e *Export) Instant() bool {
	if e.mode != Page {
		return false
	}
	for _, p := range e.d.parts {
		if !p.inMemory {
			return false
		}
	}
	return true
}

// readsCache tells whether reads go through our cache.
func (e *Export) readsCache() bool { return e.mode == Cached }

// ReadAt reads the range.
func (e *Export) ReadAt(ctx context.Context, p []byte, off int64) error {
	if e.readsCache() {
		return e.readCached(ctx, p, off)
	}
	if err := e.d.settled(ctx, off, int64(len(p))); err != nil {
		return err
	}
	if e.mode == Page {
		return e.d.pread(p, off)
	}
	return e.d.readDirect(p, off)
}

// loanBytes is the longest loan that is asked of the cache at a time, so that many requests find
// memory.
const loanBytes = 1 << 20

func (e *Export) readCached(ctx context.Context, p []byte, off int64) error {
	e.d.cacheOn()
	for len(p) > 0 {
		n := min(int64(len(p)), loanBytes, e.d.cache().ChunkMax())
		loan, err := e.borrow(ctx, off, n)
		if err != nil {
			return err
		}
		copyOut(p, loan)
		loan.Release()
		p, off = p[n:], off+n
	}
	return nil
}

// borrow gets a part of the disk from the cache.
func (e *Export) borrow(ctx context.Context, off, n int64) (*unifier.Loan, error) {
	h := e.d.host
	h.waiters.Add(1)
	defer h.waiters.Add(-1)
	loan, err := e.d.cache().Read(ctx, e.d.id, seg.Contig(off, n), e.hint())
	if err != nil {
		return nil, err
	}
	h.progress.Add(1)
	return loan, nil
}

func copyOut(p []byte, loan *unifier.Loan) {
	for _, s := range loan.Sges() {
		p = p[mem.Copy(p, s.Buf):]
	}
}

// hint has small units: a guest reads pages of 4 KiB here and there, and streams are read ahead.
func (e *Export) hint() unifier.Hint { return unifier.Hint{Unit: unitBytes} }

const unitBytes = 16 << 10

// ReadNow reads what is in memory.
func (e *Export) ReadNow(p []byte, off int64) bool {
	switch {
	case e.readsCache():
		e.d.cacheOn()
		loan := e.d.cache().Lend(e.d.id, seg.Contig(off, int64(len(p))), e.hint())
		if loan == nil {
			return false
		}
		copyOut(p, loan)
		loan.Release()
		return true
	case e.mode == Page && !e.d.caching.Load():
		return e.d.preadNow(p, off)
	}
	return false
}

// WriteAt writes the range; with fua it is durable on return.
func (e *Export) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	d := e.d
	switch {
	case e.readOnly:
		return errs.New(errs.ReadOnly, "diskexport.Write", d.name, nil)
	case len(p) == 0:
		return nil
	case e.mode.caches():
		return e.writeCached(ctx, p, off, fua)
	}
	return d.change(ctx, off, int64(len(p)), func() error {
		if e.mode == Page {
			return d.writePaged(p, off, fua)
		}
		return d.writeDirect([][]byte{p}, off, int64(len(p)), fua)
	})
}

func (e *Export) writeCached(ctx context.Context, p []byte, off int64, fua bool) error {
	d := e.d
	d.cacheOn()
	if fua {
		if err := d.failure(); err != nil {
			return err
		}
	}
	how := stripe.Volatile
	if fua {
		how = stripe.Durable
	}
	for len(p) > 0 {
		n := min(int64(len(p)), loanBytes, d.cache().ChunkMax())
		draft, err := d.cache().Draft(ctx, d.id, seg.Contig(off, n), e.hint())
		if err != nil {
			return err
		}
		for _, s := range draft.Sges() {
			p = p[mem.Copy(s.Buf, p[:min(len(s.Buf), len(p))]):]
		}
		if _, err := draft.Publish(ctx, wire.Stamp{}, how); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// Flush makes durable what any export of the disk has written.
func (e *Export) Flush(ctx context.Context) error {
	if e.readOnly {
		return nil
	}
	return e.d.flush(ctx)
}

// Starving tells whether reads have waited for memory since it was asked last, and none has got
// some.
func (e *Export) Starving() bool {
	h := e.d.host
	now := h.progress.Load()
	return h.seen.Swap(now) == now && h.waiters.Load() > 0
}

// Close ends the use of the disk; the last one writes back what is pending. It does not sync: only
// Flush promises durability.
func (e *Export) Close() error { return e.d.host.release(e.d) }
