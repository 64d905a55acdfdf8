// Package iofs shows a sluice file system, or a directory of one, as an fs.FS of package io/fs, so
// that everything that takes one works on it: fs.WalkDir, fs.Glob, template.ParseFS, http.FS,
// tar.Writer.AddFS, os.CopyFS and many more. It passes testing/fstest.
//
//	fsys := iofs.New(ctx, c, iofs.Options{})
//	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error { ... })
//
// It only reads: package io/fs knows nothing else. Names are as io/fs wants them: without a slash
// in front, "." for where the client's paths begin. Names that are not UTF-8 are listed, and cannot
// be opened. Open and Stat follow symbolic links, which do not lead out of the client's root; Lstat
// and ReadLink do not follow them. Errors are *fs.PathError, and errors.Is finds fs.ErrNotExist and
// the like in them.
//
// Read iofs.go first, then file.go and info.go.
package iofs

import (
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// Options of an FS.
type Options struct {
	// Ahead, in bytes, is how far Read of a file reads ahead, see client.ReaderOptions. Default: as
	// there. Negative: not at all.
	Ahead int

	// Strict makes every read see all that was written before it: see client.WithStrict.
	Strict bool
}

// FS is a view of a client's file system. Safe for concurrent use. It need not be closed.
type FS struct {
	ctx  context.Context
	c    *client.FS
	dir  string // where names begin; a valid path
	opts Options
}

// New makes a view of all that the client sees. ctx bounds everything that is done by way of the
// view, because the functions of package io/fs are given none. The client stays the caller's.
func New(ctx context.Context, c *client.FS, opts Options) *FS {
	return &FS{ctx: ctx, c: c, dir: ".", opts: opts}
}

// find is the client's path of a name.
func (f *FS) find(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return "/" + path.Join(f.dir, name), nil
}

// failed makes the error that package io/fs wants; nil stays nil.
func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open opens a file, or a directory (fs.ReadDirFile). Files are also io.ReaderAt, io.Seeker and
// io.WriterTo; their Stat has the file's *meta.Attr for Sys. A fifo, socket or device can be
// looked at, and not read.
func (f *FS) Open(name string) (fs.File, error) {
	p, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	a, err := f.c.Stat(f.ctx, p)
	if err != nil {
		return nil, failed("open", name, err)
	}
	switch a.Type {
	case meta.Directory:
		return &dir{fs: f, name: name, attr: a}, nil
	case meta.Regular:
	default:
		return &special{name: name, attr: a}, nil
	}
	h, err := f.open(p)
	if err != nil {
		return nil, failed("open", name, err)
	}
	opts := client.ReaderOptions{Ahead: f.opts.Ahead}
	return &file{fs: f, name: name, f: h, r: h.Reader(f.ctx, opts)}, nil
}

func (f *FS) open(p string) (*client.File, error) {
	if f.opts.Strict {
		return f.c.Open(f.ctx, p, client.WithStrict())
	}
	return f.c.Open(f.ctx, p)
}

// Stat tells about what a name stands for, through symbolic links.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.stat("stat", name, f.c.Stat) }

// Lstat is Stat that does not follow a symbolic link at the end of the name.
func (f *FS) Lstat(name string) (fs.FileInfo, error) { return f.stat("lstat", name, f.c.Lstat) }

func (f *FS) stat(op, name string, ask func(context.Context, string) (meta.Attr, error)) (
	fs.FileInfo, error) {
	p, err := f.find(op, name)
	if err != nil {
		return nil, err
	}
	a, err := ask(f.ctx, p)
	if err != nil {
		return nil, failed(op, name, err)
	}
	return newInfo(path.Base(name), a), nil
}

// ReadLink is the target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) {
	p, err := f.find("readlink", name)
	if err != nil {
		return "", err
	}
	target, err := f.c.Readlink(f.ctx, p)
	return target, failed("readlink", name, err)
}

// ReadDir lists a directory, sorted by name. Attributes come along, so that Info asks nobody.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	p, err := f.find("readdir", name)
	if err != nil {
		return nil, err
	}
	var list []fs.DirEntry
	err = f.c.ReadDir(f.ctx, p, func(e meta.Entry) error {
		list = append(list, f.entry(name, e))
		return nil
	})
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, failed("readdir", name, err)
}

// ReadFile reads a whole file. A small one costs one request at most.
func (f *FS) ReadFile(name string) ([]byte, error) {
	p, err := f.find("readfile", name)
	if err != nil {
		return nil, err
	}
	data, err := f.readFile(p)
	if err != nil {
		return nil, failed("readfile", name, err)
	}
	return data, nil
}

func (f *FS) readFile(p string) (_ []byte, err error) {
	h, err := f.open(p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := h.Close(f.ctx); err == nil {
			err = cerr
		}
	}()
	// One byte more than there is, so that the end is seen by the same read.
	data := make([]byte, h.Size()+1)
	for at := 0; ; {
		n, err := h.ReadAt(f.ctx, data[at:], int64(at))
		at += n
		if err == io.EOF {
			return data[:at], nil
		}
		if err != nil {
			return nil, err
		}
		data = append(data, make([]byte, len(data))...) // somebody is writing it
	}
}

// Sub is a view of a directory. Symbolic links in it may lead out of it, as with os.DirFS.
func (f *FS) Sub(name string) (fs.FS, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "sub", Path: name, Err: fs.ErrInvalid}
	}
	sub := *f
	sub.dir = path.Join(f.dir, name)
	return &sub, nil
}

// What package io/fs asks for. fs.GlobFS is not among it: fs.Glob, which lists the directories that
// a pattern leads through, could not be done better here.
var (
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.ReadFileFS = (*FS)(nil)
	_ fs.SubFS      = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)
