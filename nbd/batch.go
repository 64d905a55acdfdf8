package nbd

import (
	"context"
	"runtime/debug"
	"sync"

	"github.com/sluice-storage/sluice/internal/gate"
)

// Small requests of a client that keeps many under way arrive together. An export that reaches its
// device by messages, or by the kernel's queues, is given them together, too (Batcher): they travel
// in one message to each server, or by one system call, one goroutine waits for all of them, and
// their replies leave in one write.

const (
	// batchMax is how many requests make a batch: what is there of a deeper queue is divided, so that
	// replies of one batch leave while the next is under way.
	batchMax = 16

	// batchesMost are under way on a connection at a time: one is sent while the other is done.
	batchesMost = 2

	// batchBytes is the largest request that is batched: with larger ones the data costs more than
	// the messages.
	batchBytes = 16 << 10
)

// batches tells whether a request may be put together with others.
func (c *conn) batches(req *request) bool {
	if c.open.batcher == nil || req.length == 0 || req.length > batchBytes {
		return false
	}
	switch req.cmd {
	case cmdRead:
		return !c.streams(&req.header) && !c.asksMap(req) && c.open.slicer == nil
	case cmdWrite:
		return req.flags&cmdFlagFUA == 0
	}
	return false
}

// gathering are requests that wait for company: until nothing more is there to be read, and while
// batchesMost are under way. So a client that sends one after the other has them batched as well,
// by as many as come while others are done.
type gathering struct {
	mu    sync.Mutex
	list  []*request // in the order in which they came
	under int        // batches under way
}

// gather puts a request to those that wait for company, and returns a batch if it is complete. What
// waits is taken, or handed on, before the reading goroutine waits for anything.
func (c *conn) gather(req *request) *request {
	g := &c.gathering
	g.mu.Lock()
	g.list = append(g.list, req)
	enough := len(g.list) >= batchMax
	g.mu.Unlock()
	if enough {
		return c.takeBatch()
	}
	return nil
}

// takeLocked takes the next batch: requests of one kind, of which none overlaps a write among them.
// The export may not be given both at once. nil: there is none.
func (g *gathering) takeLocked() *request {
	if len(g.list) == 0 {
		return nil
	}
	first, n := g.list[0], 1
	for n < len(g.list) && n < batchMax && g.list[n].cmd == first.cmd &&
		(first.cmd != cmdWrite || !meets(g.list[:n], g.list[n])) {
		n++
	}
	first.mates = append(first.mates[:0], g.list[1:n]...)
	left := copy(g.list, g.list[n:])
	clear(g.list[left:])
	g.list = g.list[:left]
	return first
}

// meets tells whether a write overlaps one of a list.
func meets(list []*request, req *request) bool {
	end := req.offset + req.length
	for _, other := range list {
		if req.offset < other.offset+other.length && other.offset < end {
			return true
		}
	}
	return false
}

// takeBatch takes what was gathered, unless enough is under way: then whoever is done with his goes
// on with it.
func (c *conn) takeBatch() *request {
	g := &c.gathering
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.under >= batchesMost {
		return nil
	}
	first := g.takeLocked()
	if first != nil {
		g.under++
	}
	return first
}

// handBatches has others run what was gathered.
func (c *conn) handBatches() {
	for first := c.takeBatch(); first != nil; first = c.takeBatch() {
		c.hand(first)
	}
}

// runBatches runs a batch, and those that have gathered meanwhile.
func (c *conn) runBatches(first *request) {
	g := &c.gathering
	for first != nil {
		c.runBatch(first)
		g.mu.Lock()
		if first = g.takeLocked(); first == nil {
			g.under--
		}
		g.mu.Unlock()
	}
}

// runBatch runs a request with its mates, and sends the replies. If the export cannot do all of
// them each is run by itself, so that each has the error that is its own.
func (c *conn) runBatch(first *request) {
	mates := first.mates
	if len(mates) == 0 {
		c.runSlotted(first)
		c.out.send(first)
		return
	}
	spans := append(first.spans[:0], Span{Off: int64(first.offset), Data: first.buf})
	for _, m := range mates {
		spans = append(spans, Span{Off: int64(m.offset), Data: m.buf})
	}
	done, broken := c.tryBatch(first, spans)
	clear(spans)
	first.spans, first.mates = spans[:0], nil
	c.finishOne(first, done, broken)
	for i, m := range mates {
		c.finishOne(m, done, broken)
		mates[i] = nil
	}
	c.out.flush()
}

// tryBatch gives a batch to the export. broken: it has panicked, which ends the connection.
func (c *conn) tryBatch(first *request, spans []Span) (done, broken bool) {
	who := gate.Request{Client: gate.Client{ID: c.id}, Bytes: 1}
	if err := c.open.slots.Enter(c.ctx, &first.slot, who); err != nil {
		return false, false
	}
	defer func() {
		c.open.slots.Leave(&first.slot)
		if p := recover(); p != nil {
			c.panicked(p, debug.Stack())
			done, broken = false, true
		}
	}()
	do := c.open.batcher.ReadMany
	if first.cmd == cmdWrite {
		do = c.open.batcher.WriteMany
	}
	return do(c.ctx, spans) == nil, false
}

// finishOne answers a request of a batch.
func (c *conn) finishOne(req *request, done, broken bool) {
	switch {
	case broken: // the export may still hold the memory
		req.buf, req.lent = nil, nil
		req.fail(nbdIO, "internal error")
	case !done:
		c.runSlotted(req)
	case req.cmd == cmdRead:
		c.count.bytesOut.Add(int64(req.length))
		req.add(chunkOffsetData, req.offset, uint32(req.length), req.buf)
	default:
		c.count.bytesIn.Add(int64(req.length))
	}
	c.out.put(req)
}

// Span is a part of an export with the memory for it.
type Span struct {
	Off  int64
	Data []byte
}

// Batcher is an Export that does several small requests at less cost when it gets them together. A
// failure says nothing about which of them were done: the server asks for each by itself then.
type Batcher interface {
	// Batches is false for an export that has no use for it.
	Batches() bool

	// ReadMany fills all of the memory, as ReadAt does.
	ReadMany(ctx context.Context, list []Span) error

	// WriteMany stores all of it, as WriteAt does without fua. The spans do not overlap.
	WriteMany(ctx context.Context, list []Span) error
}
