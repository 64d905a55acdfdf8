package shm

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// inbox is where run reads notes into.
type inbox struct {
	buf   [exportBytes + 1]byte
	oob   [64]byte // room for a few descriptors; the kernel drops more
	n     int
	oobn  int
	errno error
}

// run reads the socket until the connection ends, and serves the endpoint while nobody polls.
func (e *endpoint) run() {
	defer e.d.Running.Done()
	e.serve(true)
	err := e.readNotes()
	if err == nil { // the peer is gone; handle what it left in the ring
		for !e.stopped.Load() && e.progress() {
		}
		err = e.peerCause()
	}
	if e.faulted.Load() {
		err = errs.Newf(errs.Disconnected, "shm", "", "the peer took shared memory away")
	}
	e.fail(err)
	e.finish()
}

// peerCause is why the peer has closed its socket.
func (e *endpoint) peerCause() error {
	defer e.guard().off()
	if errs.Kind(e.view.theirs.bye.Load()) == errs.Protocol {
		return protocolErr("the peer ended the connection for a breach of protocol")
	}
	return errs.Newf(errs.Disconnected, "shm", "", "the peer is gone")
}

// readNotes handles notes until the peer has closed the socket (nil) or something is wrong.
func (e *endpoint) readNotes() error {
	var in inbox
	read := func(fd uintptr) bool {
		in.n, in.oobn, _, _, in.errno = unix.Recvmsg(int(fd), in.buf[:], in.oob[:],
			unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return in.errno != syscall.EAGAIN
	}
	for {
		if err := e.raw.Read(read); err != nil {
			return err
		}
		switch {
		case in.errno == syscall.EINTR:
			continue
		case in.errno == syscall.ECONNRESET: // it died with notes unread
			return nil
		case in.errno != nil:
			return in.errno
		case in.n == 0:
			return nil
		}
		fds := takeFds(in.oob[:in.oobn])
		err := e.handleNote(in.buf[:in.n], fds)
		closeAll(fds)
		if err != nil {
			return err
		}
	}
}

// handleNote does what a note says. The descriptors stay the caller's.
func (e *endpoint) handleNote(b []byte, fds []int) error {
	n, err := decodeNote(b)
	if err != nil {
		return err
	}
	switch n.kind {
	case noteDoorbell:
		e.serve(false)
	case noteExport:
		return e.mapArena(n, fds)
	case noteLend:
		return e.borrow(n, fds)
	case noteBorrowed:
		e.taken(n.id)
	case noteWithdraw:
		e.unmapArena(n.id)
	}
	return nil
}

// serve does what the peer has asked for, and arms the endpoint again unless a poller is awake,
// which will. first: no poller can be yet.
func (e *endpoint) serve(first bool) {
	for {
		e.progress()
		if !first && !e.recvCQ.armed.Load() && !e.sendCQ.armed.Load() {
			return
		}
		if _, quiet := e.arm(bySocket); quiet {
			return
		}
		runtime.Gosched()
	}
}

// mapArena maps memory of the peer's, if it may pass any. Beyond the limits it maps nothing, and
// accesses go through the ring.
func (e *endpoint) mapArena(n note, fds []int) error {
	if !e.maps || len(fds) != 1 {
		return protocolErr("memory that nobody asked for")
	}
	_, err := e.mapOnce(n, fds[0], false)
	return err
}

// mapOnce maps memory of the peer's under its number. It is false where the limits do not allow it,
// or there is no address space.
func (e *endpoint) mapOnce(n note, fd int, lent bool) (bool, error) {
	if n.size > 1<<44 {
		return false, protocolErr("memory of an impossible size")
	}
	if err := checkMemfd(fd, int64(n.size), lent); err != nil {
		return false, err
	}
	e.mapMu.Lock()
	defer e.mapMu.Unlock()
	if _, ok := e.arenas[n.id]; ok {
		return false, protocolErr("memory under a number that is taken")
	}
	opts := &e.d.opts
	if len(e.arenas) >= opts.PeerArenas || e.mapBytes+int64(n.size) > opts.PeerBytes {
		return false, nil
	}
	use := writable
	if lent {
		use = readable
	}
	mem, err := mapShared(fd, int(n.size), use)
	if err != nil {
		return false, nil
	}
	m := newMapping(mem)
	m.lent = lent
	e.arenas[n.id] = m
	e.mapBytes += int64(n.size)
	return true, nil
}

// unmapArena forgets memory that the peer has freed.
func (e *endpoint) unmapArena(id uint32) {
	e.mapMu.Lock()
	defer e.mapMu.Unlock()
	if m, ok := e.arenas[id]; ok {
		_ = unix.Munmap(m.mem)
		delete(e.arenas, id)
		e.mapBytes -= int64(len(m.mem))
		if m.lent {
			e.borrowing.Add(-1)
		}
	}
}

// ringDoorbell is called with the socket. If the socket is full of notes one more is not needed.
func (e *endpoint) ringDoorbell(fd uintptr) bool {
	bell := [4]byte{3: noteDoorbell}
	_, _ = unix.SendmsgN(int(fd), bell[:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return true
}

// sendArena passes an arena to the peer; false if the socket does not take it now.
func (e *endpoint) sendArena(kind byte, id uint32, memfd, size int) bool {
	return e.send(note{kind: kind, id: id, size: uint64(size)}, unix.UnixRights(memfd))
}

// withdraw tells the peer that an arena is freed. The pages of one that was not lent are freed even
// if that fails.
func (e *endpoint) withdraw(id uint32) {
	e.forgive(id)
	e.send(note{kind: noteWithdraw, id: id}, nil)
}

// send sends a note; false if the socket does not take it now.
func (e *endpoint) send(n note, rights []byte) bool {
	var b [exportBytes]byte
	packet := encodeNote(b[:0], n)
	sent := false
	err := e.raw.Write(func(fd uintptr) bool {
		_, err := unix.SendmsgN(int(fd), packet, rights, nil,
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		sent = err == nil
		return true
	})
	return err == nil && sent
}
