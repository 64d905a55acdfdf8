package mount

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// lookupHandle answers what the kernel asks in place of a name when it is given the handle of an
// inode that it has forgotten (CAP_EXPORT_SUPPORT): "." of an inode of any type is that inode, ".."
// of a directory the one above it. What is gone is stale, as what has no name any more: whoever has
// it open has it from before.
func (b *bridge) lookupHandle(ctx context.Context, node uint64, name string,
	out *fuse.EntryOut) fuse.Status {
	ino, at := b.ino(node), b.now()
	var a meta.Attr
	var err error
	if name == "." {
		a, err = b.attrOf(ctx, ino)
	} else if ino == b.fs.Root() {
		return fuse.ENOENT // what is above the mount is not in it
	} else {
		a, err = b.fs.Lookup(ctx, b.as(ctx), ino, name)
	}
	if err != nil {
		return b.nodeStatus("lookup", 0, err)
	}
	if a.Nlink == 0 {
		return fuse.Status(unix.ESTALE)
	}
	b.overlay(&a)
	if name == "." && !b.revives(node, &a) {
		return fuse.Status(unix.ESTALE)
	}
	b.entry(out, ino, name, &a, at)
	return fuse.OK
}

// isDots tells whether a lookup is one of an inode, not of a name.
func isDots(name string) bool { return name == "." || name == ".." }
