package client

import (
	"context"
	"os"
	"syscall"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// Open opens a file for reading.
func (fs *FS) Open(ctx context.Context, path string, opts ...OpenOption) (*File, error) {
	return fs.OpenFile(ctx, path, os.O_RDONLY, 0, opts...)
}

// Create makes a file, or empties it, and opens it for reading and writing.
func (fs *FS) Create(ctx context.Context, path string, opts ...OpenOption) (*File, error) {
	return fs.OpenFile(ctx, path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666, opts...)
}

// OpenFile opens a file by flags of package os: an access mode and O_CREATE, O_EXCL, O_TRUNC,
// O_APPEND, O_SYNC (every write is durable), and O_DIRECT of package syscall (past the servers'
// caches, see How).
func (fs *FS) OpenFile(ctx context.Context, path string, flag int, perm os.FileMode,
	opts ...OpenOption) (*File, error) {
	var o openOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.how != nil {
		if err := o.how.Validate(); err != nil {
			return nil, errs.Wrap("client.Open", path, err)
		}
	}
	if err := o.policy.Validate(); err != nil {
		return nil, errs.Wrap("client.Open", path, err)
	}
	f, err := fs.openPath(ctx, path, flag, perm, &o.policy)
	if err != nil {
		return nil, errs.Wrap("client.Open", path, err)
	}
	f.append = flag&os.O_APPEND != 0
	f.durable = flag&os.O_SYNC != 0
	f.strict = o.strict
	if o.how != nil {
		f.SetHow(*o.how)
	}
	if flag&syscall.O_DIRECT != 0 {
		f.PassCaches()
	}
	return f, nil
}

func (fs *FS) openPath(ctx context.Context, path string, flag int, perm os.FileMode,
	policy *layout.Policy) (*File, error) {
	flags, err := openFlags(flag)
	if err != nil {
		return nil, err
	}
	c := fs.self()
	excl := flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0
	w := walker{fs: fs, c: c, make: flag&os.O_CREATE != 0}
	nf := meta.NewFile{Type: meta.Regular, Mode: uint32(perm.Perm()), Unit: policy.Unit,
		Width: policy.Width, Pool: policy.Pool}
	for range 10 { // somebody may make or remove the name between the two steps
		w.links = 0
		p, err := w.find(ctx, path, !excl)
		switch {
		case err != nil:
			return nil, err
		case p.open:
			f, err := fs.CreateIno(ctx, c.Cred, p.dir, p.name, nf, flags)
			if err == nil || excl || !otherType(errs.KindOf(err)) {
				return f, err
			}
			w.make = false // there is something, which may be a link to be followed
			continue
		case p.attr.Ino != 0 && !excl:
			f, err := fs.openFound(ctx, c.Cred, &p.attr, flags)
			if errs.KindOf(err) == errs.NotFound {
				continue
			}
			return f, err
		case flag&os.O_CREATE == 0:
			return nil, errs.New(errs.NotFound, "", "", nil)
		case p.name == ".":
			return nil, errs.New(errs.Exists, "", "", nil)
		}
		return fs.CreateIno(ctx, c.Cred, p.dir, p.name, nf, flags)
	}
	return nil, errs.New(errs.Busy, "", "", nil)
}

// otherType tells whether a file was not opened because its name stands for something else.
func otherType(k errs.Kind) bool {
	switch k {
	case errs.IsDir, errs.Loop, errs.Unsupported, errs.Invalid, errs.Exists:
		return true
	}
	return false
}

func (fs *FS) openFound(ctx context.Context, cred meta.Cred, a *meta.Attr, flags meta.OpenFlags) (
	*File, error) {
	if a.Type == meta.Directory {
		return nil, errs.New(errs.IsDir, "", "", nil)
	}
	if a.Type != meta.Regular {
		return nil, errs.Newf(errs.Unsupported, "", "", "not a regular file")
	}
	return fs.OpenIno(ctx, cred, a.Ino, flags&^meta.OpenExclusive)
}

func openFlags(flag int) (meta.OpenFlags, error) {
	var flags meta.OpenFlags
	switch flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR) {
	case os.O_RDONLY:
		flags = meta.OpenRead
	case os.O_WRONLY:
		flags = meta.OpenWrite
	case os.O_RDWR:
		flags = meta.OpenRead | meta.OpenWrite
	default:
		return 0, errs.Newf(errs.Invalid, "", "", "open flags %#x", flag)
	}
	if flag&os.O_TRUNC != 0 {
		flags |= meta.OpenTruncate
	}
	if flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0 {
		flags |= meta.OpenExclusive
	}
	return flags, nil
}

// Stat returns the attributes of what a path names, through symbolic links.
func (fs *FS) Stat(ctx context.Context, path string) (meta.Attr, error) {
	return fs.stat(ctx, "client.Stat", path, true)
}

// Lstat is Stat that does not follow a symbolic link at the end of the path.
func (fs *FS) Lstat(ctx context.Context, path string) (meta.Attr, error) {
	return fs.stat(ctx, "client.Lstat", path, false)
}

func (fs *FS) stat(ctx context.Context, op, path string, follow bool) (meta.Attr, error) {
	c := fs.self()
	for {
		w := walker{fs: fs, c: c, exact: true}
		p, err := existing(w.find(ctx, path, follow))
		if err == nil && (p.attr.Type == meta.Regular && p.attr.Writers || p.name == ".") {
			// Lookup's size need not be exact while somebody writes, nor the times of where a path
			// begins: those of GetAttr are.
			p.attr, err = fs.GetAttr(ctx, c.Cred, p.attr.Ino)
			if errs.KindOf(err) == errs.NotFound && p.name != "." {
				continue // something else may have its name by now
			}
		}
		if err != nil {
			return meta.Attr{}, errs.Wrap(op, path, err)
		}
		return p.attr, nil
	}
}

// Mkdir makes a directory.
func (fs *FS) Mkdir(ctx context.Context, path string, perm os.FileMode) error {
	c := fs.self()
	p, err := fs.parent(ctx, c, path)
	if err == nil {
		nf := meta.NewFile{Type: meta.Directory, Mode: ModeBits(perm)}
		_, err = fs.MakeIno(ctx, c.Cred, p.dir, p.name, nf)
	}
	return errs.Wrap("client.Mkdir", path, err)
}

// Symlink makes a symbolic link at path.
func (fs *FS) Symlink(ctx context.Context, target, path string) error {
	c := fs.self()
	p, err := fs.parent(ctx, c, path)
	if err == nil {
		nf := meta.NewFile{Type: meta.Symlink, Mode: 0o777, Target: target}
		_, err = fs.MakeIno(ctx, c.Cred, p.dir, p.name, nf)
	}
	return errs.Wrap("client.Symlink", path, err)
}

// Readlink returns the target of a symbolic link.
func (fs *FS) Readlink(ctx context.Context, path string) (string, error) {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, false)
	if err != nil {
		return "", errs.Wrap("client.Readlink", path, err)
	}
	if p.attr.Type != meta.Symlink {
		return "", errs.Newf(errs.Invalid, "client.Readlink", path, "not a symbolic link")
	}
	target, err := fs.ReadLink(ctx, c.Cred, p.attr.Ino)
	return target, errs.Wrap("client.Readlink", path, err)
}

// Link gives a file a second name.
func (fs *FS) Link(ctx context.Context, oldPath, newPath string) error {
	c := fs.self()
	old, err := fs.existing(ctx, c, oldPath, false)
	if err != nil {
		return errs.Wrap("client.Link", oldPath, err)
	}
	p, err := fs.parent(ctx, c, newPath)
	if err == nil {
		_, err = fs.LinkIno(ctx, c.Cred, old.attr.Ino, p.dir, p.name)
	}
	return errs.Wrap("client.Link", newPath, err)
}

// Rename moves a name and replaces what is in its new place, atomically.
func (fs *FS) Rename(ctx context.Context, oldPath, newPath string) error {
	return fs.rename(ctx, "client.Rename", oldPath, newPath, 0)
}

// Remove takes away a file or an empty directory.
func (fs *FS) Remove(ctx context.Context, path string) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, false)
	if err == nil && p.name == "." {
		err = errs.Newf(errs.Invalid, "", "", "the path ends in a directory by itself")
	}
	if err == nil {
		err = fs.RemoveIno(ctx, c.Cred, p.dir, p.name, p.attr.Type == meta.Directory)
	}
	return errs.Wrap("client.Remove", path, err)
}

// Chmod changes the mode: rights, and os.ModeSetuid, os.ModeSetgid and os.ModeSticky.
func (fs *FS) Chmod(ctx context.Context, path string, perm os.FileMode) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, true)
	if err == nil {
		_, err = fs.SetAttr(ctx, c.Cred, p.attr.Ino, meta.SetMode, meta.Attr{Mode: ModeBits(perm)})
	}
	return errs.Wrap("client.Chmod", path, err)
}

// Truncate sets the length of the file at path.
func (fs *FS) Truncate(ctx context.Context, path string, size int64) error {
	c := fs.self()
	p, err := fs.existing(ctx, c, path, true)
	if err == nil {
		_, err = fs.SetAttr(ctx, c.Cred, p.attr.Ino, meta.SetSize, meta.Attr{Size: size})
	}
	return errs.Wrap("client.Truncate", path, err)
}
