package mount

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// Lookup finds a name.
func (b *bridge) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.request(cancel, h)
	defer ctx.end()
	if isDots(name) {
		return b.lookupHandle(ctx, h.NodeId, name, out)
	}
	dir, at := b.ino(h.NodeId), b.now()
	a, err := b.fs.Lookup(ctx, meta.Cred{}, dir, name)
	if errs.KindOf(err) == errs.NotFound {
		if long := b.entryTimeout(dir, name, 0, at); long > 0 {
			out.SetEntryTimeout(long) // without an inode: there is none
			return fuse.OK
		}
	}
	if err != nil {
		return b.status("lookup", err)
	}
	b.overlay(&a)
	b.entry(out, dir, name, &a, at)
	return fuse.OK
}

// make makes an inode and answers with its entry.
func (b *bridge) make(ctx context.Context, h *fuse.InHeader, name string, f meta.NewFile,
	out *fuse.EntryOut) fuse.Status {
	dir, at := b.ino(h.NodeId), b.now()
	defer b.touched.note(dir)
	a, err := b.fs.MakeIno(ctx, b.creator(h, f.Mode), dir, name, f)
	if err != nil {
		return b.status("make", err)
	}
	b.entry(out, dir, name, &a, at)
	return fuse.OK
}

// Mknod makes a file, pipe, socket or device.
func (b *bridge) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	f := meta.NewFile{Mode: in.Mode & 0o7777, Rdev: in.Rdev}
	switch in.Mode & unix.S_IFMT {
	case unix.S_IFREG, 0:
		f.Type = meta.Regular
	case unix.S_IFIFO:
		f.Type = meta.Fifo
	case unix.S_IFSOCK:
		f.Type = meta.Socket
	case unix.S_IFCHR:
		f.Type = meta.CharDevice
	case unix.S_IFBLK:
		f.Type = meta.BlockDevice
	default:
		return fuse.EINVAL
	}
	return b.make(ctx, &in.InHeader, name, f, out)
}

// Mkdir makes a directory.
func (b *bridge) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	f := meta.NewFile{Type: meta.Directory, Mode: in.Mode & 0o7777}
	return b.make(ctx, &in.InHeader, name, f, out)
}

// Symlink makes a symbolic link.
func (b *bridge) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.request(cancel, h)
	defer ctx.end()
	f := meta.NewFile{Type: meta.Symlink, Mode: 0o777, Target: target}
	return b.make(ctx, h, name, f, out)
}

// Readlink returns the target of a symbolic link.
func (b *bridge) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	ctx := b.request(cancel, h)
	defer ctx.end()
	target, err := b.fs.ReadLink(ctx, meta.Cred{}, b.ino(h.NodeId))
	if err == nil {
		b.accessed(b.ino(h.NodeId))
	}
	return []byte(target), b.nodeStatus("readlink", err)
}

// Link gives a file a second name.
func (b *bridge) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	dir, at := b.ino(in.NodeId), b.now()
	defer b.touched.note(b.ino(in.Oldnodeid), dir)
	a, err := b.fs.LinkIno(ctx, meta.Cred{}, b.ino(in.Oldnodeid), dir, name)
	if err != nil {
		return b.status("link", err)
	}
	b.overlay(&a)
	b.entry(out, dir, name, &a, at)
	return fuse.OK
}

// Unlink takes a name from a file.
func (b *bridge) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return b.remove(cancel, h, name, false)
}

// Rmdir removes an empty directory.
func (b *bridge) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return b.remove(cancel, h, name, true)
}

func (b *bridge) remove(cancel <-chan struct{}, h *fuse.InHeader, name string,
	isDir bool) fuse.Status {
	ctx := b.request(cancel, h)
	defer ctx.end()
	dir := b.ino(h.NodeId)
	var was *meta.Attr
	if isDir {
		was = b.victim(ctx, dir, name)
	}
	defer b.touched.note(dir, b.named(ctx, dir, name))
	err := b.fs.RemoveIno(ctx, meta.Cred{}, dir, name, isDir)
	b.buried(was, err)
	return b.status("remove", err)
}

// Rename moves a name, with the flags of renameat2(2).
func (b *bridge) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	var flags meta.RenameFlags
	switch in.Flags {
	case 0:
	case unix.RENAME_NOREPLACE:
		flags = meta.RenameNoReplace
	case unix.RENAME_EXCHANGE:
		flags = meta.RenameExchange
	default:
		return fuse.EINVAL
	}
	dir, newDir := b.ino(in.NodeId), b.ino(in.Newdir)
	var was *meta.Attr
	if flags == 0 {
		was = b.victim(ctx, newDir, to)
	}
	defer b.touched.note(dir, newDir, b.named(ctx, dir, from), b.named(ctx, newDir, to))
	noted := b.moves(dir, newDir, flags == meta.RenameExchange)
	err := b.fs.RenameIno(ctx, meta.Cred{}, dir, from, newDir, to, flags)
	if was != nil && b.stillThere(ctx, was.Ino) {
		was = nil // renamed onto itself
	}
	b.buried(was, err)
	noted()
	return b.status("rename", err)
}

// moves notes that the kernel takes what it believes of a name along to another, now and when the
// rename is done, which is when what it returns is called.
func (b *bridge) moves(dir, newDir meta.Ino, exchange bool) (again func()) {
	note := func(from, to meta.Ino) func() {
		if b.opts.EntryTimeout == 0 || b.told.isShared(from, time.Now()) {
			return func() {} // it believes nothing
		}
		b.told.name(to, time.Now())
		return func() { b.told.name(to, time.Now()) }
	}
	there, back := note(dir, newDir), func() {}
	if exchange {
		back = note(newDir, dir)
	}
	return func() { there(); back() }
}

// StatFs tells the room, in a tree with a quota that of the tree.
func (b *bridge) StatFs(cancel <-chan struct{}, h *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	ctx := b.request(cancel, h)
	defer ctx.end()
	st, err := b.fs.Statfs(ctx, b.ino(h.NodeId))
	if err != nil {
		return b.status("statfs", err)
	}
	const block = 4096
	out.Bsize, out.Frsize = block, block
	out.Blocks = uint64(st.Total) / block
	out.Bfree = uint64(st.Free) / block
	out.Bavail = out.Bfree
	out.Files = uint64(st.Files) + inodesFree
	out.Ffree = inodesFree
	if st.FilesMax > 0 {
		out.Files = uint64(st.FilesMax)
		out.Ffree = uint64(max(0, st.FilesMax-st.Files))
	}
	out.NameLen = meta.NameMax
	return fuse.OK
}

// inodesFree is what statfs says of room for more inodes: numbers do not run out, so it is a number
// that no program takes for "full".
const inodesFree = 1 << 32

// GetXAttr reads an extended attribute.
func (b *bridge) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string,
	dest []byte) (uint32, fuse.Status) {
	ctx := b.request(cancel, h)
	defer ctx.end()
	v, err := b.fs.GetXattr(ctx, meta.Cred{}, b.ino(h.NodeId), name)
	if err != nil {
		return 0, b.nodeStatus("getxattr", err)
	}
	return answer(dest, v)
}

// answer copies a value, or tells how much room it needs.
func answer(dest, v []byte) (uint32, fuse.Status) {
	if len(dest) < len(v) {
		return uint32(len(v)), fuse.ERANGE
	}
	return uint32(copy(dest, v)), fuse.OK
}

// ListXAttr lists the names of extended attributes.
func (b *bridge) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader,
	dest []byte) (uint32, fuse.Status) {
	ctx := b.request(cancel, h)
	defer ctx.end()
	names, err := b.fs.ListXattr(ctx, meta.Cred{}, b.ino(h.NodeId))
	if err != nil {
		return 0, b.nodeStatus("listxattr", err)
	}
	var list []byte
	for _, n := range names {
		list = append(append(list, n...), 0)
	}
	return answer(dest, list)
}

// SetXAttr stores an extended attribute.
func (b *bridge) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string,
	data []byte) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	if len(name) > meta.XattrName {
		return fuse.ERANGE
	}
	if len(data) > meta.XattrValue {
		return fuse.Status(unix.E2BIG)
	}
	create, replace := in.Flags&unix.XATTR_CREATE != 0, in.Flags&unix.XATTR_REPLACE != 0
	defer b.touched.note(b.ino(in.NodeId))
	err := b.fs.SetXattr(ctx, meta.Cred{}, b.ino(in.NodeId), name, data, create, replace)
	return b.nodeStatus("setxattr", err)
}

// RemoveXAttr removes an extended attribute.
func (b *bridge) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	ctx := b.request(cancel, h)
	defer ctx.end()
	defer b.touched.note(b.ino(h.NodeId))
	err := b.fs.RemoveXattr(ctx, meta.Cred{}, b.ino(h.NodeId), name)
	return b.nodeStatus("removexattr", err)
}

// FsyncDir makes the names in a directory durable, and all others with them.
func (b *bridge) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	return b.status("fsyncdir", b.fs.SyncNames(ctx))
}
