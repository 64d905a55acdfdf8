package nbd

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
)

const (
	// inlineBytes is the largest request that the reading goroutine runs by itself: up to here the
	// copying takes less time than waking a worker.
	inlineBytes = 128 << 10

	// holdBytes is how much reply data may gather before it is sent although more requests are
	// there.
	holdBytes = 256 << 10

	lingerMax = 100 * time.Millisecond
)

// conn is one connection. One goroutine reads it, up to Config.ConnRequests workers run requests.
type conn struct {
	srv    *Server
	nc     net.Conn
	in     stream
	out    replier
	ctx    context.Context
	cancel context.CancelFunc
	memory *gate.Gate
	count  counters

	// What the handshake chose; not changed afterwards.
	*chosen

	held    int // bytes of replies that the reading goroutine has queued but not sent
	work    chan *request
	workers sync.WaitGroup

	mu      sync.Mutex
	started int  // workers that run
	ended   bool // work is closed
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, nc: nc,
		in:     stream{nc: nc, clock: &s.clock},
		memory: gate.New(gate.Options{Bytes: s.cfg.ConnMemoryBytes}),
		work:   make(chan *request),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.out.init(c)
	return c
}

// serve runs the connection to its end.
func (c *conn) serve() error {
	tune(c.nc)
	c.in.buf = make([]byte, streamBytes)
	c.deadline(c.srv.cfg.HandshakeTimeout)
	c.drainIfAsked()
	h := handshake{c: c}
	pick, err := h.run()
	if err != nil {
		if errors.Is(err, errAborted) || errors.Is(err, io.EOF) {
			return nil
		}
		return errs.Wrap("nbd.handshake", "", err)
	}
	c.chosen = pick
	defer func() { c.logClose(pick.shared.release()) }()
	reading := true
	defer func() {
		if reading { // a panic is on its way: nobody may wait for the peer any more
			c.cut()
		}
		c.finishWorkers()
	}()
	c.deadline(0)
	c.drainIfAsked()
	err = c.readRequests()
	reading = false
	c.finishWorkers()
	c.out.flush()
	c.out.settle()
	if errors.Is(err, os.ErrDeadlineExceeded) && c.srv.draining.Load() {
		c.linger()
		return nil
	}
	return err
}

// tune prepares a socket: replies leave at once. TCP sizes its buffers by itself better than a
// fixed number would, unix sockets do not.
func tune(nc net.Conn) {
	switch s := nc.(type) {
	case *net.TCPConn:
		_ = s.SetNoDelay(true) // slower without, but right
	case *net.UnixConn:
		_ = s.SetWriteBuffer(unixBufferBytes) // the kernel clips it to what it allows
		_ = s.SetReadBuffer(unixBufferBytes)
	}
}

const unixBufferBytes = 2 << 20

// readRequests reads and starts requests until the client disconnects (nil) or breaks the protocol.
func (c *conn) readRequests() error {
	for {
		if c.in.buffered() < requestBytes || c.held > holdBytes {
			// Nothing more to gather replies from: send what there is before waiting.
			c.sendHeld()
		}
		p, err := c.in.next(requestBytes)
		if err != nil {
			if err == io.EOF {
				return nil // not polite, but common
			}
			return errs.Wrap("nbd.request", "header", err)
		}
		h, ok := decodeRequest(p)
		if !ok {
			return errs.New(errs.Protocol, "nbd.request", "magic", nil)
		}
		if h.cmd == cmdDisc {
			return nil
		}
		if h.cmd < cmdCount {
			c.count.commands[h.cmd].Add(1)
		}
		if !c.out.tryEnter() {
			c.sendHeld()
			c.out.enter()
		}
		req := c.srv.reqs.Get().(*request)
		req.header = h
		if err := c.start(req); err != nil {
			c.out.abandon(req)
			return err
		}
	}
}

// start checks a request, fetches its payload and gets it on its way. On error the request still
// belongs to the caller and the stream is unusable.
func (c *conn) start(req *request) error {
	if errno, why := c.check(&req.header); errno != nbdOK {
		if req.cmd == cmdWrite {
			c.sendHeld()
			if err := c.in.discard(int64(req.length)); err != nil {
				return errs.Wrap("nbd.request", "payload", err)
			}
		}
		req.fail(errno, why)
		c.hold(req)
		return nil
	}
	if n := c.bufferFor(&req.header); n > 0 {
		if err := c.lend(req, n); err != nil {
			return err
		}
	}
	if req.cmd == cmdWrite && req.length > 0 {
		if c.in.buffered() < int(req.length) {
			c.sendHeld()
		}
		if err := c.in.payload(req.buf); err != nil {
			return errs.Wrap("nbd.request", "payload", err)
		}
	}
	if c.runsInline(req) {
		c.run(req)
		c.hold(req)
		return nil
	}
	c.hand(req)
	return nil
}

// lend gives the request a buffer of n bytes, waiting for memory if there is none.
func (c *conn) lend(req *request, n int) error {
	cost := classBytes(n)
	if !c.memory.TryAcquire(cost) {
		c.sendHeld()
		if err := c.memory.Acquire(c.ctx, cost); err != nil {
			return errs.Wrap("nbd.request", "memory", err)
		}
	}
	if !c.srv.memory.TryAcquire(cost) {
		c.sendHeld()
		if err := c.srv.memory.Acquire(c.ctx, cost); err != nil {
			c.memory.Release(cost)
			return errs.Wrap("nbd.request", "memory", err)
		}
	}
	req.cost = cost
	if lend := c.srv.cfg.Buffers; lend != nil && n > smallBytes {
		if req.lent = lend(n); req.lent != nil {
			req.buf = req.lent.Bytes()[:n]
			return nil
		}
	}
	req.buf = c.srv.buffers.get(n)
	return nil
}

// smallBytes is what no export cares about where it lies.
const smallBytes = 4 << 10

// hold queues the reply of a request that the reading goroutine ran. It is sent with those of the
// requests that are there already.
func (c *conn) hold(req *request) {
	c.held += 1 + req.dataBytes()
	c.out.put(req)
}

func (c *conn) sendHeld() {
	if c.held > 0 {
		c.held = 0
		c.out.flush()
	}
}

// hand gives the request to an idle worker, or to a fresh one, or waits for one.
func (c *conn) hand(req *request) {
	select {
	case c.work <- req:
		return
	default:
	}
	c.mu.Lock()
	grow := c.started < c.srv.cfg.ConnRequests
	if grow {
		c.started++
	}
	c.mu.Unlock()
	if grow {
		c.workers.Add(1)
		go c.worker(req)
		return
	}
	c.sendHeld()
	c.work <- req
}

// worker runs requests until it is handed nil or the connection ends.
func (c *conn) worker(req *request) {
	defer c.workers.Done()
	for ; req != nil; req = <-c.work {
		c.runSlotted(req)
		c.out.send(req)
	}
	c.mu.Lock()
	c.started--
	c.mu.Unlock()
}

// retireIdleWorkers lets workers go that have nothing to do at this moment, all but one: the
// reading goroutine may have counted them a moment ago and be about to wait for one.
func (c *conn) retireIdleWorkers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for spare := c.started - 1; spare > 0 && !c.ended; spare-- {
		select {
		case c.work <- nil:
		default:
			return
		}
	}
}

func (c *conn) finishWorkers() {
	c.mu.Lock()
	if !c.ended {
		c.ended = true
		close(c.work)
	}
	c.mu.Unlock()
	c.workers.Wait()
}

// stalledFor is how many ticks of the watchdog the connection has waited for its peer in the middle
// of a payload.
func (c *conn) stalledFor(now int64) int64 {
	worst := int64(0)
	for _, at := range []int64{c.in.waiting.Load(), c.out.waiting.Load()} {
		if at != 0 {
			worst = max(worst, now-(at-1))
		}
	}
	return worst
}

// drain lets the connection end by itself soon: what arrives until then is answered by ESHUTDOWN.
func (c *conn) drain() {
	// A deadline that cannot be set means a dead connection, which the next read finds out.
	_ = c.nc.SetReadDeadline(time.Now().Add(c.srv.cfg.DrainGrace))
}

// drainIfAsked comes after every change of the deadline: Shutdown may have set its own just before.
func (c *conn) drainIfAsked() {
	if c.srv.draining.Load() {
		c.drain()
	}
}

// cut ends the connection at once, and cancels its requests.
func (c *conn) cut() {
	c.cancel()
	_ = c.nc.Close() // it may be closed already
}

// close ends the connection for good, after the last of its goroutines. What a panic left on the
// way goes back to the server.
func (c *conn) close() {
	c.cut()
	if left := c.memory.Usage().Bytes; left > 0 {
		c.srv.memory.Release(left)
	}
}

// linger lets the peer take the last replies: closing a socket that has unread input would destroy
// them on their way.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerMax))
	_, _ = io.Copy(io.Discard, c.nc) // ends by the peer's close or the deadline, both fine
}

func (c *conn) logClose(err error) {
	if err != nil {
		c.srv.cfg.Logger.Error("nbd: closing an export failed", "err", err)
	}
}
