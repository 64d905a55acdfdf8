package client

import (
	"context"
	"os"
	"sort"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// What programs change by path beside names: attributes, extended attributes, special files. The
// functions whose names begin with L do not follow a symbolic link at the end of the path.

// ModeBits are the bits of st_mode(7) that a mode of package os means: rights, and the bits that
// set the user, set the group, and keep others from removing names.
func ModeBits(mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for _, b := range specialBits() {
		if mode&b.is != 0 {
			bits |= b.raw
		}
	}
	return bits
}

type specialBit struct {
	raw uint32
	is  os.FileMode
}

func specialBits() []specialBit {
	return []specialBit{{0o4000, os.ModeSetuid}, {0o2000, os.ModeSetgid}, {0o1000, os.ModeSticky}}
}

// FileMode is type and mode of an inode in the words of package os.
func FileMode(a *meta.Attr) os.FileMode {
	m := os.FileMode(a.Mode & 0o777)
	for _, b := range specialBits() {
		if a.Mode&b.raw != 0 {
			m |= b.is
		}
	}
	switch a.Type {
	case meta.Directory:
		m |= os.ModeDir
	case meta.Symlink:
		m |= os.ModeSymlink
	case meta.Fifo:
		m |= os.ModeNamedPipe
	case meta.Socket:
		m |= os.ModeSocket
	case meta.CharDevice:
		m |= os.ModeDevice | os.ModeCharDevice
	case meta.BlockDevice:
		m |= os.ModeDevice
	}
	return m
}

// setPath changes attributes of what a path names.
func (fs *FS) setPath(ctx context.Context, op, path string, follow bool, mask meta.SetMask,
	a meta.Attr) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, follow)
	if err == nil {
		_, err = fs.SetAttr(ctx, c.Cred, p.attr.Ino, mask, a)
	}
	return errs.Wrap(op, path, err)
}

// Chown changes owner and group; -1 leaves one as it is.
func (fs *FS) Chown(ctx context.Context, path string, uid, gid int) error {
	return fs.chown(ctx, "client.Chown", path, true, uid, gid)
}

// Lchown is Chown of a symbolic link itself.
func (fs *FS) Lchown(ctx context.Context, path string, uid, gid int) error {
	return fs.chown(ctx, "client.Lchown", path, false, uid, gid)
}

func (fs *FS) chown(ctx context.Context, op, path string, follow bool, uid, gid int) error {
	var mask meta.SetMask
	if uid >= 0 {
		mask |= meta.SetUID
	}
	if gid >= 0 {
		mask |= meta.SetGID
	}
	return fs.setPath(ctx, op, path, follow, mask, meta.Attr{UID: uint32(uid), GID: uint32(gid)})
}

// Chtimes sets the times of access and of change; a zero time leaves one as it is.
func (fs *FS) Chtimes(ctx context.Context, path string, atime, mtime time.Time) error {
	return fs.chtimes(ctx, "client.Chtimes", path, true, atime, mtime)
}

// Lchtimes is Chtimes of a symbolic link itself.
func (fs *FS) Lchtimes(ctx context.Context, path string, atime, mtime time.Time) error {
	return fs.chtimes(ctx, "client.Lchtimes", path, false, atime, mtime)
}

func (fs *FS) chtimes(ctx context.Context, op, path string, follow bool,
	atime, mtime time.Time) error {
	var mask meta.SetMask
	var a meta.Attr
	if !atime.IsZero() {
		mask, a.Atime = mask|meta.SetAtime, meta.TimeOf(atime)
	}
	if !mtime.IsZero() {
		mask, a.Mtime = mask|meta.SetMtime, meta.TimeOf(mtime)
	}
	return fs.setPath(ctx, op, path, follow, mask, a)
}

// Touch sets the times that are asked for to now, by the clock of the metadata service. Whoever may
// write to a file may do that, as with utimensat(2); setting another time is its owner's.
func (fs *FS) Touch(ctx context.Context, path string, atime, mtime bool) error {
	return fs.touch(ctx, "client.Touch", path, true, atime, mtime)
}

// Ltouch is Touch of a symbolic link itself.
func (fs *FS) Ltouch(ctx context.Context, path string, atime, mtime bool) error {
	return fs.touch(ctx, "client.Ltouch", path, false, atime, mtime)
}

func (fs *FS) touch(ctx context.Context, op, path string, follow, atime, mtime bool) error {
	var mask meta.SetMask
	if atime {
		mask |= meta.SetAtimeNow
	}
	if mtime {
		mask |= meta.SetMtimeNow
	}
	return fs.setPath(ctx, op, path, follow, mask, meta.Attr{})
}

// Mknod makes a fifo, a socket, a device or an empty file. dev is the device's number as mknod(2)
// of 32 bits has it, and counts for devices only.
func (fs *FS) Mknod(ctx context.Context, path string, t meta.Type, perm os.FileMode,
	dev uint32) error {
	if t == meta.Directory || t == meta.Symlink {
		return errs.Newf(errs.Invalid, "client.Mknod", path, "directories and links are made otherwise")
	}
	c := fs.self()
	p, err := fs.parent(ctx, c, path)
	if err == nil {
		nf := meta.NewFile{Type: t, Mode: ModeBits(perm)}
		if t == meta.CharDevice || t == meta.BlockDevice {
			nf.Rdev = dev
		}
		_, err = fs.MakeIno(ctx, c.Cred, p.dir, p.name, nf)
	}
	return errs.Wrap("client.Mknod", path, err)
}

// RenameNoReplace is Rename that fails with errs.Exists where the new name is taken.
func (fs *FS) RenameNoReplace(ctx context.Context, oldPath, newPath string) error {
	return fs.rename(ctx, "client.RenameNoReplace", oldPath, newPath, meta.RenameNoReplace)
}

// Exchange swaps what two names stand for, atomically. Both must exist.
func (fs *FS) Exchange(ctx context.Context, onePath, otherPath string) error {
	return fs.rename(ctx, "client.Exchange", onePath, otherPath, meta.RenameExchange)
}

func (fs *FS) rename(ctx context.Context, op, oldPath, newPath string,
	flags meta.RenameFlags) error {
	c := fs.self()
	from, err := fs.existing(ctx, c, oldPath, false)
	if err != nil {
		return errs.Wrap(op, oldPath, err)
	}
	to, err := fs.find(ctx, c, newPath, false)
	if err != nil {
		return errs.Wrap(op, newPath, err)
	}
	if from.name == "." || to.name == "." {
		return errs.Newf(errs.Busy, op, oldPath, "a path ends in a directory by itself")
	}
	err = fs.RenameIno(ctx, c.Cred, from.dir, from.name, to.dir, to.name, flags)
	return errs.Wrap(op, oldPath, err)
}

// Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}

// Lxattrs returns the extended attributes of what a path names, in the order of their names.
func (fs *FS) Lxattrs(ctx context.Context, path string) ([]Xattr, error) {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, false)
	if err != nil {
		return nil, errs.Wrap("client.Lxattrs", path, err)
	}
	names, err := fs.ListXattr(ctx, c.Cred, p.attr.Ino)
	if err != nil {
		return nil, errs.Wrap("client.Lxattrs", path, err)
	}
	sort.Strings(names)
	var all []Xattr
	for _, name := range names {
		value, err := fs.GetXattr(ctx, c.Cred, p.attr.Ino, name)
		switch errs.KindOf(err) {
		case errs.OK:
			all = append(all, Xattr{name, value})
		case errs.NoData: // it was removed since
		default:
			return nil, errs.Wrap("client.Lxattrs", path, err)
		}
	}
	return all, nil
}

// LsetXattr stores an extended attribute, whether there is one of that name or not.
func (fs *FS) LsetXattr(ctx context.Context, path string, x Xattr) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, false)
	if err == nil {
		err = fs.SetXattr(ctx, c.Cred, p.attr.Ino, x.Name, x.Value, false, false)
	}
	return errs.Wrap("client.LsetXattr", path, err)
}
