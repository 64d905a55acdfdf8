//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// gate holds messages back until the peer has posted its first receives. A page of each end holds
// two words: the peer writes the first one when it is ready; this end writes the second one to the
// peer.
//
//	0                8               16
//	|peer is ready   |always 1       |   of a page; only these 16 bytes are registered
//
// The hello carries the key; the page lies at address 0 of it, for both ends. An endpoint that has
// messages to send and finds the gate closed polls the word in a goroutine, once in the life of a
// connection.
type gate struct {
	page    []byte
	mr      *cMR
	peerKey uint32         // of the peer's gate
	wg      sync.WaitGroup // the goroutine that polls

	mu        sync.Mutex
	announced bool // this end has announced its receives

	// Guarded by endpoint.sendMu. A listener's end is not live until the dialler says that its queue
	// pair is up (or has written the word): what is sent before is lost and retried only after a
	// timeout.
	live        bool
	isOpen      bool
	polling     bool // a goroutine polls the word
	announceDue bool // the word has to be written to the peer
	messages    bool // messages are among the requests that wait
}

const gateBytes = 16

func (g *gate) open(dev *device) error {
	page, err := syscall.Mmap(-1, 0, syscall.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	_ = syscall.Madvise(page, syscall.MADV_DONTFORK)
	page[8] = 1
	g.mr, err = registerMemory(dev.pd, page[:gateBytes], 0, accessLocal|accessRemoteWrite)
	if err != nil {
		_ = syscall.Munmap(page)
		return memoryError("verbs.connect", dev.name, err)
	}
	g.page = page
	return nil
}

func (g *gate) close() {
	if g.page == nil {
		return
	}
	deregisterMemory(g.mr)
	_ = syscall.Munmap(g.page)
}

// announce is true the first time: then the peer has to be told.
func (g *gate) announce() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.announced
	g.announced = true
	return first
}

// tellReady opens the peer's gate, as soon as the peer can receive the write.
func (e *endpoint) tellReady() {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	e.gate.announceDue = true
	if e.Dead() {
		return
	}
	if e.gate.live {
		e.tellLocked()
	} else {
		e.startPollLocked()
	}
}

// tellLocked writes the word to the peer, if that is due.
func (e *endpoint) tellLocked() {
	if e.gate.announceDue {
		e.gate.announceDue = false
		n := e.numberLocked(&sendSlot{kind: slotFree})
		err := postWrite(e.qp, e.sendID(n), e.gate.mr, 8, 8, e.gate.peerKey)
		if err != nil { // the peer's messages would wait for ever
			e.Die(errs.Disconnected, "the device takes no requests: "+err.Error())
		}
	}
}

// mustHoldLocked tells whether a chain has to wait: the peer may not take anything yet, or the
// chain, or what waits already, holds messages and the gate is closed.
func (e *endpoint) mustHoldLocked(wrs []fabric.WR) bool {
	if e.gate.isOpen {
		return false
	}
	e.gate.isOpen = word(e.gate.page) != 0
	e.gate.live = e.gate.live || e.gate.isOpen
	message := e.gate.messages
	for i := range wrs {
		message = message || wrs[i].Op == fabric.OpSend || wrs[i].Op == fabric.OpWriteImm
	}
	hold := !e.gate.live || message && !e.gate.isOpen
	e.gate.messages = message && hold
	return hold
}

// startPollLocked starts the goroutine that polls the gate, once.
func (e *endpoint) startPollLocked() {
	if !e.gate.polling {
		e.gate.polling = true
		e.gate.wg.Go(e.pollGate)
	}
}

// pollGate polls the word, with backoff, and posts what waits when the peer is ready.
func (e *endpoint) pollGate() {
	const soonest, latest = 50 * time.Microsecond, 5 * time.Millisecond
	for pause := soonest; !e.Dead(); pause = min(2*pause, latest) {
		if word(e.gate.page) != 0 {
			e.established(true)
			return
		}
		time.Sleep(pause)
	}
}

// established is called when the peer's queue pair can receive; open: the gate is open too. It
// posts what waited for that.
func (e *endpoint) established(open bool) {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	e.gate.live = true
	e.gate.isOpen = e.gate.isOpen || open
	if e.Dead() {
		return
	}
	e.tellLocked()
	if e.gate.isOpen || !e.gate.messages {
		e.gate.messages = false
		_ = e.postStageLocked()
	}
}
