package server

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// mover is the relay of a server. The first direct request starts it.
type mover struct {
	mu     sync.Mutex
	engine *relay.Engine
	closed bool
}

// relay returns the relay for direct requests.
func (s *Server) relay() (*relay.Engine, error) {
	s.mover.mu.Lock()
	defer s.mover.mu.Unlock()
	if s.mover.closed {
		return nil, errs.New(errs.Closed, "iod.Serve", "", nil)
	}
	if s.mover.engine != nil {
		return s.mover.engine, nil
	}
	o := s.cfg.Direct
	o.Disk, o.Room, o.Place = &disk{s: s}, room{s.cfg.Cache}, s.cfg.Store
	e, err := relay.New(o)
	s.mover.engine = e
	return e, err
}

// Close ends the relay. It is called when no request is served any more.
func (s *Server) Close() {
	s.mover.mu.Lock()
	s.mover.closed = true
	e := s.mover.engine
	s.mover.mu.Unlock()
	if e != nil {
		e.Close()
	}
}

// room is the cache's memory as the relay's window.
type room struct{ cache *unifier.Cache }

func (r room) Take(ctx context.Context, bytes int) (relay.Piece, error) {
	p, err := r.cache.Take(ctx, bytes)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// disk is the store as the relay sees it. The cache is told of a chunk that is written past it, and
// a chunk is not read while the cache changes it.
type disk struct {
	s    *Server
	free sync.Pool // of *chunk
}

// chunk is a chunk that is read or written; it is reused.
type chunk struct {
	d      *disk
	read   bool
	ctx    context.Context
	id     stripe.ObjectID
	bufs   [][]byte
	off    int64
	sums   []uint32
	stamps []wire.Stamp
	dur    stripe.Durability
	run    func() error // made once
}

func (d *disk) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	n := bytesOf(bufs)
	if n == 0 {
		return d.s.cfg.Store.ReadSums(ctx, id, bufs, off, sums)
	}
	x := d.take()
	x.read, x.ctx, x.id, x.bufs, x.off, x.sums = true, ctx, id, bufs, off, sums
	err := d.s.cfg.Cache.Look(ctx, id, off, n, x.run)
	d.put(x)
	return err
}

func bytesOf(bufs [][]byte) (n int64) {
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n
}

func (d *disk) take() *chunk {
	x, ok := d.free.Get().(*chunk)
	if !ok {
		x = &chunk{d: d}
		x.run = x.move
	}
	return x
}

func (d *disk) put(x *chunk) {
	*x = chunk{d: d, run: x.run}
	d.free.Put(x)
}

func (d *disk) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, dur stripe.Durability) error {
	n := bytesOf(bufs)
	if n == 0 { // nothing but a number
		return d.s.cfg.Store.WriteSums(ctx, id, bufs, off, sums, stamps, dur)
	}
	x := d.take()
	x.ctx, x.id, x.bufs, x.off, x.sums, x.stamps, x.dur = ctx, id, bufs, off, sums, stamps, dur
	err := d.s.cfg.Cache.Change(ctx, id, off, n, x.run)
	d.put(x)
	return err
}

func (x *chunk) move() error {
	if x.read {
		return x.d.s.cfg.Store.ReadSums(x.ctx, x.id, x.bufs, x.off, x.sums)
	}
	err := x.d.s.cfg.Store.WriteSums(x.ctx, x.id, x.bufs, x.off, x.sums, x.stamps, x.dur)
	if err == nil {
		x.d.s.cfg.Cache.Wrote(x.id, x.off, bytesOf(x.bufs))
	}
	return err
}

func (d *disk) Sync(ctx context.Context, id stripe.ObjectID) error {
	return d.s.cfg.Store.Sync(ctx, id)
}
