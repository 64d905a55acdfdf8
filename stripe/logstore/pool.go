package logstore

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
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

	mu   sync.Mutex
	free *block
	left int
	wait []*poolWait
}

type poolWait struct {
	n     int
	ready chan struct{}
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
// is called, once, before it waits; the end of stop ends the wait.
func (p *pool) take(ctx context.Context, dst []*block, n int, full func(),
	stop <-chan struct{}) ([]*block, error) {
	if n <= 0 {
		return dst, nil
	}
	p.mu.Lock()
	if len(p.wait) > 0 || p.left < n {
		w := &poolWait{n: n, ready: make(chan struct{})}
		p.wait = append(p.wait, w)
		p.mu.Unlock()
		full()
		var err error
		select {
		case <-w.ready:
		case <-stop:
			err = errs.IO
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil && p.leave(w) {
			return dst, err
		}
		p.mu.Lock()
	} else {
		p.left -= n
	}
	for range n {
		b := p.free
		p.free, b.next, b.refs = b.next, nil, 1
		dst = append(dst, b)
	}
	p.mu.Unlock()
	return dst, nil
}

// leave gives up a place in the queue; false when it was served already.
func (p *pool) leave(w *poolWait) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.wait {
		if other == w {
			p.wait = append(p.wait[:i], p.wait[i+1:]...)
			p.grantLocked()
			return true
		}
	}
	return false
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
	for len(p.wait) > 0 && p.left >= p.wait[0].n {
		p.left -= p.wait[0].n
		close(p.wait[0].ready)
		p.wait = p.wait[1:]
	}
}

// short tells whether somebody waits.
func (p *pool) short() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.wait) > 0
}

func (p *pool) used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total - p.left
}

func (p *pool) close() { _ = unix.Munmap(p.mem) }
