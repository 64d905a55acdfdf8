package errs

import "context"

// Passing tells whether what an error of this kind says may be over after a while, so that a
// request that may be repeated should be. It is the only such list: how a peer was lost makes no
// difference to who waits for it. Closed is not on it: it says that something was closed on this
// side, for good.
func (k Kind) Passing() bool {
	switch k {
	case Disconnected, Shutdown, Again, TimedOut, Canceled:
		return true
	}
	return false
}

// Passes tells whether an error is Passing for a caller with this context. A time limit or a
// cancellation that did not come from ctx has ended an attempt, not the wait: a dial that took too
// long, a call that the server gave up because it was told to end.
func Passes(ctx context.Context, err error) bool {
	k := KindOf(err)
	if k == TimedOut || k == Canceled {
		return ctx.Err() == nil
	}
	return k.Passing()
}
