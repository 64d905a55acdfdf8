package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// Atime says what reading does to times of access. The kernel leaves them to us: it marks all
// inodes of a FUSE file system as those whose times of access it must not touch.
type Atime uint8

const (
	// AtimeRelative is relatime of mount(8): a time of access tells whether something was read
	// since it was changed, and otherwise the day.
	AtimeRelative Atime = iota

	// AtimeStrict notes every access that the mount hears of.
	AtimeStrict

	// AtimeNone notes none.
	AtimeNone
)

var atimeNames = [...]string{AtimeRelative: "relatime", AtimeStrict: "strict", AtimeNone: "none"}

// String is what ParseAtime takes.
func (a Atime) String() string {
	if int(a) >= len(atimeNames) {
		return "unknown"
	}
	return atimeNames[a]
}

// ParseAtime reads what String writes, or the name of mount(8)'s option.
func ParseAtime(s string) (Atime, error) {
	switch s {
	case "relatime":
		return AtimeRelative, nil
	case "strict", "strictatime":
		return AtimeStrict, nil
	case "none", "noatime":
		return AtimeNone, nil
	}
	return 0, errs.Newf(errs.Invalid, "mount.Atime", "", "%q is none of relatime, strict, none", s)
}

// What is read of a file is heard of only where the kernel does not have it. It asks for no page
// that it keeps: so whoever opens a file only to read, whose pages the kernel keeps, counts as a
// reader from then on.

// reads tells whether accesses through an open file are to be noted: not those of who wants none,
// nor of who only writes, for whom the kernel reads the rest of a page.
func (b *bridge) reads(flags uint32) bool {
	return b.opts.Atime != AtimeNone && flags&unix.O_NOATIME == 0 &&
		flags&unix.O_ACCMODE != unix.O_WRONLY
}

// openedToRead notes that a program can read pages of a file without asking for them. The kernel
// is told to ask for the time of access again; where it reads by asking it knows that by itself.
func (b *bridge) openedToRead(node uint64, flags uint32, f *client.File) {
	if flags&unix.O_ACCMODE == unix.O_RDONLY && b.reads(flags) && f.Size() > 0 &&
		f.Accessed(b.opts.Atime == AtimeRelative) {
		b.server.InodeNotify(node, -1, 0) // fails where the kernel has forgotten the inode
	}
}

// accessed notes that a directory was listed, or a link followed.
func (b *bridge) accessed(ino meta.Ino) {
	if b.opts.Atime != AtimeNone {
		b.fs.AccessedIno(ino, b.opts.Atime == AtimeRelative)
	}
}

// Statx is GetAttr with the time of birth. The kernel asks so only where it wants that.
func (b *bridge) Statx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	get := fuse.GetAttrIn{InHeader: in.InHeader, Flags_: in.GetattrFlags, Fh_: in.Fh}
	var got fuse.AttrOut
	a, status := b.getAttr(cancel, &get, &got)
	if !status.Ok() {
		return status
	}
	out.AttrValid, out.AttrValidNsec = got.AttrValid, got.AttrValidNsec
	out.Mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
	out.Blksize = got.Attr.Blksize
	out.Nlink, out.Uid, out.Gid = got.Nlink, got.Owner.Uid, got.Owner.Gid
	out.Mode = uint16(got.Attr.Mode)
	out.Ino, out.Size, out.Blocks = got.Ino, got.Size, got.Blocks
	out.RdevMajor, out.RdevMinor = unix.Major(uint64(got.Rdev)), unix.Minor(uint64(got.Rdev))
	for _, t := range [...]struct {
		to *fuse.SxTime
		at *meta.Time
	}{{&out.Atime, &a.Atime}, {&out.Btime, &a.Btime}, {&out.Ctime, &a.Ctime}, {&out.Mtime, &a.Mtime}} {
		t.to.Sec, t.to.Nsec = uint64(t.at.Sec), t.at.Nsec
	}
	return fuse.OK
}
