package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// Tmpfile makes and opens a file without a name (O_TMPFILE). It is gone with its last descriptor,
// unless linkat(2) has given it a name, which the kernel refuses for one that was opened with
// O_EXCL.
func (b *bridge) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn,
	out *fuse.CreateOut) fuse.Status {
	ctx := b.request(cancel, &in.InHeader)
	defer ctx.end()
	flags := openFlags(in.Flags) &^ meta.OpenTruncate
	if in.Flags&unix.O_EXCL != 0 {
		flags |= meta.OpenExclusive
	}
	dir, at := b.ino(in.NodeId), b.now()
	if b.openedBefore(in.Unique, &out.OpenOut) {
		f, _ := b.files.get(out.Fh)
		b.unnamed(out, f, at)
		return fuse.OK
	}
	nf := newFile(meta.Regular, in.Mode, in.Umask)
	f, err := b.fs.CreateTempIno(ctx, b.creator(&in.InHeader), dir, nf, flags)
	if err != nil {
		return b.status("tmpfile", err)
	}
	if in.Flags&unix.O_DIRECT != 0 {
		f.PassCaches()
	}
	own := &file{File: f, direct: b.uncached(in.Flags), reads: b.reads(in.Flags)}
	a := f.Attr()
	b.chooseEdition(own, &a)
	if status := b.hand(own, in.Flags, in.Unique, &out.OpenOut); status != fuse.OK {
		return status
	}
	b.unnamed(out, own, at)
	return fuse.OK
}

// unnamed answers with a file that has no name.
func (b *bridge) unnamed(out *fuse.CreateOut, f *file, at moment) {
	a := f.Attr()
	b.versions.note(&a)
	if out.NodeId = b.node(a.Ino); b.writesBack() {
		out.NodeId = nodeOf(a.Ino, f.edition)
	}
	out.Generation = generation
	out.SetAttrTimeout(b.attrTimeout(&a, false, at))
	b.fill(&out.Attr, &a)
}
