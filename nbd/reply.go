package nbd

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	stageBytes = 4 << 10 // headers of one write: more than a hundred replies
	iovMax     = 128     // pieces of one write
	writeMax   = 4 << 20 // bytes of one write, so that a slow peer is seen to make progress
)

// replier sends replies. Whoever has one queues it; one of them at a time writes all that is
// queued, headers and payloads with one system call, until nothing is left. There is no goroutine
// for it, and replies that become ready during a write leave together in the next one.
//
// It also counts the requests under way, from enter to the end of their reply.
type replier struct {
	c *conn

	mu      sync.Mutex
	changed sync.Cond
	queue   []*request
	spare   []*request
	writing bool // somebody writes; what follows "stage" is his
	entered int  // requests under way
	waiters int  // goroutines that wait for changed

	waiting atomic.Int64 // the clock's value when the present write began; 0 between writes
	failed  atomic.Bool  // the peer is gone; replies are dropped

	stage      []byte   // headers of the present write
	headerFrom int      // where in stage the last piece begins; -1 if it is payload or nothing
	iov        [][]byte // the pieces
	bytes      int      // their sum
	bufs       net.Buffers
	raw        syscall.RawConn // the socket; nil where bytes are changed on their way to it
}

func (r *replier) init(c *conn) {
	r.c = c
	r.headerFrom = -1
	r.changed.L = &r.mu
}

// tryEnter counts a request in, and returns how many are under way; 0: too many.
func (r *replier) tryEnter() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entered >= r.c.srv.cfg.ConnRequests {
		return 0
	}
	r.entered++
	return r.entered
}

// enter waits until it can count a request in.
func (r *replier) enter() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.entered >= r.c.srv.cfg.ConnRequests {
		r.waitLocked()
	}
	r.entered++
	return r.entered
}

// settle waits until no request is under way.
func (r *replier) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.entered > 0 {
		r.waitLocked()
	}
}

func (r *replier) waitLocked() {
	r.waiters++
	r.changed.Wait()
	r.waiters--
}

// put queues a reply for the next flush.
func (r *replier) put(req *request) {
	r.mu.Lock()
	r.queue = append(r.queue, req)
	r.mu.Unlock()
}

// send queues a reply and sees to it that it leaves.
func (r *replier) send(req *request) {
	r.mu.Lock()
	r.queue = append(r.queue, req)
	r.flushAndUnlock()
}

// flush sees to it that everything queued leaves: by this goroutine, or by the one that writes.
func (r *replier) flush() {
	r.mu.Lock()
	r.flushAndUnlock()
}

func (r *replier) flushAndUnlock() {
	if r.writing {
		r.mu.Unlock()
		return
	}
	r.writing = true
	for len(r.queue) > 0 {
		batch := r.queue
		r.queue = r.spare[:0]
		r.mu.Unlock()
		r.write(batch)
		n := len(batch)
		clear(batch)
		r.mu.Lock()
		r.spare = batch
		r.leaveLocked(n)
	}
	r.writing = false
	r.mu.Unlock()
}

func (r *replier) leaveLocked(n int) {
	r.entered -= n
	if r.waiters > 0 {
		r.changed.Broadcast()
	}
}

// abandon ends a request without a reply.
func (r *replier) abandon(req *request) {
	r.finish(req)
	r.mu.Lock()
	r.leaveLocked(1)
	r.mu.Unlock()
}

// finish gives back what the request holds.
func (r *replier) finish(req *request) {
	c := r.c
	c.watched(req)
	if req.release != nil {
		req.release()
	}
	if req.part {
		req.chunks[0].piece.giveBack()
	}
	switch {
	case req.lent != nil:
		req.lent.Return()
	case req.buf != nil:
		c.srv.buffers.put(req.buf)
	}
	if req.cost > 0 {
		c.srv.memory.Release(req.cost)
		c.memory.Release(req.cost)
	}
	req.reset()
	c.srv.reqs.Put(req)
}

// write encodes and sends a batch, finishing each request when its last byte is with the kernel.
func (r *replier) write(batch []*request) {
	if r.stage == nil {
		r.stage = make([]byte, 0, stageBytes)
		r.iov = make([][]byte, 0, iovMax)
		r.raw = rawOf(r.c.link)
	}
	sent := 0
	for i, req := range batch {
		if req.errno != nbdOK {
			r.c.count.errors.Add(1)
		}
		r.encode(req)
		if r.bytes >= holdBytes || len(req.buf) >= holdBytes || req.part && r.bytes == 0 {
			// Enough has gathered, or memory can be given back early.
			r.writeOut()
			for ; sent <= i; sent++ {
				r.finish(batch[sent])
			}
		}
	}
	r.writeOut()
	for ; sent < len(batch); sent++ {
		r.finish(batch[sent])
	}
}

// encode appends one reply to the present write.
func (r *replier) encode(req *request) {
	structured := r.c.structured
	if req.sink != nil && !req.part {
		req.sink.conclude(req)
	}
	switch {
	case req.errno != nbdOK && !structured:
		r.stageSimple(req)
	case req.errno != nbdOK:
		r.stageError(req)
	case !structured:
		r.stageSimple(req)
		for i := range req.chunks {
			r.data(req.chunks[i].data)
		}
	case len(req.chunks) == 0 && req.cmd != cmdRead && !r.c.extended:
		r.stageSimple(req) // shorter, and allowed for everything but reads
	case len(req.chunks) == 0:
		r.staged(r.header(r.room(chunkPrefixMax), chunkDone, chunkNone, req, 0))
	default:
		r.encodeChunks(req)
	}
}

// header begins a chunk of a reply, in the kind of headers that was negotiated.
func (r *replier) header(p []byte, flags, kind uint16, req *request, length uint32) []byte {
	if r.c.extended {
		return appendExtChunk(p, flags, kind, req.cookie, req.offset, uint64(length))
	}
	return appendChunk(p, flags, kind, req.cookie, length)
}

func (r *replier) stageError(req *request) {
	kind, length := chunkError, uint32(6+len(req.message))
	if req.located {
		kind, length = chunkErrorOffset, length+8
	}
	p := r.header(r.room(chunkErrorMax), chunkDone, kind, req, length)
	p = appendError(p, req.errno, req.message)
	if req.located {
		p = binary.BigEndian.AppendUint64(p, req.errorOff)
	}
	r.staged(p)
}

func (r *replier) stageSimple(req *request) {
	r.staged(appendSimple(r.room(simpleBytes), req.errno, req.cookie))
}

// encodeChunks sets DONE on the last content chunk: all data is in memory, nothing can fail any
// more.
func (r *replier) encodeChunks(req *request) {
	for i := range req.chunks {
		ch := &req.chunks[i]
		flags := uint16(0)
		if i == len(req.chunks)-1 && !req.more {
			flags = chunkDone
		}
		p := r.room(chunkPrefixMax)
		switch ch.kind {
		case chunkOffsetData:
			p = r.header(p, flags, ch.kind, req, 8+ch.length)
			p = binary.BigEndian.AppendUint64(p, ch.offset)
		case chunkOffsetHole:
			p = r.header(p, flags, ch.kind, req, 12)
			p = binary.BigEndian.AppendUint64(p, ch.offset)
			p = binary.BigEndian.AppendUint32(p, ch.length)
		default:
			p = r.header(p, flags, ch.kind, req, ch.length)
		}
		r.staged(p)
		r.data(ch.data)
		if req.part {
			r.piece(req, &ch.piece)
		}
	}
}

// room makes place for n bytes of header and two pieces, and returns the stage to append to.
func (r *replier) room(n int) []byte {
	if len(r.stage)+n > cap(r.stage) || len(r.iov)+2 > cap(r.iov) {
		r.writeOut()
	}
	return r.stage
}

// staged takes the stage back with a header appended. Headers that follow each other make one
// piece.
func (r *replier) staged(p []byte) {
	r.bytes += len(p) - len(r.stage)
	if r.headerFrom >= 0 {
		r.iov[len(r.iov)-1] = p[r.headerFrom:]
	} else {
		r.headerFrom = len(r.stage)
		r.iov = append(r.iov, p[r.headerFrom:])
	}
	r.stage = p
}

// data appends payload, in several writes if it is long.
func (r *replier) data(p []byte) {
	for len(p) > 0 {
		if r.bytes >= writeMax || len(r.iov) == cap(r.iov) {
			r.writeOut()
		}
		n := min(len(p), writeMax-r.bytes)
		r.iov = append(r.iov, p[:n])
		r.headerFrom = -1
		r.bytes += n
		p = p[n:]
	}
}

// writeOut sends the present write. After a failure the connection is closed and replies vanish.
func (r *replier) writeOut() {
	if r.bytes > 0 && !r.failed.Load() {
		r.waiting.Store(r.c.srv.clock.Load() + 1)
		err := r.writeAll()
		r.waiting.Store(0)
		if err != nil {
			r.fail()
		}
	}
	r.clearWrite()
}

// writeAll writes the pieces: to a socket in one system call, through TLS in as few as the records
// take.
func (r *replier) writeAll() (err error) {
	c := r.c
	switch {
	case c.cork != nil:
		return c.cork.writeThrough(c.link, r.iov)
	case len(r.iov) == 1:
		_, err = c.link.Write(r.iov[0])
	default:
		r.bufs = r.iov
		_, err = r.bufs.WriteTo(c.link)
	}
	return err
}

// fail gives the peer up.
func (r *replier) fail() {
	r.failed.Store(true)
	_ = r.c.nc.Close() // the reading goroutine sees it and ends the connection
}

func (r *replier) clearWrite() {
	clear(r.iov)
	r.iov = r.iov[:0]
	r.headerFrom = -1
	r.stage = r.stage[:0]
	r.bytes = 0
}
