package mem

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Stats describe a pool at one moment.
type Stats struct {
	BufBytes  int // size of one buffer
	Count     int // buffers in all
	InUse     int // taken and not yet returned
	HighWater int // the largest InUse so far
	Waiting   int // callers that wait in Take
}

// Pool is a set of equal buffers cut from one arena. Their number is fixed: when all are taken,
// Take waits and TryTake returns nil. It allocates nothing per buffer taken. Safe for concurrent
// use.
type Pool struct {
	bufs []Buf

	mu        sync.Mutex
	free      []*Buf // a stack: the last one returned is most likely in the processor's cache
	waiters   list.List[waiter]
	idle      list.List[waiter] // for reuse
	highWater int
	waiting   int
}

// waiter is one blocked Take.
type waiter struct {
	wait.Waiter
	got  *Buf              // the buffer that it was given
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
	a.addHome(p)
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
	woken, _ := w.Wait(ctx)
	p.mu.Lock()
	if !woken && w.link.In() {
		p.dequeueLocked(w)
		p.idle.PushFirst(&w.link, w)
		p.mu.Unlock()
		return nil, errs.New(errs.KindOf(ctx.Err()), "mem.Take", "", ctx.Err())
	}
	if !woken { // a buffer that was given at the same moment is taken, or it would leak
		_ = w.Woken()
	}
	b := w.got
	w.got = nil
	p.idle.PushFirst(&w.link, w)
	p.mu.Unlock()
	return b.handOut(), nil
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

// Stats returns the pool's counters.
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
		p.dequeueLocked(w)
		w.got = b
		w.Wake(nil)
		return
	}
	p.free = append(p.free, b)
}

func (p *Pool) all() []Buf { return p.bufs }

func (p *Pool) enqueueLocked() *waiter {
	w := p.idle.First()
	if w == nil {
		w = &waiter{}
	} else {
		p.idle.Remove(&w.link)
	}
	w.Arm()
	p.waiters.PushLast(&w.link, w)
	p.waiting++
	return w
}

func (p *Pool) dequeueLocked(w *waiter) {
	p.waiters.Remove(&w.link)
	p.waiting--
}
