package memory

import (
	"context"
	"time"
)

// queueMax is how long the first one in the queue for memory may have waited before new loans wait
// for him.
const queueMax = 5 * time.Millisecond

// Hold counts a unit of the block's slab that somebody holds. A unit that is held keeps others from
// using its slab, so loans are bounded by slabs, not by bytes.
func (p *Pool) Hold(b Block) {
	if b.slab.held++; b.slab.held == 1 {
		p.heldSlabs++
	}
}

// Unhold ends a Hold.
func (p *Pool) Unhold(b Block) {
	if b.slab.held--; b.slab.held == 0 {
		p.heldSlabs--
		p.admit()
	}
}

// HeldSlabs is how many slabs have a unit that is held.
func (p *Pool) HeldSlabs() int { return p.heldSlabs }

// Open tells whether a new loan may try at once.
func (p *Pool) Open() bool { return p.gate.Empty() && !p.blocked() }

// blocked tells whether new loans have to wait for the queue.
func (p *Pool) blocked() bool {
	return !p.queue.Empty() && time.Since(p.headSince) > queueMax
}

// Pass lets a loan in behind those that wait at the gate.
func (p *Pool) Pass(ctx context.Context, w *Waiter) error {
	if p.Open() {
		return nil
	}
	w.Arm()
	p.gate.Push(w)
	return p.wait(ctx, &p.gate, w)
}

// StandAside has a loan that has passed, and found too much held, wait until something was let go.
func (p *Pool) StandAside(ctx context.Context, w *Waiter) error {
	w.Arm()
	p.gate.PushFront(w)
	return p.wait(ctx, &p.gate, w)
}

// AdmitMore lets the next one at the gate try, because the one before him has.
func (p *Pool) AdmitMore() {
	if int64(p.heldSlabs) < p.cfg.LoanBytes>>SlabShift && !p.blocked() {
		p.admit()
	}
}
