// Package wait waits for a channel or for the end of a context and leaves nothing behind: a context
// that is used again and again, for one request after the other, learns when nobody listens to it
// any more, so that it need not make a channel for each of them.
//
// Read wait.go first, then queue.go (who waits for others), count.go (for work that was started)
// and context.go (the context that is used again).
package wait

import "context"

// Lender is a context that lends its channel. Lend is Done for a listener who says when he has
// ceased to listen, by Return, once for each Lend. After that the channel may be closed for others.
type Lender interface {
	Lend() <-chan struct{}
	Return()
}

// For receives from ch and returns true, or false when ctx has ended before. When both happen at
// once it may be either: what was sent in that moment is still in ch.
func For[T any](ctx context.Context, ch <-chan T) (v T, ok bool) {
	select {
	case v = <-ch:
		return v, true // a context that is listened to may have to set a timer
	default:
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
