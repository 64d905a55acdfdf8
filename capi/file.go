package capi

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/seg"
)

// file is an open file.
type file struct {
	conn    *conn
	f       *client.File
	appends bool // O_APPEND
	durable bool // O_SYNC

	lockOwner uint64
	locked    atomic.Bool // something was, so far
}

func (f *file) owner() *conn { return f.conn }

// file finds a file and begins a call.
func (l *Lib) file(h Handle) (*file, error) {
	f, err := get[*file](&l.objects, kindFile, h)
	if err == nil && !f.conn.enter() {
		err = badHandle(kindFile, h)
	}
	return f, err
}

// openIgnored are flags of open(2) that mean nothing here, or what is done anyway.
const openIgnored = syscall.O_CLOEXEC | syscall.O_NOCTTY | syscall.O_NONBLOCK | syscall.O_NOATIME |
	syscall.O_LARGEFILE | largeFile

// largeFile is what programs of 32 bits pass: O_LARGEFILE is 0 in this package's syscall.
const largeFile = 0o100000

const openKnown = syscall.O_ACCMODE | syscall.O_CREAT | syscall.O_EXCL | syscall.O_TRUNC |
	syscall.O_APPEND | syscall.O_SYNC | syscall.O_DSYNC | syscall.O_DIRECT | openIgnored

// Open is sluice_open and sluice_create.
func (l *Lib) Open(h Handle, path uintptr, flags int, mode uint32, layoutAt uintptr) (Handle,
	error) {
	c, err := l.conn(h)
	if err != nil {
		return 0, err
	}
	defer c.leave()
	name, err := l.path(path)
	if err != nil {
		return 0, err
	}
	policy, err := readLayout(l.space, layoutAt)
	if err != nil {
		return 0, err
	}
	if flags&^openKnown != 0 || flags&syscall.O_ACCMODE == syscall.O_ACCMODE {
		return 0, fail(syscall.EINVAL, "flags %#o of open(2), of which %#o are not for files here",
			flags, flags&^openKnown)
	}
	f := &file{conn: c, appends: flags&syscall.O_APPEND != 0,
		durable: flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0, lockOwner: c.owners.Add(1)}
	var opts []client.OpenOption
	if policy != (layout.Policy{}) {
		opts = append(opts, client.WithLayout(policy))
	}
	flags &^= openIgnored | syscall.O_SYNC | syscall.O_DSYNC
	f.f, err = c.fs.OpenFile(c.life, name, flags, os.FileMode(mode)&os.ModePerm, opts...)
	if err != nil {
		return 0, err
	}
	fh, err := l.objects.add(kindFile, f)
	if err != nil {
		f.f.Discard(c.life)
		return 0, err
	}
	return fh, nil
}

// path is a path, which must not be missing.
func (l *Lib) path(addr uintptr) (string, error) {
	name, ok, err := text(l.space, addr)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", fail(syscall.EFAULT, "a null pointer for a path")
	case name == "":
		return "", fail(syscall.ENOENT, "an empty path")
	}
	return name, nil
}

// Close is sluice_close.
func (l *Lib) Close(h Handle) error {
	f, err := take[*file](&l.objects, kindFile, h)
	if err != nil {
		return err
	}
	if !f.conn.enter() {
		return badHandle(kindFile, h)
	}
	defer f.conn.leave()
	if f.locked.Load() {
		err = f.conn.fs.ReleaseOwner(f.conn.life, f.f.Ino(), meta.LockRange, f.lockOwner, nil)
	}
	return errors.Join(f.f.Close(f.conn.life), err)
}

// ended makes of a read's result what read(2) has: the end of the file is no error.
func ended[N int | int64](n N, err error) (int64, error) {
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return int64(n), nil
}

// Pread is sluice_pread. The memory was looked at by the caller.
func (l *Lib) Pread(h Handle, addr uintptr, n uint64, off int64) (int64, error) {
	f, err := l.file(h)
	if err != nil {
		return 0, err
	}
	defer f.conn.leave()
	p, loan, err := l.buffer(addr, n)
	if err != nil {
		return 0, err
	}
	if loan != nil {
		defer l.lent.done(loan)
	}
	return ended(f.f.ReadAt(f.conn.life, p, off))
}

// buffer is memory that somebody has looked at, and the loan that it is part of.
func (l *Lib) buffer(addr uintptr, n uint64) ([]byte, *loan, error) {
	switch {
	case n == 0:
		return nil, nil, nil
	case addr == 0:
		return nil, nil, fail(syscall.EFAULT, "a null pointer for %d bytes", n)
	case n > bytesMax || uint64(addr) > 1<<63:
		return nil, nil, fail(syscall.EINVAL, "%d bytes are more than a process has", n)
	}
	loan, err := l.lent.use(addr, int(n))
	if err != nil {
		return nil, nil, err
	}
	return l.space.Trusted(addr, int(n)), loan, nil
}

// Pwrite is sluice_pwrite. The memory was looked at by the caller.
func (l *Lib) Pwrite(h Handle, addr uintptr, n uint64, off int64) (int64, error) {
	f, err := l.file(h)
	if err != nil {
		return 0, err
	}
	defer f.conn.leave()
	p, loan, err := l.buffer(addr, n)
	if err != nil {
		return 0, err
	}
	defer l.lent.done(loan)
	return f.write(p, off)
}

// write writes one piece as the file was opened.
func (f *file) write(p []byte, off int64) (int64, error) {
	var n int
	var err error
	switch {
	case f.appends:
		if _, err = f.f.Append(f.conn.life, p); err == nil {
			n = len(p)
		}
		if err == nil && f.durable {
			err = f.f.Sync(f.conn.life)
		}
	case f.durable:
		n, err = f.f.WriteAtDurable(f.conn.life, p, off)
	default:
		n, err = f.f.WriteAt(f.conn.life, p, off)
	}
	if n > 0 { // what a quota leaves no room for the next call tells
		err = nil
	}
	return int64(n), err
}

// Append is sluice_append. The memory was looked at by the caller.
func (l *Lib) Append(h Handle, addr uintptr, n uint64) (int64, error) {
	f, err := l.file(h)
	if err != nil {
		return 0, err
	}
	defer f.conn.leave()
	p, loan, err := l.buffer(addr, n)
	if err != nil {
		return 0, err
	}
	defer l.lent.done(loan)
	off, err := f.f.Append(f.conn.life, p)
	if err == nil && f.durable {
		err = f.f.Sync(f.conn.life)
	}
	return off, err
}

// Preadv is sluice_preadv, Pwritev sluice_pwritev.
func (l *Lib) Preadv(h Handle, iov uintptr, count int64, off int64) (int64, error) {
	return l.vectored(h, iov, count, func(f *file, bufs [][]byte, n int64) (int64, error) {
		if off < 0 {
			return 0, fail(syscall.EINVAL, "offset %d", off)
		}
		if off > layout.FileSizeMax-n { // a list must end in time; a file does
			n = max(layout.FileSizeMax-off, 0)
			bufs = cut(bufs, n)
		}
		return ended(f.f.ReadList(f.conn.life, bufs, seg.Contig(off, n)))
	})
}

// Pwritev is sluice_pwritev.
func (l *Lib) Pwritev(h Handle, iov uintptr, count int64, off int64) (int64, error) {
	return l.vectored(h, iov, count, func(f *file, bufs [][]byte, n int64) (int64, error) {
		if f.appends {
			return f.write(joined(bufs, n), 0)
		}
		if off < 0 || off > layout.FileSizeMax-n {
			return 0, fail(syscall.EFBIG, "%d bytes at offset %d", n, off)
		}
		done, err := f.f.WriteList(f.conn.life, bufs, seg.Contig(off, n))
		if err == nil && f.durable {
			err = f.f.Sync(f.conn.life)
		}
		return done, err
	})
}

// joined is buffers in one.
func joined(bufs [][]byte, n int64) []byte {
	all := make([]byte, 0, n)
	for _, b := range bufs {
		all = append(all, b...)
	}
	return all
}

// cut is the first n bytes of buffers.
func cut(bufs [][]byte, n int64) (first [][]byte) {
	for _, b := range bufs {
		if b = b[:min(int64(len(b)), n)]; len(b) > 0 {
			first = append(first, b)
		}
		n -= int64(len(b))
	}
	return first
}

func (l *Lib) vectored(h Handle, iov uintptr, count int64,
	move func(f *file, bufs [][]byte, n int64) (int64, error)) (int64, error) {
	f, err := l.file(h)
	if err != nil {
		return 0, err
	}
	defer f.conn.leave()
	regions, err := readIovecs(l.space, iov, count)
	if err != nil {
		return 0, err
	}
	var u use
	defer u.end(l)
	var n int64
	for _, r := range regions {
		if err := u.add(l, r); err != nil {
			return 0, err
		}
		n += int64(r.n)
	}
	if n == 0 {
		return 0, nil
	}
	return move(f, u.bufs, n)
}

// Sync is sluice_sync.
func (l *Lib) Sync(h Handle) error {
	return l.withFile(h, func(f *file) error { return f.f.Sync(f.conn.life) })
}

func (l *Lib) withFile(h Handle, fn func(f *file) error) error {
	f, err := l.file(h)
	if err != nil {
		return err
	}
	defer f.conn.leave()
	return fn(f)
}

// SyncAll is sluice_sync_all.
func (l *Lib) SyncAll(h Handle) error {
	c, err := l.conn(h)
	if err != nil {
		return err
	}
	defer c.leave()
	if err := c.fs.HandOver(c.life); err != nil {
		return err
	}
	return c.fs.SyncNames(c.life)
}

// Ftruncate is sluice_ftruncate.
func (l *Lib) Ftruncate(h Handle, size int64) error {
	return l.withFile(h, func(f *file) error { return f.f.Truncate(f.conn.life, size) })
}

// Reserve is sluice_reserve.
func (l *Lib) Reserve(h Handle, off, n int64) error {
	return l.withFile(h, func(f *file) error { return f.f.Reserve(f.conn.life, off, n, false) })
}

// Fstat is sluice_fstat.
func (l *Lib) Fstat(h Handle, st uintptr) error {
	return l.withFile(h, func(f *file) error {
		a, err := f.f.Stat(f.conn.life)
		if err != nil {
			return err
		}
		return writeStat(l.space, st, &a)
	})
}

// Flayout is sluice_flayout.
func (l *Lib) Flayout(h Handle, at uintptr) error {
	return l.withFile(h, func(f *file) error {
		lay := f.f.Layout()
		return writeLayout(l.space, at, layout.Policy{Unit: lay.Unit, Width: lay.Width()})
	})
}

const (
	lockExclusive = 1
	lockTry       = 2
)

// Lock is sluice_lock.
func (l *Lib) Lock(h Handle, off, n int64, how int) error {
	return l.withFile(h, func(f *file) error {
		if how&^(lockExclusive|lockTry) != 0 {
			return fail(syscall.EINVAL, "a lock of kind %d", how)
		}
		lock, err := f.lock(off, n)
		if err != nil {
			return err
		}
		if lock.Type = meta.LockShared; how&lockExclusive != 0 {
			lock.Type = meta.LockExclusive
		}
		f.locked.Store(true)
		err = f.conn.fs.Lock(f.conn.life, lock, how&lockTry == 0)
		if Errno(err) == syscall.EBUSY && err != nil {
			err = fail(syscall.EAGAIN, "%v", err)
		}
		return err
	})
}

// Unlock is sluice_unlock.
func (l *Lib) Unlock(h Handle, off, n int64) error {
	return l.withFile(h, func(f *file) error {
		lock, err := f.lock(off, n)
		if err != nil {
			return err
		}
		return f.conn.fs.Unlock(f.conn.life, lock)
	})
}

// lock is a range as the client has it.
func (f *file) lock(off, n int64) (meta.Lock, error) {
	end := off + n - 1
	if n == 0 {
		end = meta.LockEndMax
	}
	if off < 0 || n < 0 || end < off {
		return meta.Lock{}, fail(syscall.EINVAL, "a lock of %d bytes at %d", n, off)
	}
	return meta.Lock{Ino: f.f.Ino(), Owner: f.lockOwner, Kind: meta.LockRange, Start: off, End: end,
		PID: uint32(os.Getpid())}, nil
}
