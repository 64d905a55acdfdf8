package mover

import (
	"errors"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Run says how a plan is moved this time. The zero value gathers or scatters and sends no notice.
type Run struct {
	// Method is the way of a Put. Default Auto, which gathers where packing cannot be done: without
	// Staging, a Slot that is large enough, or a Notice. A Get is never packed.
	Method Method

	// Slot is memory of the peer that packed data goes to, from its beginning. The peer has an
	// Unpacker for it. Default none.
	Slot fabric.Remote

	// Notice tells the peer that the data is there. Default nothing.
	Notice Notice

	// Done, if not nil, is called when the move is over, by the goroutine that passes its last
	// completion to Completed, or calls Cancel or Close, or in Start if there is nothing to do. It may
	// start the plan again. Plan.Done tells the same.
	Done func(err error)
}

// run is the state of a plan's move. Guarded by Mover.mu, except what belongs to the goroutine that
// locked the plan.
type run struct {
	busy    bool // a goroutine has locked the plan, or it is being moved
	started bool // a move is under way; before, Start returns its failure
	number  int
	context uint64 // of its requests, without their own number

	opts   Run
	method Method
	list   []fabric.WR // what is to be posted
	next   int         // requests before it were posted
	freed  int         // requests before it gave their places back; of a Put
	open   int         // signalled requests that are under way

	queued bool
	after  *Plan // the next in the mover's queue, or of those that are over

	stop   error // why nothing more is posted
	result error // of the last move
}

// lock makes the plan the caller's, unless a move of it is under way.
func (p *Plan) lock() error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.run.busy {
		return errs.Newf(errs.Busy, "mover.Plan", p.m.name(), "a move of the plan is under way")
	}
	p.run.busy = true
	return nil
}

func (p *Plan) unlock() {
	p.m.mu.Lock()
	p.run.busy = false
	p.m.mu.Unlock()
}

// Start begins a move of the plan and returns without waiting for any of it. The pieces belong to
// the move until it is over. On an error nothing was begun, and Done is not called: errs.Busy if a
// move of this plan is under way, errs.Again if too many are, or, with Pack, if there is no buffer
// for it; errs.TooBig or errs.Invalid if it is not possible; Post's error if the endpoint is dead.
// A move that does not fit into the send queue waits for room.
func (m *Mover) Start(p *Plan, opts Run) error {
	invariant.Check(p.m == m, "mover.Start of a plan of another mover")
	if err := p.lock(); err != nil {
		return err
	}
	err := p.prepare(&opts)
	if err == nil {
		err = m.begin(p, opts)
	}
	if err != nil {
		p.release()
		p.unlock()
	}
	return err
}

// begin gives the move a number and posts as much of it as there is room for.
func (m *Mover) begin(p *Plan, opts Run) error {
	m.mu.Lock()
	select {
	case <-p.token: // the last move's token was not taken
	default:
	}
	switch {
	case m.closed:
		m.mu.Unlock()
		return errs.New(errs.Closed, "mover.Start", m.name(), nil)
	case len(m.spare) == 0:
		m.mu.Unlock()
		return errs.Newf(errs.Again, "mover.Start", m.name(), "%d moves are under way", m.opts.Moves)
	}
	r := &p.run
	r.opts, r.next, r.freed, r.open, r.stop, r.result = opts, 0, 0, 0, nil, nil
	r.number = m.spare[len(m.spare)-1]
	m.spare = m.spare[:len(m.spare)-1]
	e := &m.moves[r.number]
	e.plan = p
	e.generation++
	r.context = uint64(m.opts.Mark)<<markShift |
		uint64(e.generation)<<(moveBits+requestBits) | uint64(r.number)<<requestBits
	m.enqueueLocked(p)
	m.pumpLocked()
	if err := r.stop; err != nil && r.next == 0 { // its first part was refused
		m.leaveLocked(p)
		m.unlockAndTell()
		return errs.Wrap("mover.Start", m.name(), err)
	}
	r.started = true
	m.finishIfIdleLocked(p)
	m.counts.moves.Add(1)
	m.counts.bytes.Add(uint64(p.total))
	if r.method == Pack {
		m.counts.packed.Add(1)
	}
	m.unlockAndTell()
	return nil
}

// Completed is called with the completions of the endpoint's queue, in order, and tells whether one
// is of a move. It may be called with those of others on the same endpoint too, and must be if they
// do not leave SendDepth places of the send queue to the mover.
func (m *Mover) Completed(c *fabric.Completion) bool {
	mine := c.Op != fabric.OpRecv && c.Context>>markShift == uint64(m.opts.Mark) &&
		c.EP == m.opts.Endpoint
	if !mine {
		if m.stalled.Load() {
			m.mu.Lock()
			m.pumpLocked()
			m.unlockAndTell()
		}
		return false
	}
	m.mu.Lock()
	number := int(c.Context >> requestBits & (1<<moveBits - 1))
	var p *Plan
	if number < len(m.moves) {
		p = m.moves[number].plan
	}
	if p == nil || p.run.context != c.Context&^(1<<requestBits-1) {
		m.mu.Unlock() // of a move that Close has ended
		return true
	}
	m.completedLocked(p, int(c.Context&(1<<requestBits-1)), c.Err)
	m.pumpLocked()
	m.finishIfIdleLocked(p)
	m.unlockAndTell()
	return true
}

// completedLocked records the completion of request at. Requests that were not signalled complete
// only if they fail, and the signalled one behind them is still to come.
func (m *Mover) completedLocked(p *Plan, at int, err error) {
	r := &p.run
	if err != nil {
		p.failLocked(at, err)
	}
	if r.list[at].Flags&fabric.FlagSignaled == 0 {
		return
	}
	r.open--
	if m.tellsEach(p) {
		m.free++
		return
	}
	m.free += at + 1 - r.freed
	r.freed = at + 1
}

// failLocked records why the move fails: the first error, except that a refused segment replaces
// the end of the connection that it caused.
func (p *Plan) failLocked(at int, err error) {
	var was *PieceError
	first := !errors.As(p.run.stop, &was)
	if first || errs.KindOf(err) == errs.Perm && errs.KindOf(was) != errs.Perm {
		p.run.stop = nil
		p.stopLocked(&PieceError{Segment: p.segmentOf(at), Err: err})
	}
}

// segmentOf tells which segment a request of this run serves; -1 for the slot and the notice.
func (p *Plan) segmentOf(at int) int {
	if p.run.method == Pack || at >= len(p.parts) {
		return -1
	}
	return p.parts[at].segment
}

// stopLocked keeps the rest of the move from being posted.
func (p *Plan) stopLocked(why error) {
	if p.run.stop == nil {
		p.run.stop = why
	}
}

// pumpLocked posts what there is room for, in the order of the moves.
func (m *Mover) pumpLocked() {
	m.stalled.Store(false)
	for p := m.first; p != nil; p = m.first {
		if r := &p.run; r.stop == nil && r.next < len(r.list) {
			n := m.partLocked(p)
			if n == 0 {
				return
			}
			if !m.postLocked(p, n) {
				return
			}
		}
		if r := &p.run; r.stop != nil || r.next == len(r.list) {
			m.dequeueLocked(p)
			m.finishIfIdleLocked(p)
		}
	}
}

// partLocked is how many requests are posted now: all, if there is room for them; else what there
// is room for, but no less than half of the queue, so that one half is carried out while the other
// is made.
func (m *Mover) partLocked(p *Plan) int {
	rest := len(p.run.list) - p.run.next
	n := min(rest, m.free)
	if n < min(rest, max(m.opts.SendDepth/2, 1)) {
		return 0
	}
	return n
}

// tellsEach tells whether every request of a plan is signalled, or the last of each chain for all
// of them. Reads complete in any order, so that only one with a fence can speak for others. Where
// Post itself moves the data these are over when it is its turn, and a completion less is a poller
// that is not woken in the middle; a device would wait for an answer there.
func (m *Mover) tellsEach(p *Plan) bool { return p.dir == Get && !m.caps.PostMoves }

// postLocked posts the next n requests as one chain. It is false if others fill the queue.
func (m *Mover) postLocked(p *Plan, n int) bool {
	r := &p.run
	chain := r.list[r.next : r.next+n]
	signals := 0
	for i := range chain {
		wr := &chain[i]
		wr.Context = r.context | uint64(r.next+i)
		wr.Flags &^= fabric.FlagSignaled
		if wr.Op == fabric.OpRead {
			wr.Flags &^= fabric.FlagFence
		}
		if i < n-1 && !m.tellsEach(p) {
			continue
		}
		wr.Flags |= fabric.FlagSignaled
		if p.dir == Get && !m.tellsEach(p) {
			wr.Flags |= fabric.FlagFence
		}
		signals++
	}
	err := m.opts.Endpoint.Post(chain)
	if errs.KindOf(err) == errs.Again {
		// If requests of this mover are under way, their completions bring us here again; if not, those
		// of others do. The last of these may have come between Post and the mark: try once more.
		m.stalled.Store(true)
		if err = m.opts.Endpoint.Post(chain); errs.KindOf(err) == errs.Again {
			return false
		}
		m.stalled.Store(false)
	}
	if err != nil {
		p.stopLocked(err)
		return true
	}
	m.counts.chains.Add(1)
	m.counts.requests.Add(uint64(n))
	m.free -= n
	r.next += n
	r.open += signals
	return true
}

// finishIfIdleLocked ends the move if nothing of it is under way and nothing will be posted.
func (m *Mover) finishIfIdleLocked(p *Plan) {
	r := &p.run
	if !r.started || r.open > 0 || r.stop == nil && r.next < len(r.list) {
		return
	}
	if !m.tellsEach(p) {
		m.free += r.next - r.freed // only when Close ended it without completions
		r.freed = r.next
	}
	r.result = r.stop
	m.leaveLocked(p)
	r.after, m.over = m.over, p
}

// leaveLocked frees the move's number.
func (m *Mover) leaveLocked(p *Plan) {
	if p.run.queued {
		m.dequeueLocked(p)
	}
	m.moves[p.run.number].plan = nil
	m.spare = append(m.spare, p.run.number)
	p.run.started = false
}

func (m *Mover) enqueueLocked(p *Plan) {
	p.run.queued, p.run.after = true, nil
	if m.last == nil {
		m.first = p
	} else {
		m.last.run.after = p
	}
	m.last = p
}

func (m *Mover) dequeueLocked(p *Plan) {
	var before *Plan
	for q := m.first; q != p; q = q.run.after {
		before = q
	}
	if before == nil {
		m.first = p.run.after
	} else {
		before.run.after = p.run.after
	}
	if m.last == p {
		m.last = before
	}
	p.run.queued, p.run.after = false, nil
}

// unlockAndTell reports the moves that are over. It enters with mu and leaves without.
func (m *Mover) unlockAndTell() {
	over := m.over
	m.over = nil
	m.mu.Unlock()
	for over != nil {
		p := over
		over, p.run.after = p.run.after, nil
		p.release()
		result, done := p.run.result, p.run.opts.Done
		p.run.opts = Run{}
		m.mu.Lock() // together with the token, or the next Start could overtake it
		p.run.busy = false
		p.token <- struct{}{} // never blocks: begin took the last one
		m.mu.Unlock()
		if done != nil {
			done(result)
		}
	}
}
