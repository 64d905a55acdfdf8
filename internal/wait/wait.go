// Package wait has ways to wait that end with a context and allocate nothing per wait: for a
// channel (For), to be woken under a lock (Waiter, Queue), for started work (Count), and a context
// that is reused for one request after the other (Context). It bounds nothing: package gate does.
//
// Read wait.go first, then queue.go, count.go and context.go.
package wait

import "context"

// Lender is a context that lends its channel. Lend is Done for a listener that calls Return when it
// has stopped listening, once for each Lend. After that the context can reuse the channel.
type Lender interface {
	Lend() <-chan struct{}
	Return()
}

// For receives from ch and returns true, or false when ctx has ended before. When both happen at
// once it may be either: a value sent at that moment may still be in ch.
func For[T any](ctx context.Context, ch <-chan T) (v T, ok bool) {
	select {
	case v = <-ch:
		return v, true // a context that is listened to may have to set a timer
	default:
	}
	if b, ok := ctx.Value(parkerKey{}).(Blocker); ok {
		b.Blocks()
	}
	lender, lends := ctx.(Lender)
	var done <-chan struct{}
	if lends {
		done = lender.Lend()
	} else {
		done = ctx.Done()
	}
	select {
	case v = <-ch:
		ok = true
	case <-done:
	}
	if lends {
		lender.Return()
	}
	return v, ok
}
