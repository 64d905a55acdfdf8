package iofs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"sync"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// file is an open regular file.
type file struct {
	fs   *FS
	name string
	f    *client.File
	r    *client.Reader
}

// failed is an error of the file. The end of the file is not wrapped.
func (f *file) failed(op string, err error) error {
	if err == io.EOF {
		return err
	}
	return failed(op, f.name, err)
}

func (f *file) Stat() (fs.FileInfo, error) {
	a, err := f.f.Stat(f.fs.ctx)
	if err != nil {
		return nil, f.failed("stat", err)
	}
	return newInfo(path.Base(f.name), a), nil
}

func (f *file) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	return n, f.failed("read", err)
}

// ReadAt may be used by many at a time, and does not read ahead.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(f.fs.ctx, p, off)
	return n, f.failed("read", err)
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	at, err := f.r.Seek(offset, whence)
	return at, f.failed("seek", err)
}

func (f *file) WriteTo(w io.Writer) (int64, error) {
	n, err := f.r.WriteTo(w)
	return n, f.failed("read", err)
}

func (f *file) Close() error {
	err := f.r.Close()
	if cerr := f.f.Close(f.fs.ctx); err == nil {
		err = cerr
	}
	return f.failed("close", err)
}

// dir is an open directory. It is read page by page.
type dir struct {
	fs   *FS
	name string
	attr meta.Attr

	mu     sync.Mutex
	page   []meta.Entry // that was read and is not listed yet
	cookie uint64       // behind it
	end    bool
	closed bool
}

func (d *dir) Stat() (fs.FileInfo, error) {
	if err := d.open("stat"); err != nil {
		return nil, err
	}
	a, err := d.fs.c.GetAttr(d.fs.ctx, d.fs.c.Cred(), d.attr.Ino)
	if err != nil {
		return nil, failed("stat", d.name, err)
	}
	return newInfo(path.Base(d.name), a), nil
}

func (d *dir) Read([]byte) (int, error) {
	return 0, failed("read", d.name, errs.New(errs.IsDir, "", "", nil))
}

// ReadDir lists up to n entries, or all that are left for n below 1. They come in no particular
// order, each once.
func (d *dir) ReadDir(n int) ([]fs.DirEntry, error) {
	if err := d.open("readdir"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []fs.DirEntry{}
	for n <= 0 || len(list) < n {
		if len(d.page) == 0 && !d.end {
			if err := d.next(); err != nil {
				return list, failed("readdir", d.name, err)
			}
		}
		if len(d.page) == 0 {
			break
		}
		list = append(list, d.fs.entry(d.name, d.page[0]))
		d.page = d.page[1:]
	}
	if n > 0 && len(list) == 0 {
		return list, io.EOF
	}
	return list, nil
}

// next reads a page.
func (d *dir) next() error {
	page, err := d.fs.c.ReadDirPage(d.fs.ctx, d.fs.c.Cred(), d.attr.Ino, d.cookie, meta.DirPageMax,
		true)
	if err != nil {
		return err
	}
	d.page, d.end = page, len(page) == 0
	if !d.end {
		d.cookie = page[len(page)-1].Cookie
	}
	return nil
}

func (d *dir) open(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return failed(op, d.name, fs.ErrClosed)
	}
	return nil
}

func (d *dir) Close() error {
	if err := d.open("close"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

// special is what can be looked at only: a fifo, a socket, a device.
type special struct {
	name string
	attr meta.Attr
}

func (s *special) Stat() (fs.FileInfo, error) { return newInfo(path.Base(s.name), s.attr), nil }
func (s *special) Close() error               { return nil }
func (s *special) Read([]byte) (int, error)   { return 0, failed("read", s.name, errSpecial) }

// errSpecial: the other end of a fifo, and a device, belong to a kernel.
var errSpecial = errs.New(errs.Unsupported, "", "", errors.New("neither a file nor a directory"))

var (
	_ io.ReadSeeker  = (*file)(nil)
	_ io.ReaderAt    = (*file)(nil)
	_ io.WriterTo    = (*file)(nil)
	_ fs.ReadDirFile = (*dir)(nil)
)
