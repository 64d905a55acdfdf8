package exio

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/wire"
)

// The driver of the fabric's providers. Each connection has an endpoint with a completion queue of
// its own, which one goroutine polls; memory for messages, registered for life; and a mover.

const (
	// features is what an end of this package says in its hello, so that it is not taken for another.
	features = 0x4558

	// moverMark marks requests of the mover; messages have none.
	moverMark = 1

	// moverDepth is how many one-sided requests a connection may have in its queue.
	moverDepth = 64

	// slotBytes is the longest message that may be packed, slots how many at once. Above it the copies
	// cost more than the gaps do, on every provider that was measured.
	slotBytes = 64 << 10
	slots     = 4
)

// Link is what connections of one domain have in common.
type Link struct {
	Domain fabric.Domain

	// Memory is what the program moves data from and to. Default nil: only other memory.
	Memory *Memory

	// Source is where memory for messages comes from. Default nil: anonymous.
	Source mem.Source

	Options Options
}

// conn is the driver's handle.
type conn struct {
	*engine
	link    Link
	caps    fabric.Caps
	ep      fabric.Endpoint
	cq      fabric.CQ
	mover   *mover.Mover
	fetched bool // the peer reads what is written here, see rendezvous.go

	arena   *mem.Arena
	region  fabric.Region
	recvBuf [][]byte
	sendBuf [][]byte
	slots   *mem.Pool // for packed data that comes
	puts    []*mover.Plan
	gets    []*mover.Plan

	// Guarded by engine.mu.
	free     []int // buffers of sendBuf
	sending  []*task
	backlog  []func() // messages that wait for a buffer
	received int      // receives that are posted

	running sync.WaitGroup // what is done without the lock
	moves   atomic.Int64
	done    chan struct{}
}

// messageBytes is the longest message.
func (o Options) messageBytes() int {
	return headerBytes + max(o.EagerBytes, listBytes+remoteBytes*(MaxPieces+1))
}

// config makes everything but the endpoint.
func (l *Link) config() (c *conn, cfg fabric.EndpointConfig, err error) {
	l.Options = l.Options.withDefaults()
	if err := l.Options.validate(); err != nil {
		return nil, cfg, err
	}
	c = &conn{link: *l, caps: l.Domain.Caps(), done: make(chan struct{})}
	c.engine = newEngine(l.Options, c, func() { c.cq.Wake() })
	size, count := l.Options.messageBytes(), l.Options.receives()
	if size > c.caps.MaxMessage {
		return nil, cfg, errs.Newf(errs.Invalid, "exio", c.caps.Provider,
			"messages of %d bytes, at most %d", size, c.caps.MaxMessage)
	}
	cfg = fabric.EndpointConfig{
		SendDepth: count + moverDepth, RecvDepth: count, Hello: fabric.Hello{
			Features: features, MaxMessage: uint32(size), RecvDepth: uint32(count)},
	}
	c.cq, err = l.Domain.NewCQ(fabric.CQOptions{Depth: cfg.SendDepth + cfg.RecvDepth})
	if err != nil {
		return nil, cfg, err
	}
	cfg.SendCQ, cfg.RecvCQ = c.cq, c.cq
	if err = c.allocate(size, count); err != nil {
		return nil, cfg, errors.Join(err, c.discard())
	}
	return c, cfg, nil
}

// allocate makes the memory for messages.
func (c *conn) allocate(size, count int) (err error) {
	size = (size + 63) &^ 63
	packed := mem.PoolBytes(slotBytes, slots)
	c.arena, err = mem.NewArena(2*size*count+2*packed+4*4096, c.link.Source)
	if err == nil {
		err = c.arena.Attach(c.link.Domain)
	}
	if err != nil {
		return err
	}
	c.region = c.arena.RegionOf(c.link.Domain)
	for range count {
		for _, bufs := range []*[][]byte{&c.recvBuf, &c.sendBuf} {
			b, err := c.arena.Cut(size, 64)
			if err != nil {
				return err
			}
			*bufs = append(*bufs, b)
		}
		c.free = append(c.free, len(c.free))
	}
	c.sending = make([]*task, count)
	c.slots, err = mem.NewPool(c.arena, slotBytes, slots)
	return err
}

func (c *conn) discard() error {
	err := c.cq.Close()
	if c.arena != nil {
		err = errors.Join(err, c.arena.Close())
	}
	return err
}

// Dial connects to an end that accepts at addr. token is what its domain asks for; zeroes: nothing.
func (l Link) Dial(ctx context.Context, addr string, token [32]byte) (Handle, error) {
	c, cfg, err := l.config()
	if err != nil {
		return nil, err
	}
	cfg.Hello.Token = token
	if c.ep, err = l.Domain.Connector().Dial(ctx, addr, cfg); err == nil {
		if err = c.agrees(c.ep.Peer()); err != nil {
			err = errors.Join(err, c.ep.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(errs.Wrap("exio.Dial", addr, err), c.discard())
	}
	// Over shared memory only the end that listens reaches the memory of the other one.
	c.fetched = c.caps.SameHost
	return c.start()
}

// Accept waits for a peer that dials ln, which is of the link's domain. check may refuse it; nil:
// nobody is refused. As with fabric.Listener, an error of errs.Closed is the end of the listener.
func (l Link) Accept(ctx context.Context, ln fabric.Listener, check func(fabric.Peer) error) (
	Handle, error) {

	c, cfg, err := l.config()
	if err != nil {
		return nil, err
	}
	c.ep, err = ln.Accept(ctx, func(peer fabric.Peer) (fabric.EndpointConfig, error) {
		err := c.agrees(peer)
		if err == nil && check != nil {
			err = check(peer)
		}
		return cfg, err
	})
	if err != nil {
		return nil, errors.Join(err, c.discard())
	}
	return c.start()
}

// agrees refuses a peer that is no end of this package, or has other bounds.
func (c *conn) agrees(peer fabric.Peer) error {
	if peer.Features != features {
		return errs.Newf(errs.Protocol, "exio", "", "the peer speaks another protocol")
	}
	if int(peer.RecvDepth) != len(c.recvBuf) ||
		int(peer.MaxMessage) != c.opts.messageBytes() {
		return errs.Newf(errs.Protocol, "exio", "", "the peer keeps %d messages of %d bytes, this "+
			"side %d of %d", peer.RecvDepth, peer.MaxMessage, len(c.recvBuf), c.opts.messageBytes())
	}
	return nil
}

// start begins to receive.
func (c *conn) start() (Handle, error) {
	c.name = c.ep.Name()
	staging, err := mem.NewPool(c.arena, slotBytes, slots)
	if err == nil {
		c.mover, err = mover.New(mover.Options{Domain: c.link.Domain, Endpoint: c.ep,
			SendDepth: moverDepth, Mark: moverMark, Moves: 2 * c.opts.Requests,
			MaxPieces: MaxPieces, Staging: mover.FromPool(staging)})
	}
	if err != nil {
		return nil, errors.Join(err, c.ep.Close(), c.discard())
	}
	c.puts = make([]*mover.Plan, c.opts.Requests)
	c.gets = make([]*mover.Plan, c.opts.Requests)
	recvs := make([]fabric.Recv, len(c.recvBuf))
	for i := range recvs {
		recvs[i] = c.recv(i)
	}
	c.received = len(recvs)
	if err := c.ep.PostRecv(recvs); err != nil {
		c.received = 0
		c.mu.Lock()
		c.brokenLocked(err)
		c.leave()
	}
	go c.run()
	return c, nil
}

// Read implements Handle.
func (c *conn) Read(op *Op) error { return c.read(op) }

// Write implements Handle.
func (c *conn) Write(op *Op) error { return c.write(op) }

// Info implements Handle.
func (c *conn) Info() Info {
	peer := c.ep.Peer()
	who := peer.Proof.String()
	if peer.Name != "" {
		who = peer.Name + " (" + who + ")"
	}
	return Info{Driver: c.caps.Provider, Name: c.name, Peer: who}
}

// PeerOf is who is at the other end of a connection by a provider.
func PeerOf(h Handle) (fabric.Peer, bool) {
	c, ok := h.(*conn)
	if !ok {
		return fabric.Peer{}, false
	}
	return c.ep.Peer(), true
}

// Close implements Handle.
func (c *conn) Close() error {
	c.close()
	<-c.done
	return nil
}

// run serves the completion queue until the connection has ended and all that was posted is over.
func (c *conn) run() {
	defer close(c.done)
	batch := make([]fabric.Completion, 32)
	closed := false
	for {
		n, err := c.cq.Wait(context.Background(), batch)
		for i := range batch[:n] {
			c.completed(&batch[i])
		}
		clear(batch[:n])
		if err != nil {
			break // nobody else closes it
		}
		if c.broken() == nil {
			continue
		}
		if !closed {
			closed = true
			_ = c.ep.Close() // from here on no peer touches anything
		}
		if c.idle() {
			break
		}
	}
	c.running.Wait()
	c.fail()
	_ = c.discard() // nothing of it is used any more
}

// idle tells whether all that was posted has completed.
func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received == 0 && len(c.free) == len(c.sendBuf) && c.moves.Load() == 0
}

func (c *conn) recv(i int) fabric.Recv {
	return fabric.Recv{Context: uint64(i), Reg: c.region, Buf: c.recvBuf[i]}
}

// repostLocked posts a receive again.
func (c *conn) repostLocked(i int) {
	if c.dead != nil {
		return
	}
	if err := c.ep.PostRecv([]fabric.Recv{c.recv(i)}); err != nil {
		c.brokenLocked(err)
		return
	}
	c.received++
}

// completed takes a completion.
func (c *conn) completed(done *fabric.Completion) {
	if c.mover.Completed(done) {
		return
	}
	c.mu.Lock()
	defer c.leave()
	if done.Op != fabric.OpRecv {
		c.sentLocked(int(done.Context), done.Err)
		return
	}
	c.received--
	if done.Err != nil {
		c.brokenLocked(done.Err)
		return
	}
	if c.deaf {
		return
	}
	at := int(done.Context)
	if done.WithImm {
		c.repostLocked(at)
		c.brokenLocked(c.noticeLocked(done.Imm))
		return
	}
	c.brokenLocked(c.messageLocked(at, c.recvBuf[at][:done.Len]))
}

// sentLocked takes the end of a message, and sends what has waited for its buffer.
func (c *conn) sentLocked(i int, err error) {
	t := c.sending[i]
	c.sending[i] = nil
	c.free = append(c.free, i)
	c.brokenLocked(err)
	if t != nil {
		if err != nil {
			err = errs.Wrap("exio.Write", c.name, err)
		}
		c.brokenLocked(c.wroteLocked(t, err))
	}
	for len(c.backlog) > 0 && len(c.free) > 0 {
		next := c.backlog[0]
		c.backlog = c.backlog[1:]
		next()
	}
}

// send sends a message that build writes, when there is a buffer. t, if not nil, ends with it.
func (c *conn) send(t *task, build func(b []byte) []byte) error {
	if len(c.free) == 0 || len(c.backlog) > 0 {
		c.backlog = append(c.backlog, func() { c.brokenLocked(c.sendNow(t, build)) })
		return nil
	}
	return c.sendNow(t, build)
}

func (c *conn) sendNow(t *task, build func(b []byte) []byte) error {
	i := c.free[len(c.free)-1]
	wr := fabric.WR{Op: fabric.OpSend, Flags: fabric.FlagSignaled | fabric.FlagSolicited,
		Context: uint64(i),
		Local:   []fabric.Sge{{Reg: c.region, Buf: build(c.sendBuf[i][:0])}}}
	err := c.dead
	if err == nil {
		err = c.ep.Post([]fabric.WR{wr})
	}
	if err != nil {
		if t != nil {
			t.moving = false
			c.endLocked(t, err)
		}
		return err
	}
	c.free = c.free[:len(c.free)-1]
	c.sending[i] = t
	return nil
}

// sendEager implements carrier.
func (c *conn) sendEager(h header, t *task) error {
	return c.send(t, func(b []byte) []byte {
		b = h.append(b)
		for _, p := range t.op.Pieces {
			at := len(b)
			b = b[:at+len(p)]
			mem.CopyFor(mem.CopySlot, b[at:], p)
		}
		return b
	})
}

// sendWord implements carrier.
func (c *conn) sendWord(h header, kind errs.Kind) error {
	return c.send(nil, func(b []byte) []byte {
		b = h.append(b)
		if h.kind != kindCredit {
			e := wire.Enc{B: b}
			e.U16(uint16(kind))
			b = e.B
		}
		return b
	})
}

// messageLocked takes a message that lies in receive at.
func (c *conn) messageLocked(at int, msg []byte) error {
	h, body, err := parseHeader(msg)
	if err != nil {
		return err
	}
	if h.kind == kindEager {
		if h.length != uint64(len(body)) || len(body) > c.opts.EagerBytes {
			return malformed("%d bytes in a message of %d", len(body), h.length)
		}
		if err := c.creditLocked(h.credits); err != nil {
			return err
		}
		return c.arrived(&arrival{tag: h.tag, note: h.note, length: len(body), eager: true,
			payload: body, release: func() { c.repostLocked(at) }})
	}
	if c.dead != nil && h.kind == kindAccept {
		return nil // nobody can be given anything any more
	}
	err = c.controlLocked(&h, body)
	c.repostLocked(at)
	if err == nil {
		err = c.creditLocked(h.credits)
	}
	return err
}
