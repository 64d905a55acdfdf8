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
	a, err := b.lookup(ctx, h.Pid, dir, name)
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
	a, err := b.fs.MakeIno(ctx, b.creator(h), dir, name, f)
	if err != nil {
		a, err = b.madeBefore(ctx, h.Unique, dir, name, err, sameMake(&f, h.Uid))
	}
	if err != nil {
		return b.status("make", err)
	}
	b.entry(out, dir, name, &a, at)
	return fuse.OK
}

// Mknod makes a file, pipe, socket or device.
func (b *bridge) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	f := newFile(0, in.Mode, in.Umask)
	f.Rdev = in.Rdev
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
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	f := newFile(meta.Directory, in.Mode, in.Umask)
	return b.make(ctx, &in.InHeader, name, f, out)
}

// Symlink makes a symbolic link.
func (b *bridge) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.change(cancel, h)
	defer ctx.end()
	f := newFile(meta.Symlink, 0o777, 0)
	f.Target = target
	return b.make(ctx, h, name, f, out)
}

// Readlink returns the target of a symbolic link.
func (b *bridge) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	ctx := b.request(cancel, h)
	defer ctx.end()
	target, err := b.fs.ReadLink(ctx, b.as(ctx), b.ino(h.NodeId))
	if errs.KindOf(err) == errs.NotFound {
		if _, link, ok := b.keptLink(h.Pid, b.ino(h.NodeId)); ok {
			return []byte(link), fuse.OK
		}
	}
	if err == nil {
		b.accessed(b.ino(h.NodeId))
	}
	return []byte(target), b.nodeStatus("readlink", h.Pid, err)
}

// Link gives a file a second name.
func (b *bridge) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string,
	out *fuse.EntryOut) fuse.Status {
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	dir, at := b.ino(in.NodeId), b.now()
	defer b.touched.note(b.ino(in.Oldnodeid), dir)
	old := b.ino(in.Oldnodeid)
	a, err := b.fs.LinkIno(ctx, b.as(ctx), old, dir, name)
	if err != nil {
		a, err = b.madeBefore(ctx, in.Unique, dir, name, err,
			func(a *meta.Attr) bool { return a.Ino == old })
	}
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
	ctx := b.change(cancel, h)
	defer ctx.end()
	dir := b.ino(h.NodeId)
	ino := b.named(ctx, dir, name)
	defer b.touched.note(dir, ino)
	err := b.fs.RemoveIno(ctx, b.as(ctx), dir, name, isDir)
	if carriedOut(h.Unique, err, errs.NotFound) {
		err = nil
	}
	if isDir && err == nil {
		b.bury(ino)
	}
	return b.status("remove", err)
}

// Rename moves a name, with the flags of renameat2(2).
func (b *bridge) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	flags, known := flagsOfRename(in.Flags)
	if !known {
		return fuse.EINVAL
	}
	dir, newDir := b.ino(in.NodeId), b.ino(in.Newdir)
	defer b.touched.note(dir, newDir, b.named(ctx, dir, from), b.named(ctx, newDir, to))
	noted := b.moves(dir, newDir, flags == meta.RenameExchange)
	err := b.fs.RenameIno(ctx, b.as(ctx), dir, from, newDir, to, flags)
	if flags&meta.RenameExchange == 0 && b.renamedBefore(ctx, in.Unique, newDir, to, err) {
		err = nil
	}
	noted()
	return b.status("rename", err)
}

// flagsOfRename translates those of renameat2(2).
func flagsOfRename(in uint32) (flags meta.RenameFlags, known bool) {
	for bit, f := range map[uint32]meta.RenameFlags{
		unix.RENAME_NOREPLACE: meta.RenameNoReplace,
		unix.RENAME_EXCHANGE:  meta.RenameExchange,
		unix.RENAME_WHITEOUT:  meta.RenameWhiteout,
	} {
		if in&bit != 0 {
			flags |= f
			in &^= bit
		}
	}
	return flags, in == 0
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

// FsyncDir makes the names in a directory durable, and all others with them.
func (b *bridge) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	ctx := b.change(cancel, &in.InHeader)
	defer ctx.end()
	return b.status("fsyncdir", b.fs.SyncNames(ctx))
}
