package msg

import "time"

// Progress is which goroutines poll the completion queues of a node's connections. It changes
// latency and the use of cores, not results.
type Progress uint8

// The ways of progress.
const (
	// ProgressAny: the goroutine that waits. A caller that is alone polls for its own reply; when
	// several wait, the connection's goroutine polls for all. A server's goroutine polls and serves by
	// turns while handlers are quick. This is the default.
	ProgressAny Progress = iota

	// ProgressPoll: the callers, spinning for up to pollSpin before they sleep. One of the callers
	// that wait polls for all, and wakes another to poll when it leaves. A server spins likewise and
	// serves on the goroutine that polls. It needs a core for each connection that is in use.
	ProgressPoll

	// ProgressThread: one goroutine per connection, on a thread of its own, does nothing else.
	// Callers sleep until they are woken; handlers run on workers.
	ProgressThread
)

// pollSpin is how long ProgressPoll spins before it sleeps.
const pollSpin = 2 * time.Millisecond

func (p Progress) String() string {
	switch p {
	case ProgressAny:
		return "any"
	case ProgressPoll:
		return "poll"
	case ProgressThread:
		return "thread"
	}
	return "unknown"
}
