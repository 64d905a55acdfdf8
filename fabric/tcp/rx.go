package tcp

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
)

// What frames do. The reader never blocks in writing: what it has to say goes through the queues of
// tx.go.

// rxState belongs to the reader: it is guarded by rxMu.
type rxState struct {
	stream
	mustSend bool            // something was queued for tx.go
	flowing  bool            // a receive was found: take does not wait any more
	early    bool            // the oldest frame is a message, and the first receive was not posted yet
	over     bool            // nobody reads any more
	err      error           // what ended the connection, found by who had the turn
	called   chan struct{}   // room for one: interrupts who waits for something else than the socket
	batch    *progress.Batch // the poller's, or nil
	budget   int             // bytes that may still be handled before others have their turn
	taken    bool            // recv is being filled
	recv     fabric.Recv
	seenAck  uint32
}

// speak sends what handling frames has queued. It comes before everything that blocks.
func (e *endpoint) speak() {
	if e.rx.mustSend {
		e.rx.mustSend = false
		e.mu.Lock()
		e.pumpLocked()
	}
}

// run reads frames until the connection ends.
func (e *endpoint) run() {
	defer e.d.Running.Done()
	err := e.readInBackground()
	if errs.KindOf(err) == errs.Protocol {
		e.Die(errs.Protocol, err.Error())
	} else {
		e.mu.Lock()
		e.heard = !e.Dead() // nobody is there to listen
		e.mu.Unlock()
		e.Die(errs.Disconnected, "the connection ended: "+err.Error())
	}
	e.finish()
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
		more, err := e.handleReadData(&e.rx.stream, h)
		e.rx.mustSend = e.rx.mustSend || more
		return err
	case frameReadRefused:
		more, err := e.handleReadRefused(h)
		e.rx.mustSend = e.rx.mustSend || more
		return err
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
