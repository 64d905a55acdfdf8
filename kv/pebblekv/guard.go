package pebblekv

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
)

// refusalPause slows down refused writes. Pebble repeats failed flushes at once and for ever;
// with the pause that costs nothing.
const refusalPause = 100 * time.Millisecond

// guard is the file system under pebble. The first write, sync or change of a directory that
// fails freezes it: from then on every change is refused. So nothing is ever built on top of
// unknown state (after a failed fsync, what the kernel holds is not what the disk has), and the
// directory stays as a crash at that moment would have left it. Reading goes on.
type guard struct {
	vfs.FS
	frozen atomic.Pointer[frozen]
	done   chan struct{} // closed when frozen
	locked io.Closer     // the directory's lock file
}

type frozen struct{ err error }

func newGuard(fs vfs.FS) *guard { return &guard{FS: fs, done: make(chan struct{})} }

// freeze stops all changes. The first cause is kept.
func (g *guard) freeze(cause error) {
	if !g.frozen.CompareAndSwap(nil, &frozen{cause}) {
		return
	}
	close(g.done)
}

// err is the reason why the store is read-only, or nil. Its kind is errs.NoSpace or errs.IO.
func (g *guard) err() error {
	f := g.frozen.Load()
	if f == nil {
		return nil
	}
	kind := errs.IO
	if errs.KindOf(f.err) == errs.NoSpace {
		kind = errs.NoSpace
	}
	return errs.Newf(kind, "pebblekv", "", "a write failed, so the store is read-only until it is "+
		"opened again (free space or replace the disk first): %w", f.err)
}

// allowed refuses a change once frozen.
func (g *guard) allowed() error {
	err := g.err()
	if err != nil {
		time.Sleep(refusalPause)
	}
	return err
}

// changed notes the outcome of a change.
func (g *guard) changed(err error) error {
	if err != nil {
		g.freeze(err)
	}
	return err
}

func (g *guard) file(f vfs.File, err error) (vfs.File, error) {
	if g.changed(err) != nil {
		return nil, err
	}
	return &guardedFile{f, g}, nil
}

// The methods of vfs.FS that change something.

func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.allowed(); err != nil {
		return nil, err
	}
	return g.file(g.FS.Create(name, c))
}

func (g *guard) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.allowed(); err != nil {
		return nil, err
	}
	return g.file(g.FS.ReuseForWrite(from, to, c))
}

func (g *guard) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	if err := g.allowed(); err != nil {
		return nil, err
	}
	return g.file(g.FS.OpenReadWrite(name, c, opts...))
}

// OpenDir is for syncing a directory; failing to open it changes nothing yet.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardedFile{f, g}, nil
}

func (g *guard) Link(from, to string) error {
	if err := g.allowed(); err != nil {
		return err
	}
	return g.changed(g.FS.Link(from, to))
}

func (g *guard) Rename(from, to string) error {
	if err := g.allowed(); err != nil {
		return err
	}
	return g.changed(g.FS.Rename(from, to))
}

func (g *guard) MkdirAll(dir string, perm os.FileMode) error {
	if err := g.allowed(); err != nil {
		return err
	}
	return g.changed(g.FS.MkdirAll(dir, perm))
}

// Remove and RemoveAll are refused once frozen, but their failure only leaves a file behind.

func (g *guard) Remove(name string) error {
	if err := g.allowed(); err != nil {
		return err
	}
	return g.FS.Remove(name)
}

func (g *guard) RemoveAll(name string) error {
	if err := g.allowed(); err != nil {
		return err
	}
	return g.FS.RemoveAll(name)
}

// Lock is asked by pebble. The directory is locked already, and is released by unlock alone, so
// that this works even when pebble cannot be closed any more.
func (g *guard) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// lock takes the lock file. Called once, before pebble is opened.
func (g *guard) lock(name string) (err error) {
	g.locked, err = g.FS.Lock(name)
	return err
}

func (g *guard) unlock() error { return g.locked.Close() }

func (g *guard) Unwrap() vfs.FS { return g.FS }

// guardedFile is a file open for writing, or a directory.
type guardedFile struct {
	vfs.File
	g *guard
}

func (f *guardedFile) Write(p []byte) (int, error) {
	if err := f.g.allowed(); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	return n, f.g.changed(err)
}

func (f *guardedFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.g.allowed(); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(p, at)
	return n, f.g.changed(err)
}

func (f *guardedFile) Sync() error {
	if err := f.g.allowed(); err != nil {
		return err
	}
	return f.g.changed(f.File.Sync())
}

func (f *guardedFile) SyncData() error {
	if err := f.g.allowed(); err != nil {
		return err
	}
	return f.g.changed(f.File.SyncData())
}

func (f *guardedFile) SyncTo(length int64) (bool, error) {
	if err := f.g.allowed(); err != nil {
		return false, err
	}
	full, err := f.File.SyncTo(length)
	return full, f.g.changed(err)
}
