package tcp

import "syscall"

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

	wire *vec // what the socket gets next: out, or what the records made of it

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
	return b.frames < batchFrames && b.out.room() > maxSge && b.out.bytes < batchBytes
}

// left tells whether there is something that the socket did not take.
func (b *batch) left() bool { return b.out.bytes > 0 || b.wire.bytes > 0 }

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
	if b.wire.bytes > 0 {
		b.n, b.errno = b.wire.writev(fd)
		if b.errno == 0 {
			b.wire.drop(b.n)
		}
	}
	return b.errno == 0
}
