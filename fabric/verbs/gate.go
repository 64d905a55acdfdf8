//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// gate keeps messages back until the peer has posted receives for the first time. A page of each
// end holds two words: the peer writes the first one when it is ready, the second is what this end
// writes to the peer.
//
//	0                8               16
//	|peer is ready   |always 1       |   of a page; only these 16 bytes are registered
//
// The hello carries the key; the page lies at address 0 of it, for both ends. Whoever has messages
// to send and finds the gate closed looks again every so often, which happens once in the life of a
// connection.
type gate struct {
	page    []byte
	mr      *cMR
	peerKey uint32         // of the peer's gate
	wg      sync.WaitGroup // the goroutine that looks

	mu    sync.Mutex
	spoke bool // this end has announced its receives

	// Guarded by endpoint.sendMu. A listener's end is not live until the dialler says that its
	// queue pair is up (or has written the word): what came there before would be lost, and
	// repeated after a good while only.
	live     bool
	isOpen   bool
	looking  bool // a goroutine looks at the word
	untold   bool // the peer has to be told of receives
	messages bool // are among what waits
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

// announce tells, once, that the peer has to be told.
func (g *gate) announce() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.spoke
	g.spoke = true
	return first
}

// tellReady opens the peer's gate, as soon as the peer can be written to.
func (e *endpoint) tellReady() {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	e.gate.untold = true
	if e.Dead() {
		return
	}
	if e.gate.live {
		e.tellLocked()
	} else {
		e.awaitGateLocked()
	}
}

// tellLocked writes the word, if that is due.
func (e *endpoint) tellLocked() {
	if e.gate.untold {
		e.gate.untold = false
		n := e.numberLocked(&sendSlot{kind: slotFree})
		_ = postWrite(e.qp, e.sendID(n), e.gate.mr, 8, 8, e.gate.peerKey)
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

// awaitGateLocked sees to it that somebody looks at the gate.
func (e *endpoint) awaitGateLocked() {
	if !e.gate.looking {
		e.gate.looking = true
		e.gate.wg.Go(e.lookAtGate)
	}
}

// lookAtGate posts what waits as soon as the peer is ready.
func (e *endpoint) lookAtGate() {
	const soonest, latest = 50 * time.Microsecond, 5 * time.Millisecond
	for pause := soonest; !e.Dead(); pause = min(2*pause, latest) {
		if word(e.gate.page) != 0 {
			e.established(true)
			return
		}
		time.Sleep(pause)
	}
}

// established is told that the peer's queue pair takes what is sent to it, and whether the gate is
// open too. It posts what waited for that.
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
