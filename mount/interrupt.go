package mount

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/internal/wait"
)

// How long a request goes on after a signal to stop that its program catches. (One that it does not
// catch ends it, and the request too.) Programs know EINTR from open, read, write and close, which
// they see only where they would have to wait for a server that does not answer. Nobody expects it
// from what changes names and attributes, or from fsync: a database takes its log for lost then.
const (
	stopAfter               = time.Second
	stopNever time.Duration = -1
)

// signalTick is how often it is looked at what has become of the signals of a waiting process.
const signalTick = 100 * time.Millisecond

// stopSignals are those by which people and programs end a wait, lockSignals those that end one for
// a lock: there a timer of the program's own counts, too, and what it sends itself. Others must not
// end it: the Go runtime and profilers send signals all the time, and many programs read their
// configuration again at SIGHUP. (FUSE has no answer by which the kernel would begin the call anew
// for handlers with SA_RESTART, and nobody tells which handlers have it.)
const (
	stopSignals = 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1) | 1<<(syscall.SIGTERM-1)
	lockSignals = stopSignals | 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGALRM-1) |
		1<<(syscall.SIGUSR1-1) | 1<<(syscall.SIGUSR2-1)
)

// watchAfter is how long a request waits before somebody looks for signals: most have their answer
// by then, and need nobody.
const watchAfter = 5 * time.Millisecond

// request is the context of one request. It ends when the process is killed, or has had a signal to
// stop for a while. That is watched from a moment after somebody waits for its end: most requests
// are answered from memory, and shall not pay for it. It is used again for the next request, unless
// something may still look at it.
type request struct {
	*wait.Context
	cancel <-chan struct{} // closed when a signal has come, whichever it is
	gone   <-chan struct{} // closed when the mount is taken away
	pid    uint32
	uid    uint32
	gid    uint32
	after  time.Duration // how long it goes on after a signal to stop; or stopNever
	kept   *kept         // nil: the mount has no keeper
	unique uint64        // the kernel's number of the request
	inside bool          // it has entered the gate

	mu    sync.Mutex
	uses  [client.UseAppend + 1]uint8 // of the request's name; see resent.go
	timer *time.Timer                 // starts the watch
	armed bool                        // somebody waits
}

// requests are those that nobody uses.
var requests = sync.Pool{New: func() any { return &request{Context: &wait.Context{}} }}

// request makes the context of a request, which the caller ends.
func (b *bridge) request(cancel <-chan struct{}, h *fuse.InHeader) *request {
	return b.requestFor(cancel, h, stopAfter, true)
}

// change is request for one that is not interrupted.
func (b *bridge) change(cancel <-chan struct{}, h *fuse.InHeader) *request {
	return b.requestFor(cancel, h, stopNever, true)
}

// requestFor is request that goes on for a given time after a signal to stop. A process that hands
// over does not wait for one that is not soon over.
func (b *bridge) requestFor(cancel <-chan struct{}, h *fuse.InHeader, after time.Duration,
	soon bool) *request {
	r := requests.Get().(*request)
	r.Context = r.Context.Renew(0)
	r.cancel, r.gone, r.pid, r.after = cancel, b.gone, h.Pid, after
	r.uid, r.gid = h.Uid, h.Gid
	r.kept, r.unique, r.uses = b.kept, h.Unique, [client.UseAppend + 1]uint8{}
	if r.inside = b.kept != nil && soon; r.inside {
		b.kept.gate.enter()
	}
	return r
}

// Done implements context.Context.
func (r *request) Done() <-chan struct{} {
	r.listen()
	return r.Context.Done()
}

// Lend implements wait.Lender.
func (r *request) Lend() <-chan struct{} {
	r.listen()
	return r.Context.Lend()
}

// Adopt implements wait.Parent.
func (r *request) Adopt(c *wait.Context) bool {
	r.listen()
	return r.Context.Adopt(c)
}

func (r *request) listen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.armed:
	case r.timer == nil:
		r.timer = time.AfterFunc(watchAfter, r.watch)
	default:
		r.timer.Reset(watchAfter)
	}
	r.armed = true
}

func (r *request) watch() {
	select {
	case <-r.cancel:
		r.watchSignals()
	case <-r.gone:
		r.stop()
	case <-r.Context.Done():
	}
}

func (r *request) stop() { r.Context.End(context.Canceled) }

// end is called when the request is answered.
func (r *request) end() {
	if r.inside {
		r.kept.gate.leave()
	}
	r.stop()
	r.mu.Lock()
	again := !r.armed || r.timer.Stop() // else somebody is watching it
	r.armed = false
	r.mu.Unlock()
	if again && r.Context.Unused() {
		requests.Put(r)
	}
}

// watchSignals gives a request up as soon as its process is being killed, or has waited for long
// enough with a signal to stop where that counts, or the mount is taken away.
func (r *request) watchSignals() {
	var since time.Time // of the first look that found a signal to stop
	for {
		killed, stop := wished(pendingSignals(processStatus(r.pid)), r.after)
		switch {
		case killed:
			r.stop()
			return
		case !stop:
			since = time.Time{}
		case since.IsZero() && r.after > 0:
			since = time.Now()
		case time.Since(since) >= r.after:
			r.stop()
			return
		}
		select {
		case <-time.After(signalTick):
		case <-r.gone:
			r.stop()
			return
		case <-r.Context.Done():
			return
		}
	}
}

// wished says what pending signals mean for a request that goes on for a time after a signal to
// stop: that its process is being killed, or that it was told to stop.
func wished(pending uint64, after time.Duration) (killed, stop bool) {
	signals := uint64(stopSignals)
	switch {
	case after < 0:
		signals = 0
	case after == 0: // it waits for a lock
		signals = lockSignals
	}
	return pending&(1<<(syscall.SIGKILL-1)) != 0, pending&signals != 0
}

// pendingSignals is the mask of signals that a thread will act upon as soon as it can, which is
// when its request is answered. The kernel turns all fatal signals into SIGKILL for every thread. A
// process that is gone is dead too.
func pendingSignals(status map[string]string) uint64 {
	if len(status) == 0 {
		return 1 << (syscall.SIGKILL - 1)
	}
	mask := func(field string) uint64 {
		m, err := strconv.ParseUint(status[field], 16, 64)
		if err != nil {
			return 0
		}
		return m
	}
	own, shared := mask("SigPnd"), mask("ShdPnd")
	return (own | shared) &^ mask("SigBlk")
}

// processStatus returns the fields of /proc/pid/status; none if there is no such process.
func processStatus(pid uint32) map[string]string {
	text, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/status")
	if err != nil {
		return nil
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}
