package memory

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"github.com/sluice-storage/sluice/mem"
)

// New maps what is to be ready.
func New(cfg Config, mu sync.Locker, evict Evictor) (*Pool, error) {
	limit, err := mem.NewLimit(cfg.Bytes)
	if err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, limit: limit, mu: mu, evict: evict, starved: make(chan struct{}, 2)}
	if cfg.ReadyBytes > 0 {
		p.charge(cfg.ReadyBytes)
		k, err := p.mapChunk(cfg.ReadyBytes, true)
		if err != nil {
			return nil, err
		}
		p.blocks.add(k)
	}
	return p, nil
}

// Allocate gets all the memory of the request, waiting behind others. It lets go of the lock
// meanwhile, so that nothing that was seen before holds afterwards. It fails with the context's
// error, or errs.Closed, and then nothing is held.
func (p *Pool) Allocate(ctx context.Context, r *Request) error {
	if p.TryAllocate(r, false) {
		return nil
	}
	if p.closed {
		return errs.New(errs.Closed, "unifier", "", nil)
	}
	w := &r.waiter
	w.request = r
	p.queue.Push(w)
	if p.queue.First() == w {
		p.headSince = time.Now()
	}
	for !p.queue.Empty() && !p.mapping && p.growth() > 0 {
		p.grow()
	}
	p.Serve()
	err := p.wait(ctx, &p.queue, w)
	if err != nil {
		p.Free(r)
		p.AdmitMore() // loans may have waited for this one
	}
	return err
}

// Grow maps a chunk if no slab is free and there is room for one. It lets go of the lock while it
// maps.
func (p *Pool) Grow() {
	if p.blocks.free == 0 && !p.mapping && p.growth() > 0 {
		p.grow()
	}
}

func (p *Pool) grow() {
	size := p.growth()
	p.mapping = true
	p.charge(size)
	p.mu.Unlock()
	k, err := p.mapChunk(size, false)
	p.mu.Lock()
	p.mapping = false
	if err != nil {
		// The host has no more: the cache lives with what it has.
		p.mapped -= size
		p.stuck = true
		p.failures++
	} else {
		p.blocks.add(k)
	}
	p.Serve()
}

// charge counts memory before it is mapped.
func (p *Pool) charge(size int64) {
	p.mapped += size
	p.high = max(p.high, p.mapped)
	invariant.Check(p.mapped <= p.cfg.Bytes, "unifier: memory above its bound")
}

// mapChunk makes a chunk and tells the registrar of it. It needs no lock.
func (p *Pool) mapChunk(size int64, ready bool) (*chunk, error) {
	opts := mem.ArenaOptions{Bytes: int(size), Source: p.cfg.Source, Limit: p.limit,
		Huge: p.cfg.HugePages}
	if !ready {
		opts.Populate, opts.Lock, opts.Huge = mem.No, mem.No, mem.No
	}
	if size%(2<<20) != 0 {
		opts.Huge = mem.No // rounding up to huge pages would break the bound
	}
	a, err := mem.OpenArena(opts)
	if err != nil {
		return nil, err
	}
	if p.cfg.Registrar != nil {
		if err := p.cfg.Registrar.Attach(a); err != nil {
			_ = a.Close()
			return nil, err
		}
	}
	return newChunk(a, size, ready), nil
}

// Stop refuses all who wait and all who would have to.
func (p *Pool) Stop() {
	p.closed = true
	p.queue.ReleaseAll(errs.New(errs.Closed, "unifier", "", nil))
	p.gate.ReleaseAll(errs.New(errs.Closed, "unifier", "", nil))
}

// Close gives all memory back. It fails with errs.Busy while some of it is allocated. It is called
// without the lock, after Stop.
func (p *Pool) Close() error {
	p.mu.Lock()
	used, chunks := p.blocks.inUse, p.blocks.chunks
	if used == 0 {
		p.blocks = freeList{}
	}
	p.mu.Unlock()
	if used > 0 {
		return errs.Newf(errs.Busy, "unifier.Close", "", "%d bytes are lent or drafted", used)
	}
	var err error
	for _, k := range chunks {
		if p.cfg.Registrar != nil {
			p.cfg.Registrar.Detach(k.arena)
		}
		if e := k.arena.Close(); err == nil {
			err = e
		}
	}
	return err
}
