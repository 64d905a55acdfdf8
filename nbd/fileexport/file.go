// Package fileexport serves a regular file or a block device, by its path, through the kernel's
// page cache: coherent with other readers on the host, durable when a flush or FUA says so.
//
// It does not create or resize files, and does not share one file among writing servers: the file
// is locked while it is open.
//
// Read file.go first, then sync.go (what durable means) and space.go (trim, zeroes, map).
package fileexport

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Options say what to serve.
type Options struct {
	// Path names a regular file or a block device.
	Path string

	// ReadOnly opens it for reading only, shared with other readers but with no writing server.
	ReadOnly bool
}

func (o Options) validate() error {
	if o.Path == "" {
		return errs.Newf(errs.Invalid, "fileexport.Open", "", "no path")
	}
	return nil
}

// File is an nbd.Export of a file or block device.
type File struct {
	path     string
	file     *os.File
	fd       int
	size     int64
	device   bool // a block device
	inMemory bool // on a file system without a device
	readOnly bool

	broken   atomic.Pointer[error] // the first failed sync; see sync.go
	noDsync  atomic.Bool           // the file system has no RWF_DSYNC
	noNowait atomic.Bool           // nor RWF_NOWAIT
	known    atomic.Pointer[run]   // a run of data; see space.go
}

// Open opens and locks the file.
func Open(opts Options) (*File, error) {
	const op = "fileexport.Open"
	if err := opts.validate(); err != nil {
		return nil, err
	}
	info, err := os.Stat(opts.Path)
	if err != nil {
		return nil, errs.Wrap(op, opts.Path, err)
	}
	device := info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0
	if !device && !info.Mode().IsRegular() {
		return nil, errs.Newf(errs.Invalid, op, opts.Path, "neither a file nor a block device")
	}
	flags := os.O_RDWR
	if opts.ReadOnly {
		flags = os.O_RDONLY
	} else if device {
		flags |= os.O_EXCL // refused by the kernel while it is mounted
	}
	f, err := os.OpenFile(opts.Path, flags, 0)
	if err != nil {
		return nil, errs.Wrap(op, opts.Path, err)
	}
	e := &File{
		path: opts.Path, file: f, fd: int(f.Fd()), device: device, readOnly: opts.ReadOnly,
	}
	if err := e.prepare(); err != nil {
		_ = f.Close() // the reason is what the caller needs to know
		return nil, err
	}
	return e, nil
}

// prepare locks the file against other servers, and then measures it.
func (e *File) prepare() error {
	how := unix.LOCK_EX
	if e.readOnly {
		how = unix.LOCK_SH
	}
	err := retry(func() error { return unix.Flock(e.fd, how|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return errs.Newf(errs.Busy, "fileexport.Open", e.path,
			"somebody else serves it (only readers can share a file)")
	}
	if err != nil {
		return errs.Wrap("fileexport.Open", e.path, err)
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(e.fd, &fs) == nil && !e.device {
		e.inMemory = fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
	}
	e.size, err = e.file.Seek(0, io.SeekEnd)
	return errs.Wrap("fileexport.Open", e.path, err)
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// Size is the file's size when it was opened.
func (e *File) Size() int64 { return e.size }

// Description is the kind of the export; the path is nobody's business.
func (e *File) Description() string {
	if e.device {
		return "block device"
	}
	return "file"
}

// Instant is true for files in memory, where nothing waits for a device.
func (e *File) Instant() bool { return e.inMemory }

// ReadAt reads the range. A file that has shrunk since it was opened is an error, not zeroes.
func (e *File) ReadAt(_ context.Context, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(e.fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return errs.Wrap("fileexport.Read", e.path, err)
		}
		if n == 0 {
			return errs.Newf(errs.IO, "fileexport.Read", e.path, "ends at %d, not at %d",
				off, e.size)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// ReadNow reads what is in the page cache without waiting for the device.
func (e *File) ReadNow(p []byte, off int64) bool {
	if e.noNowait.Load() {
		return false
	}
	n, err := unix.Preadv2(e.fd, [][]byte{p}, off, unix.RWF_NOWAIT)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		e.noNowait.Store(true)
	}
	return err == nil && n == len(p)
}

// WriteAt writes the range; with fua it is durable on return.
func (e *File) WriteAt(_ context.Context, p []byte, off int64, fua bool) error {
	if e.readOnly {
		return errs.New(errs.ReadOnly, "fileexport.Write", e.path, nil)
	}
	if fua {
		return e.writeDurable(p, off)
	}
	return errs.Wrap("fileexport.Write", e.path, e.write(p, off))
}

func (e *File) write(p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(e.fd, p, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// Close unlocks and closes the file. It does not sync: only Flush promises durability.
func (e *File) Close() error { return errs.Wrap("fileexport.Close", e.path, e.file.Close()) }
