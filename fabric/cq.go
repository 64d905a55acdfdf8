package fabric

import (
	"context"
	"time"
)

// CQOptions say how a completion queue works.
type CQOptions struct {
	// Depth is how many completions it can hold. Must be positive.
	Depth int

	// Spin is how long Wait polls before it sleeps. Default 0: the provider decides, from how quickly
	// answers came, for at most some 50 µs. Negative: it does not spin.
	Spin time.Duration

	// SolicitedOnly makes Wait sleep until there is a receive whose sender set FlagSolicited, or a
	// failure; then it hands out everything there is, in order. Poll hands out all completions
	// in any case. Default false: Wait returns for every completion.
	SolicitedOnly bool
}

// WaitCounts tell how often waiters of a queue found something while they spun, and how often they
// slept.
type WaitCounts struct{ Spun, Slept uint64 }

// Add adds those of another queue.
func (c *WaitCounts) Add(other WaitCounts) {
	c.Spun += other.Spun
	c.Slept += other.Slept
}

// WaitCounter is a CQ that counts. It is optional: ask a queue whether it is one.
type WaitCounter interface{ WaitCounts() WaitCounts }

// CQ is a completion queue: a bounded queue that the provider fills and the user empties. Poll
// and Wait are safe for concurrent use; each completion is handed out once.
type CQ interface {
	// Poll moves up to len(dst) completions to dst without blocking and returns their number.
	Poll(dst []Completion) int

	// Wait is Poll that blocks until there is at least one completion (of those that
	// CQOptions.SolicitedOnly waits for), ctx ends (its error) or the queue is closed
	// (errs.Closed). The end of ctx may be noticed a few milliseconds late. A provider that makes
	// progress only when asked does it in here.
	Wait(ctx context.Context, dst []Completion) (int, error)

	// Wake makes one Wait, blocked now or the next to come, return 0 and no error if it has nothing
	// else to return.
	Wake()

	// Close wakes every waiter with errs.Closed. Its endpoints must be closed before; what is
	// still in the queue is dropped.
	Close() error
}
