package diskexport

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// backing is what the cache lies on: all disks, by direct I/O. A disk has no sums, so they are made
// of what was read.
type backing struct{ h *Host }

var (
	_ unifier.Backing = backing{}
	_ stripe.Admitter = backing{}
	_ stripe.Stater   = backing{}
)

// ReadSums implements unifier.Backing.
func (b backing) ReadSums(_ context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	d, err := b.h.disk(id)
	if err != nil {
		return err
	}
	if err := d.readBlocks(bufs, off); err != nil {
		return err
	}
	k := 0
	for _, p := range bufs { // units, which consist of whole blocks
		for ; len(p) >= blockBytes; p = p[blockBytes:] {
			sums[k] = crc32c.Sum(p[:blockBytes])
			k++
		}
	}
	return nil
}

// WriteSums implements unifier.Backing.
func (b backing) WriteSums(_ context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	_ []uint32, _ []wire.Stamp, dur stripe.Durability) error {
	d, err := b.h.disk(id)
	if err != nil {
		return err
	}
	return d.writeDirect(bufs, off, lengthOf(bufs), dur != stripe.Volatile)
}

// Sync implements unifier.Backing.
func (b backing) Sync(_ context.Context, id stripe.ObjectID) error {
	d, err := b.h.disk(id)
	if err != nil {
		return err
	}
	return d.sync()
}

// Admit implements stripe.Admitter: a sparse file may have no room for what it has promised.
func (b backing) Admit(_ context.Context, id stripe.ObjectID, _, _ int64, _ wire.Stamp,
	space int64) (bool, error) {
	d, err := b.h.disk(id)
	if err != nil {
		return false, err
	}
	for _, p := range d.parts {
		if p.block {
			continue
		}
		var fs unix.Statfs_t
		if unix.Fstatfs(int(p.file.Fd()), &fs) == nil && int64(fs.Bavail)*fs.Bsize < space {
			return false, errs.New(errs.NoSpace, "diskexport.Admit", p.path, nil)
		}
	}
	return false, nil
}

// Stat implements stripe.Stater: readahead stops at the disk's end.
func (b backing) Stat(_ context.Context, id stripe.ObjectID) (stripe.Info, error) {
	d, err := b.h.disk(id)
	if err != nil {
		return stripe.Info{}, err
	}
	return stripe.Info{ID: id, Size: d.size, Allocated: d.size}, nil
}

// blocks is the disk as the relay sees it.
type blocks struct{ d *disk }

var (
	_ relay.Disk   = blocks{}
	_ relay.Placer = blocks{}
)

// ReadSums implements relay.Disk; there are no sums.
func (b blocks) ReadSums(_ context.Context, _ stripe.ObjectID, bufs [][]byte, off int64,
	_ []uint32) error {
	return b.d.readBlocks(bufs, off)
}

// WriteSums implements relay.Disk.
func (b blocks) WriteSums(_ context.Context, _ stripe.ObjectID, bufs [][]byte, off int64,
	_ []uint32, _ []wire.Stamp, dur stripe.Durability) error {
	return b.d.writeDirect(bufs, off, lengthOf(bufs), dur != stripe.Volatile)
}

// Sync implements relay.Disk.
func (b blocks) Sync(context.Context, stripe.ObjectID) error { return b.d.sync() }

// Place implements relay.Placer.
func (b blocks) Place(_ stripe.ObjectID, off int64) (member int, run int64) {
	member, _, run = b.d.place(min(off, b.d.size-1))
	return member, max(run, 1)
}

// Members implements relay.Placer.
func (b blocks) Members() int { return b.d.members }

// room is memory for pieces of direct reads: the cache's, so that one bound covers all.
type room struct{ h *Host }

// Take implements relay.Room.
func (r room) Take(ctx context.Context, bytes int) (relay.Piece, error) {
	r.h.waiters.Add(1)
	defer r.h.waiters.Add(-1)
	p, err := r.h.cached().Take(ctx, bytes)
	if err != nil {
		return nil, err
	}
	r.h.progress.Add(1)
	return p, nil
}
