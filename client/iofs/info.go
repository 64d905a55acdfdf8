package iofs

import (
	"io/fs"
	"path"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// info is fs.FileInfo.
type info struct {
	name string
	attr meta.Attr
}

func newInfo(name string, a meta.Attr) fs.FileInfo { return &info{name: name, attr: a} }

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.attr.Size }
func (i *info) Mode() fs.FileMode  { return client.FileMode(&i.attr) }
func (i *info) ModTime() time.Time { return i.attr.Mtime.Time() }
func (i *info) IsDir() bool        { return i.attr.Type == meta.Directory }
func (i *info) Sys() any           { return &i.attr }
func (i *info) String() string     { return fs.FormatFileInfo(i) }

// entry is fs.DirEntry.
type entry struct {
	fs  *FS
	dir string // that lists it
	e   meta.Entry
}

func (f *FS) entry(dir string, e meta.Entry) fs.DirEntry { return &entry{fs: f, dir: dir, e: e} }

func (e *entry) Name() string      { return e.e.Name }
func (e *entry) IsDir() bool       { return e.e.Type == meta.Directory }
func (e *entry) Type() fs.FileMode { return client.FileMode(&meta.Attr{Type: e.e.Type}) }
func (e *entry) String() string    { return fs.FormatDirEntry(e) }

// Info tells what was known when the directory was read. Of an entry that was removed while it was
// read, and of a file that somebody is writing, nothing exact was: it is asked for.
func (e *entry) Info() (fs.FileInfo, error) {
	if a := e.e.Attr; a != nil && !a.Writers {
		return newInfo(e.e.Name, *a), nil
	}
	a, err := e.fs.c.Lstat(e.fs.ctx, "/"+path.Join(e.fs.dir, e.dir, e.e.Name))
	if err != nil {
		return nil, failed("lstat", path.Join(e.dir, e.e.Name), err)
	}
	return newInfo(e.e.Name, a), nil
}
