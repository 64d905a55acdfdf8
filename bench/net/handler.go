package net

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/bench/plain"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
)

// The operations.
const (
	OpEcho = 1 + iota // answer with the body
	OpTake            // take the request's data
	OpGive            // send reply data
)

// walkBytes is how much data is walked through, as a server's cache does: more than a processor
// caches.
const walkBytes = 64 << 20

// takeBufs is how many requests can be taken at once; more wait.
const takeBufs = 8

// handler serves package msg. What it gives is one buffer; what it takes goes to one of a few, as
// it would go into a cache. Server memory is never of an arena that others map.
type handler struct {
	node  *msg.Node
	arena *mem.Arena
	give  []byte        // what is sent, again and again, or walked through
	next  atomic.Uint64 // of a walk: how often something was given
	walk  bool
	size  int64         // of the largest request or reply
	take  *mem.Pool     // the last one returned is taken first
	touch bool          // look at what was taken
	work  time.Duration // on each request
	seen  atomic.Uint64
}

func newHandler(node *msg.Node, a *serveArgs) (*handler, error) {
	h := &handler{node: node, touch: a.Touch, walk: a.Walk,
		work: time.Duration(a.Service) * time.Microsecond}
	if a.Bytes == 0 {
		return h, nil
	}
	const page = 4096
	size := (a.Bytes + page - 1) / page * page
	var err error
	give := size
	if h.walk {
		give = max(size, walkBytes)
	}
	h.size = int64(size)
	if h.arena, err = mem.NewArena(takeBufs*size+give, nil); err != nil {
		return nil, err
	}
	all := h.arena.Bytes()
	for done := copy(all, plain.Touched(page)); done < len(all); done *= 2 {
		copy(all[done:], all[:done])
	}
	if h.give, err = h.arena.Cut(give, page); err == nil {
		h.take, err = mem.NewPool(h.arena, size, takeBufs)
	}
	if err == nil {
		err = node.Attach(h.arena)
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// close gives the memory back. The node is closed.
func (h *handler) close() error {
	if h.arena == nil {
		return nil
	}
	h.node.Detach(h.arena)
	return h.arena.Close()
}

// Serve implements msg.Handler.
func (h *handler) Serve(ctx context.Context, c *msg.Call) {
	if h.work > 0 {
		spin(h.work)
	}
	var err error
	switch c.Header().Op {
	case OpTake:
		err = h.takes(ctx, c)
	case OpGive:
		err = h.gives(ctx, c)
	}
	if err != nil {
		_ = c.Fail(err) // a client that is gone does not care
		return
	}
	_ = c.Reply(c.Body(), c.InLen())
}

func (h *handler) takes(ctx context.Context, c *msg.Call) error {
	n := c.OutLen()
	if n > h.size {
		return errs.Newf(errs.TooBig, "bench peer", "", "%d bytes", n)
	}
	buf, err := h.take.Take(ctx)
	if err != nil {
		return err
	}
	defer buf.Return()
	one := [1]fabric.Sge{{Buf: buf.Bytes()[:n]}}
	if err := c.Pull(ctx, 0, one[:]); err != nil {
		return err
	}
	if h.touch {
		h.seen.Add(touch(one[0].Buf))
	}
	return nil
}

func (h *handler) gives(ctx context.Context, c *msg.Call) error {
	n := c.InLen()
	if n > h.size {
		return errs.Newf(errs.TooBig, "bench peer", "", "%d bytes", n)
	}
	at := int64(0)
	if h.walk {
		at = int64(h.next.Add(1)) % (int64(len(h.give)) / h.size) * h.size
	}
	one := [1]fabric.Sge{{Buf: h.give[at : at+n]}}
	return c.Push(ctx, 0, one[:])
}

// spin keeps a processor busy, as a service does.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// cacheLine is what a processor fetches at once.
const cacheLine = 64

// touch looks at every cache line of b: data that nobody looks at may not have arrived in any sense
// that matters.
func touch(b []byte) uint64 {
	var sum uint64
	for i := 0; i+8 <= len(b); i += cacheLine {
		sum += binary.LittleEndian.Uint64(b[i:])
	}
	return sum
}
