package logstore

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
	"golang.org/x/sys/unix"
)

// block is a buffer of one block that is logged and waits to be written in place. Who refers to it
// is counted by the member's lock: the table of pending blocks, a batch, the applier, readers.
type block struct {
	buf  []byte
	refs int32
	next *block
}

// pool owns the memory for all blocks that are logged and not applied.
type pool struct {
	mem   []byte
	total int

	mu      sync.Mutex
	free    *block
	left    int                 // blocks that nobody has, or was promised
	waiting list.List[poolWait] // oldest first
	idle    list.List[poolWait] // to use again
	stopped error
}

// poolWait is one who waits for n blocks.
type poolWait struct {
	wait.Waiter
	n     int
	place list.Link[poolWait] // in waiting, or in idle
}

func newPool(blocks int) (*pool, error) {
	mem, err := unix.Mmap(-1, 0, blocks*blockBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, errs.Newf(errs.NoMemory, "logstore.Open", "", "%d blocks: %w", blocks, err)
	}
	p := &pool{mem: mem, total: blocks, left: blocks}
	list := make([]block, blocks)
	for i := range list {
		list[i].buf = mem[i*blockBytes : (i+1)*blockBytes : (i+1)*blockBytes]
		list[i].next = p.free
		p.free = &list[i]
	}
	return p, nil
}

// take appends n blocks to dst, all or none, first come first served; each has one reference. full
// is called, once, before it waits. The wait ends with ctx, or by stop.
func (p *pool) take(ctx context.Context, dst []*block, n int, full func()) ([]*block, error) {
	if n <= 0 {
		return dst, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.waiting.Empty() || p.left < n {
		if err := p.waitLocked(ctx, n, full); err != nil {
			return dst, err
		}
	} else {
		p.left -= n
	}
	for range n {
		b := p.free
		p.free, b.next, b.refs = b.next, nil, 1
		dst = append(dst, b)
	}
	return dst, nil
}

// waitLocked returns when n blocks are the caller's. It lets go of the lock meanwhile: full comes
// when the caller already stands in the queue, so that whoever makes room sees that it is needed.
func (p *pool) waitLocked(ctx context.Context, n int, full func()) error {
	if p.stopped != nil {
		return p.stopped
	}
	w := p.idle.First()
	if w == nil {
		w = &poolWait{}
	} else {
		p.idle.Remove(&w.place)
	}
	w.n = n
	w.Arm()
	p.waiting.PushLast(&w.place, w)
	p.mu.Unlock()
	full()
	woken, err := w.Wait(ctx)
	p.mu.Lock()
	switch {
	case woken:
	case w.place.In():
		p.waiting.Remove(&w.place)
		p.grantLocked() // it may have been in the way of others
		err = ctx.Err()
	default:
		err = w.Woken()
	}
	p.idle.PushFirst(&w.place, w)
	return err
}

func (p *pool) put(b *block) {
	p.mu.Lock()
	b.next = p.free
	p.free = b
	p.left++
	p.grantLocked()
	p.mu.Unlock()
}

func (p *pool) grantLocked() {
	for w := p.waiting.First(); w != nil && p.left >= w.n; w = p.waiting.First() {
		p.left -= w.n
		p.waiting.Remove(&w.place)
		w.Wake(nil)
	}
}

// stop ends all waits with err, now and later: nothing makes room any more.
func (p *pool) stop(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = err
	for w := p.waiting.First(); w != nil; w = p.waiting.First() {
		p.waiting.Remove(&w.place)
		w.Wake(err)
	}
}

// short tells whether somebody waits.
func (p *pool) short() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.waiting.Empty()
}

func (p *pool) used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total - p.left
}

func (p *pool) close() { _ = unix.Munmap(p.mem) }
