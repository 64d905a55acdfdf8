package fabric

import "context"

// CQ is a completion queue: a bounded queue that the provider fills and the user empties. Poll
// and Wait are safe for concurrent use; each completion is handed out once.
type CQ interface {
	// Poll moves up to len(dst) completions to dst without blocking and returns their number.
	Poll(dst []Completion) int

	// Wait is Poll that blocks until there is at least one completion, ctx ends (its error) or
	// the queue is closed (errs.Closed). A provider that makes progress only when asked does it
	// in here.
	Wait(ctx context.Context, dst []Completion) (int, error)

	// Close wakes every waiter with errs.Closed. Its endpoints must be closed before; what is
	// still in the queue is dropped.
	Close() error
}
