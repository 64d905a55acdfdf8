package tcp

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
)

// cq is a completion queue. Package progress decides who polls, and when; this file and read.go
// poll, sleep and wake. The poller reads the socket of one endpoint, the first whose receives come
// here. Waking a sleeping goroutine costs as much as the network on one host, so the goroutine that
// waits for a message should read it. The sockets of other endpoints are read by their background
// readers.
type cq struct {
	progress.Queue
	reads atomic.Pointer[endpoint] // whose socket the poller reads; nil: none yet
}

// looking is how often a spinning poller looks at its socket: a look is a system call.
var looking = progress.Pace{Looks: 1, Polls: 1}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{}
	q.Open((*socket)(q), (*background)(q), opts, progress.Config{
		Domain: &d.Domain, Pace: looking, Spinners: &d.spinners, Watchdog: d.watchdog,
		Delivered: delivered,
	})
	return q
}

// delivered releases the places of completions in their endpoints.
func delivered(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).Polled(got[i].Op)
	}
}

// socket is the queue as a progress.Source. Without an endpoint its turn rests all the time.
type socket cq

// Poll implements progress.Source.
func (q *socket) Poll(looks int, b *progress.Batch) bool { return q.reads.Load().poll(looks, b) }

// Arm implements progress.Source: the kernel knows of itself who waits.
func (q *socket) Arm() bool { return true }

// Sleep implements progress.Source.
func (q *socket) Sleep() { q.reads.Load().await() }

// Awake implements progress.Source.
func (q *socket) Awake(woken bool) {
	if woken {
		q.reads.Load().rearm()
	}
}

// Wake implements progress.Source.
func (q *socket) Wake() { q.reads.Load().interrupt() }

// background is the endpoint's background reader (read.go).
type background cq

// Prepare implements progress.Background.
func (b *background) Prepare() bool { return true }

// Start implements progress.Background.
func (b *background) Start() { b.reads.Load().reader.begin() }

// Yield implements progress.Background: the reader is interrupted in its socket.
func (b *background) Yield(wait bool) bool {
	if e := b.reads.Load(); wait && e != nil {
		e.reader.ask(e)
	}
	return false
}

// Resume implements progress.Background: the reader gives the turn away itself.
func (b *background) Resume() {}
