package mount

import (
	"math"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// blockBytes is the least space that a store keeps apart.
const blockBytes = 4096

// spaceUsed is how many bytes of space a file takes, for stat(2). Tools take less than the length
// for a sign of holes. Where it is not known nobody must believe in holes, so it is the length
// then, in whole blocks, as it is of small files, which lie in the metadata. A file that is being
// written is never empty: mapped pages that the kernel has not sent yet may fill a hole.
func spaceUsed(a *meta.Attr) int64 {
	switch {
	case a.Type != meta.Regular:
		return a.Size
	case !a.Holes || a.Allocated < 0:
		return (a.Size + blockBytes - 1) / blockBytes * blockBytes
	case a.Writers && a.Size > 0:
		return max(a.Allocated, 1)
	}
	return a.Allocated
}

// The modes of fallocate(2) that there are; the kernel lets no others through.
const (
	modePunch    = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	modeZero     = unix.FALLOC_FL_ZERO_RANGE
	modeZeroKeep = unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE
	modeKeep     = unix.FALLOC_FL_KEEP_SIZE
)

// Fallocate reserves space, zeroes ranges and punches holes.
func (b *bridge) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	f, ok := b.files.get(in.Fh)
	if !ok {
		return b.noFile(in.Fh)
	}
	switch in.Mode {
	case 0, modeKeep, modeZero, modeZeroKeep, modePunch:
	default:
		return fuse.Status(unix.EOPNOTSUPP)
	}
	off, n := int64(in.Offset), int64(in.Length)
	if off < 0 || n <= 0 || off > layout.FileSizeMax-n {
		return fuse.Status(unix.EFBIG)
	}
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	if err := b.fs.Drain(ctx, f.Ino()); err != nil {
		return b.status("fallocate", err)
	}
	if _, err := f.Stat(ctx); err != nil {
		return b.status("fallocate", err)
	}
	defer b.touched.note(f.Ino())
	a := f.Attr()
	if err := b.dropUnlessCapable(ctx, &in.InHeader, &a); err != nil {
		return b.status("fallocate", err)
	}
	keep := in.Mode&unix.FALLOC_FL_KEEP_SIZE != 0
	var err error
	switch in.Mode {
	case modePunch:
		err = f.Punch(ctx, off, n)
	case modeZero, modeZeroKeep:
		err = f.ZeroRange(ctx, off, n, keep)
	default:
		err = f.Reserve(ctx, off, n, keep)
	}
	b.wrote(f.Ino())
	b.noteUnsynced(f, in.Fh)
	return b.status("fallocate", err)
}

// copyMax bounds what one request copies: a program that is interrupted does not wait for more.
const copyMax = 64 << 20

// CopyFileRange copies between two files of the mount without the kernel. The kernel has written
// back what it had of both ranges, and forgets what it knows of the second.
func (b *bridge) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (
	uint32, fuse.Status) {
	from, ok := b.files.get(in.FhIn)
	to, also := b.files.get(in.FhOut)
	if !ok || !also {
		return 0, fuse.EBADF
	}
	if in.Flags != 0 || in.OffIn > math.MaxInt64 || in.OffOut > math.MaxInt64 {
		return 0, fuse.EINVAL
	}
	n := int64(min(in.Len, copyMax))
	if int64(in.OffOut) > layout.FileSizeMax-n {
		return 0, fuse.Status(unix.EFBIG)
	}
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	for _, f := range []*file{from, to} {
		err := b.fs.Drain(ctx, f.Ino())
		if err == nil {
			_, err = f.Stat(ctx)
		}
		if err != nil {
			return 0, b.status("copy_file_range", err)
		}
	}
	defer b.touched.note(to.Ino())
	a := to.Attr()
	if err := b.dropUnlessCapable(ctx, &in.InHeader, &a); err != nil {
		return 0, b.status("copy_file_range", err)
	}
	b.noteWrite(to, in.FhOut)
	copied, err := from.CopyRange(ctx, int64(in.OffIn), to.File, int64(in.OffOut), n)
	b.wrote(to.Ino())
	b.noteUnsynced(to, in.FhOut)
	if copied > 0 {
		return uint32(copied), fuse.OK // whoever comes for the rest hears of the error
	}
	return 0, b.status("copy_file_range", err)
}
