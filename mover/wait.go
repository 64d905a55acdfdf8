package mover

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Done holds a token when the move that was started last is over, until it is taken or the next
// move starts. It is for one waiter, while another goroutine passes the completions to Completed,
// and not for a plan whose Run.Done starts it again.
func (p *Plan) Done() <-chan struct{} { return p.token }

// Err is how the last move ended. While one is under way it is nil.
func (p *Plan) Err() error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.run.result
}

// Cancel stops a move early: nothing more is posted, and the move is over when what was posted has
// completed, with errs.Canceled if anything was left out. It does not wait. If no move of the plan
// is under way it does nothing.
func (m *Mover) Cancel(p *Plan) { m.cancel(p, context.Canceled) }

func (m *Mover) cancel(p *Plan, cause error) {
	m.mu.Lock()
	r := &p.run
	if r.started && r.next < len(r.list) && r.stop == nil {
		p.stopLocked(errs.New(errs.KindOf(cause), "mover.Cancel", m.name(), cause))
		m.pumpLocked() // it may have blocked others
		if r.queued {
			m.dequeueLocked(p)
		}
		m.finishIfIdleLocked(p)
	}
	m.unlockAndTell()
}

// Await waits until the move is over and returns its error. Another goroutine polls the queue. When
// ctx ends the move is canceled, but Await still waits for what is under way, since that touches
// the pieces.
func (m *Mover) Await(ctx context.Context, p *Plan) error {
	select {
	case <-p.token:
		return p.Err()
	case <-ctx.Done():
	}
	m.cancel(p, ctx.Err())
	<-p.token
	return p.Err()
}

// Drive is Await for the owner of the endpoint's send queue: it polls the queue until the move is
// over. Completions that are not of this mover are given to other; nil drops them. While a
// goroutine is in Drive no other one polls that queue. If the queue is closed meanwhile, the mover
// is, too.
func (m *Mover) Drive(
	ctx context.Context, p *Plan, queue fabric.CQ, other func(*fabric.Completion),
) error {
	for {
		select {
		case <-p.token:
			return p.Err()
		default:
		}
		if err := ctx.Err(); err != nil {
			m.cancel(p, err)
			ctx = context.WithoutCancel(ctx)
			continue // the move may be over
		}
		n, err := queue.Wait(ctx, p.batch)
		for i := range p.batch[:n] {
			if c := &p.batch[i]; !m.Completed(c) && other != nil {
				other(c)
			}
		}
		clear(p.batch[:n])
		if err != nil && ctx.Err() == nil { // no completion will come any more
			_ = m.Close()
		}
	}
}

// Move is Start, then Drive.
func (m *Mover) Move(ctx context.Context, p *Plan, opts Run, queue fabric.CQ) error {
	if err := m.Start(p, opts); err != nil {
		return err
	}
	return m.Drive(ctx, p, queue, nil)
}
