package mem

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
)

// Stats describe a pool at one moment.
type Stats struct {
	BufBytes  int // size of one buffer
	Count     int // buffers in all
	InUse     int // taken and not yet returned
	HighWater int // the largest InUse so far
	Waiting   int // callers that wait in Take
}

// Pool hands out equal buffers cut from one arena. Their number is fixed: when all are out,
// Take waits and TryTake says no. It allocates nothing per buffer taken. Safe for concurrent
// use.
type Pool struct {
	bufs []Buf

	mu        sync.Mutex
	free      []*Buf // a stack: the last one returned is the warmest
	waiters   list.List[waiter]
	idle      list.List[waiter] // to be used again
	highWater int
	waiting   int
}

// waiter is one blocked Take. got has room for the one buffer it is given.
type waiter struct {
	got  chan *Buf
	link list.Link[waiter] // in waiters; in idle
}

// NewPool cuts count buffers of bufBytes each from a. Buffers of a page or more start on a page,
// smaller ones on a cache line.
func NewPool(a *Arena, bufBytes, count int) (*Pool, error) {
	if bufBytes <= 0 || count <= 0 {
		return nil, errs.Newf(errs.Invalid, "mem.NewPool", "", "%d buffers of %d bytes",
			count, bufBytes)
	}
	p := &Pool{bufs: make([]Buf, count), free: make([]*Buf, 0, count)}
	for i := range p.bufs {
		mem, err := a.Cut(bufBytes, alignment(bufBytes))
		if err != nil {
			return nil, errs.Wrap("mem.NewPool", "", err)
		}
		b := &p.bufs[i]
		b.home, b.arena, b.mem, b.nth = p, a, mem, i
		if invariant.Enabled {
			b.poison()
		}
	}
	a.settle(p)
	for i := range p.bufs {
		p.free = append(p.free, &p.bufs[len(p.bufs)-1-i])
	}
	return p, nil
}

// PoolBytes is how large an arena must be for a pool of count buffers of bufBytes.
func PoolBytes(bufBytes, count int) int {
	align := alignment(bufBytes)
	return (bufBytes + align - 1) / align * align * count
}

func alignment(bufBytes int) int {
	const page, cacheLine = 4096, 64
	if bufBytes >= page {
		return page
	}
	return cacheLine
}

// Take returns a buffer with one reference. While none is free it waits, in the order of the
// calls, until ctx ends (errs.TimedOut or errs.Canceled).
func (p *Pool) Take(ctx context.Context) (*Buf, error) {
	p.mu.Lock()
	if b := p.takeLocked(); b != nil {
		p.mu.Unlock()
		return b.handOut(), nil
	}
	w := p.enqueueLocked()
	p.mu.Unlock()

	select {
	case b := <-w.got:
		p.mu.Lock()
		p.recycleLocked(w)
		p.mu.Unlock()
		return b.handOut(), nil
	case <-ctx.Done():
		return p.giveUp(w, ctx.Err())
	}
}

// giveUp leaves the queue. A buffer that was handed over at the same moment is taken after
// all, so that it cannot get lost and nobody behind is overtaken.
func (p *Pool) giveUp(w *waiter, cause error) (*Buf, error) {
	p.mu.Lock()
	if !w.link.In() {
		b := <-w.got // put filled it before it took w off the queue
		p.recycleLocked(w)
		p.mu.Unlock()
		return b.handOut(), nil
	}
	p.dequeueLocked(w)
	p.recycleLocked(w)
	p.mu.Unlock()
	return nil, errs.New(errs.KindOf(cause), "mem.Take", "", cause)
}

// TryTake is Take that returns nil instead of waiting. It never overtakes a waiting Take: a
// buffer is free only while nobody waits.
func (p *Pool) TryTake() *Buf {
	p.mu.Lock()
	b := p.takeLocked()
	p.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.handOut()
}

// Stats tells how the pool is used.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		BufBytes: len(p.bufs[0].mem), Count: len(p.bufs), InUse: len(p.bufs) - len(p.free),
		HighWater: p.highWater, Waiting: p.waiting,
	}
}

func (p *Pool) takeLocked() *Buf {
	n := len(p.free)
	if n == 0 {
		return nil
	}
	b := p.free[n-1]
	p.free = p.free[:n-1]
	p.highWater = max(p.highWater, len(p.bufs)-len(p.free))
	return b
}

func (p *Pool) put(b *Buf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waiters.First(); w != nil {
		w.got <- b // never blocks: room for one, and a waiter is given one
		p.dequeueLocked(w)
		return
	}
	p.free = append(p.free, b)
}

func (p *Pool) all() []Buf { return p.bufs }

func (p *Pool) enqueueLocked() *waiter {
	w := p.idle.First()
	if w == nil {
		w = &waiter{got: make(chan *Buf, 1)}
	} else {
		p.idle.Remove(&w.link)
	}
	p.waiters.PushLast(&w.link, w)
	p.waiting++
	return w
}

func (p *Pool) dequeueLocked(w *waiter) {
	p.waiters.Remove(&w.link)
	p.waiting--
}

func (p *Pool) recycleLocked(w *waiter) { p.idle.PushFirst(&w.link, w) }
