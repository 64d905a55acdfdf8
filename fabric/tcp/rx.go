package tcp

import (
	"io"
	"syscall"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Reading: one goroutine per endpoint. Headers, small payloads and the first bytes of large ones
// come through the carry buffer; the rest of a payload is read by readv straight into its target,
// with a piece of the carry buffer behind it, so that the next header comes for free. The reader
// never blocks in writing: what it has to say goes through the queues of tx.go.

const (
	carryBytes = 4096
	tailBytes  = 512      // of the carry buffer, behind a bulk payload
	bulkBytes  = 64 << 10 // behind so much, what follows is bulk too and should not be carried
)

// rxState belongs to the reader.
type rxState struct {
	carry    [carryBytes]byte
	at, to   int // carry[at:to] was read and not used yet
	in       vec
	call     func(fd uintptr) bool
	n        int
	errno    syscall.Errno
	one      [1][]byte // a target of one piece
	mustSend bool      // something was queued for tx.go
	flowing  bool      // a receive was found: take does not wait any more
	woke     bool      // a frame woke somebody who could have read it
	taken    bool      // recv is being filled
	recv     fabric.Recv
	seenAck  uint32
	brisk    brisk
}

// readOnce is called with the socket: false waits until there is something to read.
func (e *endpoint) readOnce(fd uintptr) bool {
	x := &e.rx
	x.n, x.errno = x.in.readv(fd)
	if x.errno != syscall.EAGAIN {
		return true
	}
	if e.bulk.Load() && e.bulk.Swap(false) {
		x.brisk.streak = 0 // the cores have better things to do than to poll
	}
	if x.brisk.begin(&e.d.spinners) {
		for x.errno == syscall.EAGAIN && x.brisk.on() {
			yield() // the peer may be waiting for this very core
			x.n, x.errno = x.in.readv(fd)
		}
		e.d.spinners.Add(-1)
	}
	return x.errno != syscall.EAGAIN
}

// speak sends what handling frames has queued. It comes before everything that blocks.
func (e *endpoint) speak() {
	if e.rx.mustSend {
		e.rx.mustSend = false
		e.mu.Lock()
		e.pumpLocked()
	}
}

// read reads into what is in rx.in, blocking until there is something.
func (e *endpoint) read() (int, error) {
	e.speak()
	err := e.raw.Read(e.rx.call)
	switch {
	case err != nil:
		return 0, err
	case e.rx.errno != 0:
		return 0, e.rx.errno
	case e.rx.n == 0:
		return 0, io.EOF
	}
	return e.rx.n, nil
}

// run reads frames until the connection ends.
func (e *endpoint) run() {
	defer e.d.wg.Done()
	err := e.keep()
	if errs.KindOf(err) == errs.Protocol {
		e.die(errs.Protocol, err.Error())
	} else {
		e.mu.Lock()
		e.heard = e.dead == errs.OK // nobody is there to listen
		e.mu.Unlock()
		e.die(errs.Disconnected, "the connection ended: "+err.Error())
	}
	e.finish()
}

// fill reads more into the carry buffer.
func (e *endpoint) fill() error {
	x := &e.rx
	x.to = copy(x.carry[:], x.carry[x.at:x.to])
	x.at = 0
	x.in.reset()
	x.in.add(x.carry[x.to:])
	n, err := e.read()
	if err == nil {
		x.to += n
	}
	return err
}

// next handles one frame.
func (e *endpoint) next() error {
	x := &e.rx
	for x.to-x.at < headerBytes {
		if err := e.fill(); err != nil {
			return err
		}
	}
	b := [headerBytes]byte(x.carry[x.at:]) // a copy: what is checked is what is used
	x.at += headerBytes
	h, err := decodeHeader(&b, e.cfg.Hello.MaxMessage)
	if err != nil {
		return err
	}
	return e.handle(&h)
}

// place reads the next bytes of the stream into the pieces, until they are full.
func (e *endpoint) place(bufs [][]byte) error {
	x := &e.rx
	x.in.reset()
	for _, b := range bufs {
		n := copy(b, x.carry[x.at:x.to])
		x.at += n
		x.in.add(b[n:])
	}
	want := x.in.bytes
	if want == 0 {
		return nil
	}
	tail := carryBytes // it is empty now
	if want >= bulkBytes {
		tail = tailBytes
		e.bulk.Store(true)
	}
	x.at, x.to = 0, 0
	x.in.add(x.carry[:tail])
	for {
		n, err := e.read()
		if err != nil {
			x.in.reset()
			return err
		}
		if n >= want {
			x.to = n - want
			x.in.reset()
			return nil
		}
		want -= n
		x.in.drop(n)
	}
}

// placeOne is place for a single piece.
func (e *endpoint) placeOne(b []byte) error {
	e.rx.one[0] = b
	err := e.place(e.rx.one[:])
	e.rx.one[0] = nil
	return err
}

// skip drops the next n bytes of the stream.
func (e *endpoint) skip(n int) error {
	x := &e.rx
	for {
		have := min(n, x.to-x.at)
		x.at += have
		n -= have
		if n == 0 {
			return nil
		}
		x.at, x.to = 0, 0
		x.in.reset()
		x.in.add(x.carry[:])
		got, err := e.read()
		if err != nil {
			return err
		}
		x.to = got
	}
}

// handle does what a frame asks for.
func (e *endpoint) handle(h *header) error {
	if h.kind == frameWriteRefused { // before the acknowledgement that covers it
		if err := e.handleWriteRefused(h); err != nil {
			return err
		}
	}
	if h.ack != e.rx.seenAck {
		if err := e.handleAck(h.ack); err != nil {
			return err
		}
	}
	switch h.kind {
	case frameSend:
		return e.handleSend(h)
	case frameWrite, frameWriteImm:
		return e.handleWrite(h)
	case frameRead:
		return e.handleRead(h)
	case frameReadData:
		return e.handleReadData(h)
	case frameReadRefused:
		return e.handleReadRefused(h)
	case frameBye:
		return e.handleBye(h)
	}
	return nil
}

// handleAck completes what the peer has carried out.
func (e *endpoint) handleAck(ack uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	fresh := ack - uint32(e.acked) // modulo 2^32, as the numbers on the wire are
	if uint64(fresh) > e.started-e.acked {
		return protocolErr("an acknowledgement for what was never sent")
	}
	e.acked += uint64(fresh)
	e.rx.seenAck = ack
	e.retireLocked()
	return nil
}

// carriedOut counts a request of the peer's.
func (e *endpoint) carriedOut(h *header) {
	e.rxCount.Add(1)
	e.wantsAck(h)
}

func (e *endpoint) wantsAck(h *header) {
	if h.flags&frameWantsAck == 0 {
		return
	}
	e.mu.Lock()
	e.ackDue = true
	e.mu.Unlock()
	e.rx.mustSend = true
}

func (e *endpoint) handleBye(h *header) error {
	e.mu.Lock()
	e.heard = true
	e.mu.Unlock()
	if errs.Kind(h.imm) == errs.Protocol {
		return protocolErr("the peer ended the connection for a breach of protocol")
	}
	return errs.Newf(errs.Disconnected, "tcp", "", "closed by the peer")
}

func protocolErr(why string) error { return errs.Newf(errs.Protocol, "tcp", "", "%s", why) }
