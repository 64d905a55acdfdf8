package pebblekv

import (
	"hash/crc32"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
)

// refusalPause slows down files that are refused. Pebble repeats a failed flush at once and for
// ever; with the pause that costs nothing.
const refusalPause = 100 * time.Millisecond

// tempSuffix is what pebble's files are called before they are whole.
const tempSuffix = ".dbtmp"

// guard is the file system under pebble. The first write, sync or change of a directory that
// fails freezes it: from then on every change is refused. So nothing is ever built on top of
// unknown state (after a failed fsync, what the kernel holds is not what the disk has), and the
// directory stays as a crash at that moment would have left it. Reading goes on.
//
// It also tells apart two promises that pebble knows as one. Every commit waits until the log's
// bytes have been written to the kernel, and so survives the end of the process; only commits that
// asked for the disk wait for a sync of the log, which is not pebble's. See logsync.go.
//
// Pebble ends the process when its log fails, or the directory around it. Those failures are kept
// from it: once frozen, what it writes to the log goes nowhere and seems to succeed. So the
// guard, and not pebble, is what a commit asks whether it is durable.
type guard struct {
	vfs.FS
	frozen atomic.Pointer[frozen]
	done   chan struct{} // closed when frozen
	onEnd  func()        // called then; nil: nobody
	logs   logs          // that are open
	locked io.Closer     // the directory's lock file

	marks watermark // how far logs and manifests reach

	mu    sync.Mutex
	loose map[string]mark // of files that have a temporary name
}

type frozen struct{ err error }

func newGuard(fs vfs.FS) *guard {
	g := &guard{FS: fs, done: make(chan struct{}), loose: map[string]mark{}}
	g.logs.open = map[*guardedFile]struct{}{}
	g.marks.later = func() { _ = g.change(g.marks.flush) } // a failure freezes
	return g
}

// freeze stops all changes. The first cause is kept.
func (g *guard) freeze(cause error) {
	if g.frozen.CompareAndSwap(nil, &frozen{cause}) {
		close(g.done)
		if g.onEnd != nil {
			g.onEnd()
		}
	}
}

// err is the reason why the store is read-only, or nil. Its kind is errs.NoSpace or errs.IO.
func (g *guard) err() error {
	f := g.frozen.Load()
	if f == nil {
		return nil
	}
	if errs.KindOf(f.err) == errs.NoSpace {
		return errs.Newf(errs.NoSpace, "pebblekv", "", "a write failed, so the store is read-only "+
			"until there is room: free space on its file system: %w", f.err)
	}
	return errs.Newf(errs.IO, "pebblekv", "", "a write failed, so the store is read-only until it is "+
		"opened again (replace the disk first): %w", f.err)
}

// change makes a change unless frozen, and freezes if it fails.
func (g *guard) change(f func() error) error {
	if err := g.err(); err != nil {
		return err
	}
	err := f()
	if err != nil {
		g.freeze(err)
	}
	return err
}

// open is change for a file that will be written, and that from becomes if there is one.
func (g *guard) open(name, from string, f func() (vfs.File, error)) (vfs.File, error) {
	log := strings.HasSuffix(name, ".log")
	if g.err() != nil && !log {
		time.Sleep(refusalPause)
	}
	var file vfs.File
	err := g.change(func() (err error) {
		if err = g.marks.begin(g.PathBase(name), g.PathBase(from)); err == nil {
			file, err = f()
		}
		return err
	})
	switch {
	case err != nil && !log:
		return nil, err
	case err != nil:
		file = nowhere{}
	}
	guarded := &guardedFile{File: file, g: g, silent: log, log: log, path: name,
		name: g.PathBase(name)}
	if log {
		g.logs.add(guarded)
	}
	return guarded, nil
}

// The methods of vfs.FS that change something.

func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(name, "", func() (vfs.File, error) { return g.FS.Create(name, c) })
}

func (g *guard) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(to, from, func() (vfs.File, error) {
		return g.FS.ReuseForWrite(from, to, c)
	})
}

func (g *guard) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	return g.open(name, "", func() (vfs.File, error) {
		return g.FS.OpenReadWrite(name, c, opts...)
	})
}

// OpenDir is for syncing a directory; failing to open it changes nothing yet.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardedFile{File: f, g: g, silent: true}, nil
}

func (g *guard) Link(from, to string) error {
	return g.change(func() error { return g.FS.Link(from, to) })
}

func (g *guard) Rename(from, to string) error {
	return g.change(func() error {
		if err := g.FS.Rename(from, to); err != nil {
			return err
		}
		g.mu.Lock()
		m, ok := g.loose[from]
		delete(g.loose, from)
		g.mu.Unlock()
		if !ok {
			return nil
		}
		return g.marks.set(g.PathBase(to), m)
	})
}

func (g *guard) MkdirAll(dir string, perm os.FileMode) error {
	return g.change(func() error { return g.FS.MkdirAll(dir, perm) })
}

// Remove and RemoveAll are refused once frozen, but their failure only leaves a file behind.

func (g *guard) Remove(name string) error {
	if err := g.change(func() error { return g.marks.forget(g.PathBase(name)) }); err != nil {
		return err
	}
	return g.FS.Remove(name)
}

func (g *guard) RemoveAll(name string) error {
	if err := g.err(); err != nil {
		return err
	}
	return g.FS.RemoveAll(name)
}

// Lock is asked by pebble. The directory is locked already, by lock.
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
	g      *guard
	silent bool // failures freeze the guard but are not told to pebble
	log    bool

	path string
	name string // the last part of path; empty: a directory

	syncing sync.Mutex // log: held over a sync and by Close; before mu
	closed  bool       // log

	mu   sync.Mutex
	mark mark // written is changed by the one goroutine that writes
}

func (f *guardedFile) change(do func() error) error {
	if err := f.g.change(do); !f.silent {
		return err
	}
	return nil
}

func (f *guardedFile) Write(p []byte) (int, error) {
	n := len(p)
	err := f.change(func() (err error) {
		to := point{f.mark.written.length + uint64(n), f.mark.written.sum}
		if _, ok := parseAppended(f.name); ok || strings.HasSuffix(f.name, tempSuffix) {
			to.sum = crc32.Update(to.sum, castagnoli, p) // before: Write may change p
		}
		if n, err = f.File.Write(p); err == nil {
			f.mu.Lock()
			f.mark.written = to
			f.mu.Unlock()
		}
		return err
	})
	if f.silent {
		n = len(p)
	}
	return n, err
}

func (f *guardedFile) Sync() error { return f.sync(f.File.Sync) }

func (f *guardedFile) SyncData() error { return f.sync(f.File.SyncData) }

// sync leaves the sync of a log out: those who asked for the disk see to it, and Close does, which
// pebble calls before it writes to the next log. What was written is marked.
func (f *guardedFile) sync(do func() error) error {
	if !f.log {
		return f.change(func() error { return f.syncAll(do) })
	}
	return f.change(func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.g.marks.set(f.name, f.mark)
	})
}

// syncAll syncs and moves the file's mark to what was written before.
func (f *guardedFile) syncAll(do func() error) error {
	f.mu.Lock()
	to := f.mark.written
	f.mu.Unlock()
	if err := do(); err != nil || f.name == "" {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mark.synced = to
	return f.g.marks.set(f.name, f.mark)
}

func (f *guardedFile) SyncTo(length int64) (full bool, err error) {
	err = f.change(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// WriteAt is used for no file that pebble must not see failing.
func (f *guardedFile) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.g.change(func() (err error) {
		n, err = f.File.WriteAt(p, at)
		return err
	})
	return n, err
}

// Close of a file has nothing left to lose: what counts was synced, here at the latest.
func (f *guardedFile) Close() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if f.log && !f.closed {
		// A failure freezes the guard.
		_ = f.change(func() error { return f.syncAll(f.File.Sync) })
		f.closed = true
		f.g.logs.remove(f)
	}
	if strings.HasSuffix(f.name, tempSuffix) {
		f.g.mu.Lock()
		f.g.loose[f.path] = f.mark
		f.g.mu.Unlock()
	}
	err := f.File.Close()
	if f.silent {
		return nil
	}
	return err
}
