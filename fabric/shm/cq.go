package shm

import (
	"sync/atomic"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
)

// cq is a completion queue and what it polls: the rings of its endpoints. Package progress decides
// who polls, and when; this file polls, sleeps and wakes.
//
// A poller arms the endpoints before it sleeps, on a futex or, where too many threads do that,
// until a note comes through a socket. While nobody polls the endpoints stay armed, notes come
// through the sockets, and their readers (sock.go) serve the endpoints.
//
// Any goroutine may poll a ring at any time; the turn only decides which one sleeps.
type cq struct {
	progress.Queue
	d        *domain
	eps      atomic.Pointer[[]*endpoint] // whose completions come here; copied on write
	armed    atomic.Bool                 // no poller is awake: serve arms endpoints again
	wakeWord atomic.Uint32               // the futex by which this process wakes its own poller
	note     chan struct{}               // room for one: wakes a poller that sleeps bySocket

	// Of the poller.
	how  uint32        // it sleeps: byFutex or bySocket
	list []futexWaiter // what it sleeps on
}

// pace is how often a spinning poller looks at its rings: a look is a load from memory, and 16
// polls of 256 looks take some microseconds.
var pace = progress.Pace{Looks: 256, Polls: 16}

func newCQ(d *domain, opts fabric.CQOptions) *cq {
	q := &cq{d: d, note: make(chan struct{}, 1)}
	q.eps.Store(&[]*endpoint{})
	q.armed.Store(true) // endpoints come armed
	q.Open((*rings)(q), (*background)(q), opts, progress.Config{
		Domain: &d.Domain, Pace: pace, Spinners: &d.spinners, Watchdog: d.watchdog,
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

func (q *cq) attach(e *endpoint) {
	q.change(func(list []*endpoint) []*endpoint {
		for _, other := range list {
			if other == e {
				return list
			}
		}
		return append(list, e)
	})
}

func (q *cq) detach(e *endpoint) {
	q.change(func(list []*endpoint) []*endpoint {
		kept := list[:0]
		for _, other := range list {
			if other != e {
				kept = append(kept, other)
			}
		}
		return kept
	})
}

// change replaces the list of endpoints. f may change the copy that it is given.
func (q *cq) change(f func([]*endpoint) []*endpoint) {
	for {
		old := q.eps.Load()
		list := f(append(make([]*endpoint, 0, len(*old)+1), *old...))
		if q.eps.CompareAndSwap(old, &list) {
			return
		}
	}
}

// rings is the queue as a progress.Source.
type rings cq

// Poll implements progress.Source. Several looks are shared among the rings.
func (q *rings) Poll(looks int, b *progress.Batch) bool {
	eps := *q.eps.Load()
	if looks > 1 {
		looks = max(1, looks/max(1, len(eps)))
	}
	did := false
	for _, e := range eps {
		if looks > 1 {
			did = e.watch(looks, b) || did
		} else {
			did = e.tryProgress(b) || did
		}
	}
	return did
}

// waitMax is how many words one futex_waitv takes.
const waitMax = 128

// Arm implements progress.Source. armed is set first, because serve arms endpoints again once it is
// set. wakeWord is read before the queue checks for the last time whether to sleep.
func (q *rings) Arm() bool {
	q.armed.Store(true)
	eps := *q.eps.Load()
	q.how = bySocket
	if len(eps) > 0 && len(eps) < waitMax && q.d.sleepers.enter() {
		q.how = byFutex
	}
	q.list = append(q.list[:0], futexWaiter{})
	q.list[0].set(&q.wakeWord, q.wakeWord.Load(), true)
	for _, e := range eps {
		word, quiet := e.arm(q.how)
		if !quiet {
			return false
		}
		if word != 0 {
			q.list = append(q.list, futexWaiter{})
			q.list[len(q.list)-1].set(e.sleep, word, false)
		}
	}
	return true
}

// Sleep implements progress.Source.
func (q *rings) Sleep() {
	if q.how == bySocket {
		<-q.note
	} else if !futexWait(q.list) {
		q.d.sleepers.forbid()
	}
}

// Awake implements progress.Source.
func (q *rings) Awake(woken bool) {
	if q.how == byFutex {
		q.d.sleepers.leave()
	} else if woken {
		select { // it may not have slept
		case <-q.note:
		default:
		}
	}
	(*cq)(q).disarm()
}

// Wake implements progress.Source.
func (q *rings) Wake() {
	if q.how == byFutex {
		q.wakeWord.Add(1)
		futexWake(&q.wakeWord, true)
		return
	}
	select {
	case q.note <- struct{}{}:
	default:
	}
}

func (q *cq) disarm() {
	q.armed.Store(false)
	for _, e := range *q.eps.Load() {
		e.disarm()
	}
}

// background is the queue while nobody polls: the readers of the sockets serve its endpoints.
type background cq

// Prepare implements progress.Background.
func (b *background) Prepare() bool {
	b.armed.Store(true)
	quiet := true
	for _, e := range *b.eps.Load() {
		e.progress()
		if _, ok := e.arm(bySocket); !ok {
			quiet = false
		}
	}
	if !quiet {
		b.armed.Store(false)
	}
	return quiet
}

// Start implements progress.Background: the endpoints are armed.
func (b *background) Start() {}

// Yield implements progress.Background: the rings may be polled at any time.
func (b *background) Yield(bool) bool { return true }

// Resume implements progress.Background.
func (b *background) Resume() { (*cq)(b).disarm() }

// sleepers bounds how many pollers sleep on futexes: each holds a thread.
type sleepers struct{ free atomic.Int32 }

func (s *sleepers) open(n int) { s.free.Store(int32(max(n, 0))) }

func (s *sleepers) enter() bool {
	for {
		n := s.free.Load()
		if n <= 0 {
			return false
		}
		if s.free.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

func (s *sleepers) leave() { s.free.Add(1) }

// forbid makes enter fail from now on: the kernel has no futex_waitv.
func (s *sleepers) forbid() { s.free.Store(-1 << 30) }
