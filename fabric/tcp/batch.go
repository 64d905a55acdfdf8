package tcp

import (
	"io"
	"syscall"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

const (
	batchFrames = 32
	batchBytes  = 256 << 10 // no more frames behind so many bytes
)

// batch is a number of frames that are being written. It belongs to who set busy.
type batch struct {
	*sock
	headers [batchFrames][headerBytes]byte
	frames  int
	out     vec                 // what is not written yet, and not sealed
	grants  [batchFrames]*grant // in use by answers in the batch
	used    int
	number  uint64 // of the last request in it
	ack     uint32 // the highest acknowledgement in it

	// The payload of the last frame, if it comes from a file, stands behind out.
	file   fabric.FileRange
	fd     int
	fileOf *work // touched only if the file fails, else it may be over before the batch knows

	wire    *vec  // what the socket gets next: out, or what the records made of it
	fileErr error // the file failed

	call, callBlocking func(fd uintptr) bool
	n                  int
	errno              syscall.Errno
	err                error
}

func (b *batch) open(k *sock, sealed *vec) {
	b.sock, b.wire = k, &b.out
	if k.rec != nil {
		b.wire = sealed
	}
	b.call, b.callBlocking = b.writeOnce, b.writeAll
}

// reset makes room for the next frames. The last ones have been written.
func (b *batch) reset() {
	b.out.reset()
	b.frames = 0
	b.file, b.fileOf = fabric.FileRange{}, nil
}

// add appends a frame's header.
func (b *batch) add(h *header) {
	p := &b.headers[b.frames]
	h.encode(p)
	b.out.add(p[:])
	b.frames++
	b.ack = h.ack
}

// room tells whether any frame still fits.
func (b *batch) room() bool {
	return b.frames < batchFrames && b.out.room() > maxSge && b.out.bytes < batchBytes &&
		b.file.Len == 0
}

// left tells whether there is something that the socket did not take.
func (b *batch) left() bool { return b.out.bytes > 0 || b.wire.bytes > 0 || b.file.Len > 0 }

// release ends the use of granted memory by the batch.
func (b *batch) release() {
	for i, g := range b.grants[:b.used] {
		g.Release()
		b.grants[i] = nil
	}
	b.used = 0
}

// writeOnce is called with the socket; it does not wait for it, and gives up where the socket does
// not take all that it is given.
func (b *batch) writeOnce(fd uintptr) bool {
	for b.left() && b.step(fd) && b.wire.bytes == 0 {
	}
	return true
}

// writeAll is writeOnce until the batch is out: false waits until the socket takes more.
func (b *batch) writeAll(fd uintptr) bool {
	for b.left() && b.step(fd) {
	}
	return b.errno != syscall.EAGAIN
}

// write hands the batch to the socket with one of the calls and tells what failed.
func (b *batch) write(call func(fd uintptr) bool) error {
	b.errno, b.err = 0, nil
	err := b.raw.Write(call)
	switch {
	case err != nil:
		return err
	case b.err != nil:
		return b.err
	case b.errno != 0 && b.errno != syscall.EAGAIN:
		return b.errno
	}
	return nil
}

// step makes one system call and tells whether that went well.
func (b *batch) step(fd uintptr) bool {
	b.errno = 0
	if b.wire.bytes == 0 && b.rec != nil && b.left() {
		if b.err = b.rec.seal(b); b.err != nil {
			return false
		}
	}
	switch {
	case b.wire.bytes > 0:
		more := b.file.Len > 0 && b.rec == nil
		b.n, b.errno = b.wire.writev(fd, more)
		if b.errno == 0 {
			b.wire.drop(b.n)
		}
	case b.file.Len > 0:
		b.stepFile(fd)
	}
	return b.errno == 0 && b.err == nil
}

// sendfileMax keeps a call that reads from a slow disk short.
const sendfileMax = 1 << 20

// stepFile has the kernel send from the file, without a copy in this process.
func (b *batch) stepFile(fd uintptr) {
	f := &b.file
	off := f.Off
	n, err := syscall.Sendfile(int(fd), b.fd, &off, int(min(f.Len, sendfileMax)))
	switch err {
	case nil:
		if n == 0 {
			b.failFile(io.ErrUnexpectedEOF)
		}
		f.Off += int64(n)
		f.Len -= int64(n)
	case syscall.EINTR:
	case syscall.EAGAIN, syscall.EPIPE, syscall.ECONNRESET: // the socket's
		b.errno = err.(syscall.Errno)
	default:
		b.failFile(err)
	}
}

// readFile is stepFile for records, which need the bytes here. It returns what it read.
func (b *batch) readFile(buf []byte) ([]byte, error) {
	f := &b.file
	buf = buf[:min(f.Len, int64(len(buf)))]
	n, err := f.File.ReadAt(buf, f.Off)
	if n == 0 {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		b.failFile(err)
		return nil, b.err
	}
	f.Off += int64(n)
	f.Len -= int64(n)
	return buf[:n], nil
}

// failFile ends the connection: the frame's header has promised bytes that are not there.
func (b *batch) failFile(err error) {
	name := b.file.File.Name()
	b.fileErr = errs.Newf(errs.IO, "fabric", name, "reading the range to send: %w", err)
	b.err = b.fileErr
}
