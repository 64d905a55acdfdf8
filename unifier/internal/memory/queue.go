package memory

import (
	"context"
	"time"
)

// Nobody waits in a circle for memory. A request gets all the memory that it needs in one step,
// before it holds anything that others could wait for; whoever holds memory comes to its end
// without asking for more. Those who cannot be served at once stand in one queue, in the order in
// which they came; only the first one collects, and what becomes free is his. So the first one is
// served when enough of the others have ended, and nobody is passed over for ever.
//
// The one thing that could keep memory from him is a crowd of readers that holds the same units
// again and again: when he has waited for queueMax, new loans wait until he is served: they stand
// at the gate.

// TryAllocate is Allocate that does not wait; nothing is held when it says no. Readahead takes
// nothing from units that have proved to be useful.
func (p *Pool) TryAllocate(r *Request, ahead bool) bool {
	if p.queue.Empty() && p.collect(r, ahead) {
		return true
	}
	p.Free(r)
	return false
}

// Free takes back all that the request got.
func (p *Pool) Free(r *Request) {
	for _, b := range r.Got {
		p.blocks.give(b)
	}
	r.Got = r.Got[:0]
}

// FreeBlock takes one block back.
func (p *Pool) FreeBlock(b Block) { p.blocks.give(b) }

// HasFree tells whether a block of the class can be had without taking it from anybody.
func (p *Pool) HasFree(shift uint8) bool { return p.queue.Empty() && p.blocks.has(shift) }

// collect takes what is free, then what can be evicted. While there is more to map it evicts
// nothing.
func (p *Pool) collect(r *Request, ahead bool) bool {
	var last Block
	if len(r.Got) > 0 {
		last = r.Got[len(r.Got)-1]
	}
	for len(r.Got) < r.Count+r.More {
		shift := r.Shift
		if len(r.Got) >= r.Count {
			shift = r.Small
		}
		if b, ok := p.blocks.take(shift, last); ok {
			r.Got = append(r.Got, b)
			last = b
			continue
		}
		if p.mapping || p.growth() > 0 || !p.evict.Evict(shift, ahead) {
			return false
		}
	}
	return true
}

// Serve gives those who wait what is there. Whoever has freed something, or has let go of a unit,
// calls it before he lets go of the lock.
func (p *Pool) Serve() {
	if p.queue.Empty() {
		return
	}
	served := false
	for w := p.queue.First(); w != nil && p.collect(w.request, false); w = p.queue.First() {
		p.queue.Release(w, nil)
		p.headSince = time.Now()
		served = true
	}
	if served {
		p.admit() // loans may have waited for the one who was served
	}
}

// admit lets the longest waiting loan try.
func (p *Pool) admit() {
	if w := p.gate.First(); w != nil {
		p.gate.Release(w, nil)
	}
}

// wait waits in a line for memory, and tells whoever could free some.
func (p *Pool) wait(ctx context.Context, l *Line, w *Waiter) error {
	p.waits++
	if w.link.In() {
		select {
		case p.starved <- struct{}{}:
		default:
		}
	}
	return l.Wait(ctx, p.mu, w)
}

// Starved gets a token when somebody begins to wait for memory: write-back, which holds some,
// should not wait for the age of what is pending then. It needs no lock.
func (p *Pool) Starved() <-chan struct{} { return p.starved }

// Short tells whether somebody waits for memory.
func (p *Pool) Short() bool { return !p.queue.Empty() || !p.gate.Empty() }

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
	p.Serve() // before: whoever stands at the gate must not let himself in
	p.gate.Push(w)
	return p.wait(ctx, &p.gate, w)
}

// StandAside has a loan that has passed, and found too much held, wait until something was let go.
func (p *Pool) StandAside(ctx context.Context, w *Waiter) error {
	p.Serve()
	p.gate.PushFront(w)
	return p.wait(ctx, &p.gate, w)
}

// AdmitMore lets the next one at the gate try, because the one before him has.
func (p *Pool) AdmitMore() {
	if int64(p.heldSlabs) < p.cfg.LoanBytes>>SlabShift && !p.blocked() {
		p.admit()
	}
}
