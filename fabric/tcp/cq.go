package tcp

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
)

// cq is a completion queue. Who polls, and when, is decided by package progress; this file and
// read.go are how: who has the queue's turn reads the socket of one endpoint, the first whose
// receives come here. Waking a sleeping goroutine costs as much as the network on one host, so
// whoever waits for a message had better read it. The sockets of other endpoints are read by their
// keepers.
type cq struct {
	progress.Queue
	reads atomic.Pointer[endpoint] // whose socket is read by who has the turn; nil: none yet
}

// looking is how a socket is looked at by who spins: a look is a system call.
var looking = progress.Pace{Looks: 1, Polls: 1}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{}
	q.Open((*socket)(q), (*keeper)(q), opts, progress.Config{
		Domain: &d.Domain, Pace: looking, Spinners: &d.spinners, Visits: d.visits, Settle: settle,
	})
	return q
}

// settle gives the places of polled completions back to their endpoints.
func settle(got []fabric.Completion) {
	for i := range got {
		got[i].EP.(*endpoint).Polled(got[i].Op)
	}
}

// socket is the queue as a progress.Source. Without an endpoint its turn rests all the time.
type socket cq

// Poll implements progress.Source.
func (q *socket) Poll(looks int, h *progress.Hand) bool { return q.reads.Load().poll(looks, h) }

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

// keeper is the endpoint's own reader, see keep.
type keeper cq

// Prepare implements progress.Keeper.
func (k *keeper) Prepare() bool { return true }

// Keep implements progress.Keeper.
func (k *keeper) Keep() { k.reads.Load().keeping.begin() }

// Yield implements progress.Keeper: the keeper is called back from the socket.
func (k *keeper) Yield(wait bool) bool {
	if e := k.reads.Load(); wait && e != nil {
		e.keeping.ask(e)
	}
	return false
}

// Resume implements progress.Keeper: the keeper gives the turn away itself.
func (k *keeper) Resume() {}
