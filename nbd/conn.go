package nbd

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
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

// conn is one connection. Up to Config.ConnRequests goroutines run requests, one reads: turn.go.
type conn struct {
	srv    *Server
	id     uint64 // its number, for those who take turns
	nc     net.Conn
	in     stream
	out    replier
	ctx    context.Context
	cancel context.CancelFunc
	memory *gate.Gate
	count  counters

	// What the handshake chose; not changed afterwards. link is what is read and written: the socket
	// itself, or TLS over it, with a cork in between.
	*chosen
	link net.Conn
	cork *cork
	peer atomic.Pointer[tls.ConnectionState] // of who has started TLS; else nil

	leaving atomic.Bool // its export is not offered any more, or the server ends

	turns turns

	// Of the goroutine whose turn it is.
	seen  uint64 // reads and writes; see states.go
	held  int    // bytes of replies that are queued but not sent
	under int    // requests under way when the last one began, with it

	gathering gathering // small requests that wait for company: see batch.go
	work      chan *request
	workers   sync.WaitGroup
	broken    atomic.Bool // one of them has panicked

	mu      sync.Mutex
	started int  // goroutines that read and run
	idle    int  // those of them that wait
	ended   bool // work is closed
	readErr error
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, nc: nc, link: nc,
		in:     stream{link: nc, clock: &s.clock},
		memory: gate.New(gate.Options{Bytes: s.cfg.ConnMemoryBytes}),
		work:   make(chan *request),
		turns:  turns{free: make(chan struct{}, 1)},
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
	c.deadline(0)
	c.drainIfAsked()
	if raw := rawOf(c.link); raw != nil {
		c.in.link = newSocket(raw, &c.srv.brisk)
	}
	if !pick.shared.join(c) {
		c.drain()
	}
	err = c.serveRequests()
	if c.broken.Load() {
		return nil // it was told, and nobody may wait for the peer or for what was under way
	}
	c.out.flush()
	c.out.settle()
	c.sayGoodbye()
	if errors.Is(err, os.ErrDeadlineExceeded) && c.leaving.Load() {
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

// start checks a request, fetches its payload, and runs it if that takes no time. Else it returns
// what is to be run: the request, the batch that it completes, or nothing yet. On error the request
// still belongs to the caller and the stream is unusable.
func (c *conn) start(req *request) (*request, error) {
	errno, why, err := c.takeFilter(req)
	if err != nil {
		return nil, err
	}
	if errno == nbdOK {
		errno, why = c.check(&req.header)
	}
	if errno != nbdOK {
		if err := c.skipPayload(&req.header); err != nil {
			return nil, err
		}
		req.fail(errno, why)
		c.hold(req)
		return nil, nil
	}
	if n := c.bufferFor(&req.header); n > 0 {
		if err := c.lend(req, n); err != nil {
			return nil, err
		}
	}
	if req.cmd == cmdWrite && req.length > 0 {
		if c.in.buffered() < int(req.length) {
			c.sendHeld()
		}
		if err := c.in.payload(req.buf); err != nil {
			return nil, errs.Wrap("nbd.request", "payload", err)
		}
	}
	if c.runsInline(req) {
		c.run(req)
		c.hold(req)
		return nil, nil
	}
	if c.batches(req) {
		return c.gather(req), nil
	}
	return req, nil
}

// takeFilter reads the payload of a block status, which says what contexts to tell of, and takes it
// off the request. A payload that cannot be one is left to be skipped.
func (c *conn) takeFilter(req *request) (errno uint32, why string, err error) {
	if req.cmd != cmdBlockStatus {
		return nbdOK, "", nil
	}
	req.contexts = c.contexts
	if req.payload == 0 {
		return nbdOK, "", nil
	}
	if c.contexts == 0 || req.payload > 8+4*contextsMax {
		return nbdINVAL, "payload is no list of contexts", nil
	}
	c.sendHeld()
	p, err := c.in.next(int(req.payload))
	if err != nil {
		return 0, "", errs.Wrap("nbd.request", "payload", noEOF(err))
	}
	req.payload = 0
	length, contexts, ok := decodeFilter(p)
	if !ok || contexts&^c.contexts != 0 {
		return nbdINVAL, "payload is no list of contexts", nil
	}
	req.length, req.contexts = length, contexts
	return nbdOK, "", nil
}

// skipPayload takes the payload of a request that is refused off the stream.
func (c *conn) skipPayload(h *header) error {
	if h.payload == 0 {
		return nil
	}
	if h.payload > payloadSkip {
		return errs.Newf(errs.Protocol, "nbd.request", "payload", "%d bytes", h.payload)
	}
	c.sendHeld()
	return errs.Wrap("nbd.request", "payload", c.in.discard(int64(h.payload)))
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

// sendHeld comes before every wait of the reading goroutine in the middle of a request: what it
// holds back goes on its way.
func (c *conn) sendHeld() {
	c.handBatches()
	c.sendReplies()
}

func (c *conn) sendReplies() {
	if c.held > 0 {
		c.held = 0
		c.out.flush()
	}
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
	c.leaving.Store(true)
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
	half, ok := c.nc.(interface{ CloseWrite() error }) // of TLS the goodbye was said
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
