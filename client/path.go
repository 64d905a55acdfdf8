package client

import (
	"context"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// symlinksMax is how many symbolic links one path may pass through, as in Linux.
const symlinksMax = 40

// pathMax is the longest path in bytes, as in Linux.
const pathMax = 4096

// place is where a path ends: a name in a directory, and what it names.
type place struct {
	dir  meta.Ino
	name string    // "." when the path is the root, or ends in "." or ".."
	attr meta.Attr // Ino is 0 when the name does not exist
	open bool      // nobody has looked whether it does
}

// walker follows one path. Absolute and relative paths both begin at the root of the file system,
// and ".." does not leave it.
type walker struct {
	fs    *FS
	c     meta.Caller
	links int
	make  bool // the last component is left open where nobody knows: whoever makes it finds out
	exact bool // its attributes matter, not only its type, mode and owner
}

// find follows a path to its last component. follow chooses whether a symbolic link there is
// followed. A missing last component is no error; a missing directory before it is.
func (fs *FS) find(ctx context.Context, c meta.Caller, path string, follow bool) (place, error) {
	w := walker{fs: fs, c: c}
	return w.find(ctx, path, follow)
}

func (w *walker) find(ctx context.Context, path string, follow bool) (place, error) {
	if len(path) > pathMax {
		return place{}, errs.New(errs.NameTooLong, "", "", nil)
	}
	return w.walk(ctx, w.fs.root, path, follow)
}

func isDots(name string) bool { return name == "." || name == ".." }

func (w *walker) walk(ctx context.Context, dir meta.Ino, path string, follow bool) (place, error) {
	if strings.HasPrefix(path, "/") {
		dir = w.fs.root
	}
	mustDir := strings.HasSuffix(path, "/")
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	at := place{dir: dir, name: "."}
	attr, err := w.fs.rights(ctx, w.c.Cred, dir)
	if err != nil {
		return place{}, err
	}
	at.attr = attr
	for i, name := range parts {
		last := i == len(parts)-1
		if at.attr.Type != meta.Directory {
			return place{}, errs.New(errs.NotDir, "", "", nil)
		}
		if _, _, known := w.fs.cache.Ino(at.attr.Ino, name); last && w.make && !known && !isDots(name) {
			return place{dir: at.attr.Ino, name: name, open: true}, nil
		}
		at, err = w.step(ctx, at.attr, name, !last || follow || mustDir, last && w.exact)
		if err != nil {
			return place{}, err
		}
		if at.attr.Ino == 0 && !last {
			return place{}, errs.New(errs.NotFound, "", "", nil)
		}
	}
	if mustDir && at.attr.Ino != 0 && at.attr.Type != meta.Directory {
		return place{}, errs.New(errs.NotDir, "", "", nil)
	}
	return at, nil
}

// step goes from a directory to one of its names.
func (w *walker) step(ctx context.Context, dir meta.Attr, name string, follow, exact bool) (
	place, error) {
	if name == "." || name == ".." && dir.Ino == w.fs.root {
		return place{dir: dir.Ino, name: ".", attr: dir}, nil
	}
	attr, err := w.fs.lookup(ctx, w.c.Cred, dir.Ino, name, exact)
	switch {
	case errs.KindOf(err) == errs.NotFound:
		return place{dir: dir.Ino, name: name}, nil
	case err != nil:
		return place{}, err
	case name == "..":
		return place{dir: attr.Ino, name: ".", attr: attr}, nil
	case attr.Type != meta.Symlink || !follow:
		return place{dir: dir.Ino, name: name, attr: attr}, nil
	}
	if w.links++; w.links > symlinksMax {
		return place{}, errs.New(errs.Loop, "", "", nil)
	}
	target, err := w.fs.ReadLink(ctx, w.c.Cred, attr.Ino)
	if err != nil {
		return place{}, err
	}
	if target == "" {
		return place{}, errs.New(errs.NotFound, "", "", nil)
	}
	return w.walk(ctx, dir.Ino, target, true)
}

// rights are attributes of which only type, mode and owner count.
func (fs *FS) rights(ctx context.Context, cred meta.Cred, ino meta.Ino) (meta.Attr, error) {
	if a, ok := fs.cache.Rights(ino); ok {
		return a, nil
	}
	return fs.GetAttr(ctx, cred, ino)
}

// KnownRights are attributes of which only type, mode, lists, owner and parent count, if they are
// known without asking anybody.
func (fs *FS) KnownRights(ino meta.Ino) (meta.Attr, bool) { return fs.cache.Rights(ino) }

// existing is find for paths that must exist.
func (fs *FS) existing(ctx context.Context, c meta.Caller, path string, follow bool) (
	place, error) {
	return existing(fs.find(ctx, c, path, follow))
}

func existing(p place, err error) (place, error) {
	if err == nil && p.attr.Ino == 0 {
		err = errs.New(errs.NotFound, "", "", nil)
	}
	return p, err
}

// parent is find for paths whose last component is to be made: it must not exist.
func (fs *FS) parent(ctx context.Context, c meta.Caller, path string) (place, error) {
	p, err := fs.find(ctx, c, path, false)
	if err == nil && p.attr.Ino != 0 {
		err = errs.New(errs.Exists, "", "", nil)
	}
	return p, err
}
