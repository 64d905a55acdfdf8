package device

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/uring"
	"golang.org/x/sys/unix"
)

// FileOptions say how to open a file or a block device.
type FileOptions struct {
	// Path of the file or of the device node.
	Path string

	// Bytes makes the file, with that size, if it is above 0 and there is none. Ignored for block
	// devices.
	Bytes int64

	// ReadOnly opens for reading, without keeping others out.
	ReadOnly bool

	// Unlocked leaves it to the caller to keep others out, through a descriptor of its own.
	Unlocked bool

	// Memory is registered with the kernel, see uring.Options.
	Memory [][]byte

	// Plain asks for plain calls instead of io_uring.
	Plain bool
}

// File is a file or a block device.
type File struct {
	f    *os.File
	ring *uring.Ring
	size int64
	disk bool
	made bool   // by this opener: it reads as zeroes
	Way  string // how it is read and written, for people
}

// OpenFile opens the file or block device with direct I/O where it exists. Errors: errs.Busy
// (another process has it, or it is mounted), errs.NotFound, errs.Access, errs.ReadOnly.
func OpenFile(o FileOptions) (*File, error) {
	const op = "device.Open"
	f, way, err := openDirect(o)
	for begin := time.Now(); errors.Is(err, unix.EBUSY) && time.Since(begin) < lingers/10; {
		time.Sleep(5 * time.Millisecond) // as for a lock: who had it may just have been killed
		f, way, err = openDirect(o)
	}
	if err != nil {
		if errors.Is(err, unix.EBUSY) {
			return nil, errs.Newf(errs.Busy, op, o.Path,
				"the device is in use: unmount it or stop who uses it")
		}
		return nil, errs.Wrap(op, o.Path, err)
	}
	d := &File{f: f, Way: way}
	if err = d.measure(o); err == nil && !o.ReadOnly && !o.Unlocked {
		err = d.lock()
	}
	if err == nil {
		d.ring, err = uring.Open(uring.Options{
			Files: []int{int(f.Fd())}, Memory: o.Memory, Plain: o.Plain,
		})
	}
	if err != nil {
		f.Close()
		return nil, errs.Wrap(op, o.Path, err)
	}
	d.Way += ", " + d.ring.Stats().String()
	return d, nil
}

// openDirect tries direct I/O first. Block devices are opened exclusively: the kernel then refuses
// to mount them, and a second opener.
func openDirect(o FileOptions) (*os.File, string, error) {
	flags := os.O_RDWR
	if o.ReadOnly {
		flags = os.O_RDONLY
	}
	if st, err := os.Stat(o.Path); err == nil && st.Mode()&os.ModeDevice != 0 {
		if !o.ReadOnly && !o.Unlocked {
			flags |= unix.O_EXCL
		}
	} else if o.Bytes > 0 && !o.ReadOnly {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(o.Path, flags|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		f, err = os.OpenFile(o.Path, flags, 0o600)
		return f, "page cache (no direct I/O here)", err
	}
	return f, "direct I/O", err
}

// measure finds the size, and gives a new file its size.
func (d *File) measure(o FileOptions) error {
	st, err := d.f.Stat()
	if err != nil {
		return err
	}
	d.disk = st.Mode()&os.ModeDevice != 0
	if !d.disk && !st.Mode().IsRegular() {
		return errs.Newf(errs.Invalid, "", "", "neither a file nor a block device")
	}
	d.size = st.Size()
	if d.disk {
		d.size, err = d.f.Seek(0, 2)
		return err
	}
	if d.size == 0 && o.Bytes > 0 && !o.ReadOnly {
		d.size, d.made = o.Bytes, true
		return d.f.Truncate(o.Bytes)
	}
	return nil
}

// lingers is how long what a killed process had open is waited for: the kernel cleans up behind its
// ring after the process is gone.
const lingers = 5 * time.Second

// lock keeps other processes out for as long as the file is open. A holder that is alive is reason
// enough to give up at once; a dead one lets go in a moment.
func (d *File) lock() error { return d.lockFrom(func() int { return holder(d.f) }) }

// lockFrom is lock where holder tells who has it.
func (d *File) lockFrom(holder func() int) error {
	var unnamed time.Time // since when nobody is named
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(d.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		now, who := time.Now(), holder()
		switch {
		case who > 0:
			unnamed = time.Time{}
			if !errors.Is(unix.Kill(who, 0), unix.ESRCH) || now.Sub(begin) > lingers {
				return errs.Newf(errs.Busy, "", "",
					"in use by process %d: stop that process or choose another store", who)
			}
		case unnamed.IsZero(): // another host's, or it has let go just now
			unnamed = now
		case now.Sub(unnamed) > lingers/10:
			return errs.Newf(errs.Busy, "", "",
				"in use by another process: stop it or choose another store")
		}
	}
}

// holder finds who has the lock in the kernel's list; 0 if it does not say.
func holder(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	text, _ := os.ReadFile("/proc/locks") // unreadable: the message says less
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) > 5 && f[5] == want {
			pid, _ := strconv.Atoi(f[4]) // not a number: nobody knows
			return max(pid, 0)
		}
	}
	return 0
}

// Do implements Device.
func (d *File) Do(ops []*Op) { d.ring.Do(ops) }

// Begin implements Starter.
func (d *File) Begin(ops []*Op) { d.ring.Begin(ops) }

// Wait implements Starter.
func (d *File) Wait(op *Op) { d.ring.Wait(op) }

// Size implements Device.
func (d *File) Size() int64 { return d.size }

// Reserve implements Device: a file gets its space now, a block device has it.
func (d *File) Reserve(off, length int64) error {
	if d.disk {
		return nil
	}
	for {
		err := unix.Fallocate(int(d.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, length)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			return nil // the file system cannot promise; a write will tell
		}
		return errs.Wrap("reserve", d.Name(), err)
	}
}

// Fresh tells whether the file was made by this opener, so that it reads as zeroes.
func (d *File) Fresh() bool { return d.made }

// Room implements Sparse. A block device owns its space.
func (d *File) Room() (total, free int64, ok bool) {
	var fs unix.Statfs_t
	if d.disk || unix.Fstatfs(int(d.f.Fd()), &fs) != nil {
		return 0, 0, false
	}
	return int64(fs.Blocks) * fs.Bsize, int64(fs.Bavail) * fs.Bsize, true
}

// Punch implements Sparse.
func (d *File) Punch(off, length int64) error {
	for {
		err := unix.Fallocate(int(d.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off,
			length)
		if !errors.Is(err, unix.EINTR) {
			return errs.Wrap("punch", d.Name(), err)
		}
	}
}

// Name implements Device.
func (d *File) Name() string { return d.f.Name() }

// Close implements Device.
func (d *File) Close() error {
	err := d.ring.Close()
	// The lock is on the open file, which an operation that the kernel still cleans up may hold.
	_ = unix.Flock(int(d.f.Fd()), unix.LOCK_UN)
	if e := d.f.Close(); err == nil {
		err = e
	}
	return errs.Wrap("device.Close", d.Name(), err)
}
