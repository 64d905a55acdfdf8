package mount

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// pageBytes is how often data says where it belongs, and what direct I/O is aligned to.
const pageBytes = 4 << 10

// fill makes data that neither compresses nor repeats itself within a block.
func fill(n int64, seed uint64) []byte {
	buf := make([]byte, n)
	rng := rand.NewPCG(seed, 1)
	for i := 0; i+8 <= len(buf); i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], rng.Uint64())
	}
	return buf
}

// stamp writes into each page where in its file it belongs.
func stamp(buf []byte, off int64) {
	for i := 0; i+8 <= len(buf); i += pageBytes {
		binary.LittleEndian.PutUint64(buf[i:], uint64(off)+uint64(i))
	}
}

func stamped(buf []byte, off int64) bool {
	for i := 0; i+8 <= len(buf); i += pageBytes {
		if binary.LittleEndian.Uint64(buf[i:]) != uint64(off)+uint64(i) {
			return false
		}
	}
	return true
}

func openFile(name string, flags int) (int, error) {
	fd, err := again(func() (int, error) { return unix.Open(name, flags|unix.O_CLOEXEC, 0o644) })
	return fd, errs.Wrap("open", name, err)
}

// writeAt writes all of it.
func writeAt(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := again(func() (int, error) { return unix.Pwrite(fd, p, off) })
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// readAt reads all of it.
func readAt(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := again(func() (int, error) { return unix.Pread(fd, p, off) })
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// closeWith closes, and keeps the first error.
func closeWith(fd int, err error) error {
	if e := unix.Close(fd); err == nil {
		return e
	}
	return err
}

// write makes the file, or writes it anew, and syncs it.
func (j *Job) write(buf []byte) (d Done, err error) {
	fd, err := openFile(j.Path, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return d, err
	}
	for off := int64(0); off < j.Bytes && err == nil; off += int64(len(buf)) {
		piece := buf[:min(int64(len(buf)), j.Bytes-off)]
		stamp(piece, off)
		err = writeAt(fd, piece, off)
		d.Ops++
		d.Bytes += int64(len(piece))
	}
	if err == nil {
		err = unix.Fsync(fd)
	}
	return d, errs.Wrap("write", j.Path, closeWith(fd, err))
}

// prepareRead opens the file and has the kernel forget its pages, where it may.
func (j *Job) prepareRead() (do func() (Done, error), end func(), err error) {
	flags := unix.O_RDONLY
	if j.Kind == jobRandom {
		flags |= unix.O_DIRECT
	}
	fd, err := openFile(j.Path, flags)
	if err != nil {
		return nil, nil, err
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)                             // some refuse
	buf, err := unix.Mmap(-1, 0, int(j.Block), unix.PROT_READ|unix.PROT_WRITE, // aligned
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, nil, closeWith(fd, err)
	}
	end = func() { _ = closeWith(fd, unix.Munmap(buf)) }
	if j.Kind == jobRandom {
		return func() (Done, error) { return j.random(fd, buf) }, end, nil
	}
	return func() (Done, error) { return j.read(fd, buf) }, end, nil
}

func (j *Job) read(fd int, buf []byte) (d Done, err error) {
	for off := int64(0); off < j.Bytes; off += int64(len(buf)) {
		piece := buf[:min(int64(len(buf)), j.Bytes-off)]
		if err := readAt(fd, piece, off); err != nil {
			return d, errs.Wrap("read", j.Path, err)
		}
		if !stamped(piece[:min(8, len(piece))], off) { // a page of each block costs nothing
			return d, errs.Newf(errs.Corrupt, "read", j.Path, "other data at %d", off)
		}
		d.Ops++
		d.Bytes += int64(len(piece))
	}
	return d, nil
}

func (j *Job) random(fd int, buf []byte) (d Done, err error) {
	rng := rand.NewPCG(j.Seed, 2)
	blocks := uint64(j.Bytes / j.Block)
	for end := time.Now().Add(j.For); time.Now().Before(end); {
		for range 16 { // between two looks at the clock
			off := int64(rng.Uint64()%blocks) * j.Block
			if err := readAt(fd, buf, off); err != nil {
				return d, errs.Wrap("read", j.Path, err)
			}
			if !stamped(buf, off) {
				return d, errs.Newf(errs.Corrupt, "read", j.Path, "other data at %d", off)
			}
			d.Ops++
			d.Bytes += j.Block
		}
	}
	return d, nil
}

// copy copies a range, a block at a time, and syncs it.
func (j *Job) copy() (d Done, err error) {
	src, err := openFile(j.Path, unix.O_RDONLY)
	if err != nil {
		return d, err
	}
	dst, err := openFile(j.To, unix.O_CREAT|unix.O_WRONLY)
	if err != nil {
		return d, closeWith(src, err)
	}
	buf := make([]byte, j.Block)
	for done := int64(0); done < j.Bytes && err == nil; {
		piece := buf[:min(j.Block, j.Bytes-done)]
		if err = readAt(src, piece, j.From+done); err == nil {
			err = writeAt(dst, piece, j.From+done)
		}
		done += int64(len(piece))
		d.Ops++
		d.Bytes += int64(len(piece))
	}
	if err == nil {
		err = unix.Fsync(dst)
	}
	return d, errs.Wrap("copy", j.To, closeWith(src, closeWith(dst, err)))
}

// check reads a range and looks at every page.
func (j *Job) check() (d Done, err error) {
	fd, err := openFile(j.Path, unix.O_RDONLY)
	if err != nil {
		return d, err
	}
	buf := make([]byte, j.Block)
	for off := j.From; off < j.From+j.Bytes && err == nil; off += j.Block {
		piece := buf[:min(j.Block, j.From+j.Bytes-off)]
		if err = readAt(fd, piece, off); err == nil && !stamped(piece, off) {
			err = errs.Newf(errs.Corrupt, "read", j.Path, "other data at %d", off)
		}
		d.Bytes += int64(len(piece))
	}
	return d, errs.Wrap("check", j.Path, closeWith(fd, err))
}
