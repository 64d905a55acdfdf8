package msg

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/msg/internal/buffers"
	"github.com/sluice-storage/sluice/msg/internal/silence"
	"github.com/sluice-storage/sluice/wire"
)

// link is what both ends of a connection share: the endpoint, its completion queue and the memory
// of its messages. The role above it says what a message means.
type link struct {
	node *Node
	role role
	rung *rung
	ep   fabric.Endpoint
	cq   fabric.CQ
	caps fabric.Caps

	duty    progress.Duty // to poll cq
	scratch poller        // of the goroutine that has it

	name     string
	peerAddr string        // for logs that are written once per peer
	silence  silence.Watch // the sweep's
	aliveBuf int           // send buffer of inquiries; that of answers follows it
	heard    atomic.Uint64 // messages received; the sweep watches it
	unposted atomic.Int32  // receives that could not be posted again: the peer is gone

	bufs      *buffers.Buffers // live until nobody uses the link any more
	msgBytes  int              // the largest message that this side may send
	inlineMax int              // the largest message that Post copies before it returns

	// Sends that nobody waits for are unsignalled, except each signalEvery-th, whose
	// completion frees the places of those before it in the send queue.
	signalEvery uint32
	plain       atomic.Uint32
	moves       atomic.Uint64 // completions of this side's work requests; the sweep watches it

	closing sync.Once
	done    chan struct{} // closed once the link is dead
	ended   chan struct{} // closed once its endpoint is closed, so that no memory is touched
	gone    chan struct{} // closed once its goroutine and memory are gone

	users  atomic.Int64  // goroutines that may touch the buffers, and the link itself while it lives
	unused chan struct{} // closed when users is 0, for good
	over   atomic.Bool   // dead is set

	mu   sync.Mutex
	dead error // why, once it is dead
}

// role is what a link is used for: the client's Conn or the server's serverConn.
type role interface {
	// received handles the message in receive buf whose header is p.header. The role posts the
	// receive again.
	received(p *poller, buf int, body, inline []byte)

	// completed handles a completion of a work request that is not a plain send.
	completed(c *fabric.Completion)

	// died wakes all that wait for the peer. It may be called on any goroutine, once.
	died(err error)

	// flushed ends what still waits for a completion: the endpoint is closed, none will come.
	flushed(err error)

	// released is the last call: memory and goroutine are gone.
	released()
}

// Contexts of work requests: a kind above, an index below.
const (
	kindRecv  uint64 = 1 << 56 // index: receive buffer
	kindPlain uint64 = 2 << 56 // a send that nobody waits for
	kindOp    uint64 = 3 << 56 // index: serverConn.ops
	kindWrite uint64 = 4 << 56 // unsignalled write; index: call, so that a failure finds it
	kindFence uint64 = 5 << 56 // index: slot of a client that waits for what was posted before
	kindMask  uint64 = 0xff << 56
)

// The receives that a side keeps besides one per credit, for control messages: a client may
// have maxCancels cancellations unacknowledged, and each is acknowledged by one message. The
// others are, for a client: two goodbyes, an inquiry and its answer, slots given, slots asked back;
// for a server: an inquiry and its answer, slots asked for, slots given back. There is at most one
// of each on the way.
const (
	maxCancels     = 6
	controlReserve = maxCancels + 6
)

// bulkDepth is how many places of the send queue are for one-sided operations.
const bulkDepth = 256

// sendDepth adds up the send queue: one-sided operations; control messages; and plain sends,
// of which at most credits can be on their way to the peer. Places of those that have arrived
// are freed by a later signalled one, which is at most credits/2 sends and one turn of the
// queue away: four times the credits leave room for both.
func sendDepth(credits int) int { return bulkDepth + 2*controlReserve + 4*credits }

const (
	replyBytes = wire.HeaderBytes + 8 // what stands before a reply's body, see slot.parse
	maxText    = minBody - 8          // how much of an error's text crosses the wire
)

// config makes the queue and the endpoint's configuration for a number of credits.
func (n *Node) config(r *rung, credits int) (fabric.EndpointConfig, error) {
	send, recv := sendDepth(credits), credits+controlReserve
	opts := fabric.CQOptions{Depth: send + recv}
	if n.opts.Progress == ProgressPoll {
		opts.Spin = pollSpin
	}
	cq, err := r.domain.NewCQ(opts)
	if err != nil {
		return fabric.EndpointConfig{}, err
	}
	return fabric.EndpointConfig{
		SendCQ: cq, RecvCQ: cq, SendDepth: send, RecvDepth: recv,
		Hello: fabric.Hello{
			MaxMessage: uint32(n.opts.receiveBytes(r.limits)), RecvDepth: uint32(recv),
			Identity: n.opts.Identity,
		},
	}, nil
}

// newLink maps and registers the memory of a fresh endpoint. On failure it closes endpoint
// and queue.
func newLink(n *Node, r *rung, ep fabric.Endpoint, cfg *fabric.EndpointConfig, sends int) (
	*link, error,
) {
	size := n.opts.receiveBytes(r.limits)
	l := &link{
		node: n, rung: r, ep: ep, cq: cfg.RecvCQ, caps: r.caps, name: ep.Name(),
		peerAddr: logonce.Peer(ep.Name()), inlineMax: r.caps.MaxInline,
		msgBytes: min(size, int(ep.Peer().MaxMessage)), unused: make(chan struct{}),
		done: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	l.users.Store(1)
	l.signalEvery = uint32(max(1, (cfg.RecvDepth-controlReserve)/2))
	var err error
	if l.msgBytes < wire.HeaderBytes+minBody {
		err = errs.Newf(errs.Invalid, "msg", l.name, "the peer takes messages of %d bytes at most",
			ep.Peer().MaxMessage)
	} else {
		l.bufs, err = buffers.New(r.domain, buffers.Size{Recvs: cfg.RecvDepth, RecvBytes: size,
			Sends: sends, SendBytes: l.msgBytes}, kindRecv)
	}
	if err != nil {
		_ = ep.Close()
		_ = l.cq.Close()
		return nil, err
	}
	return l, nil
}

// discard closes a link that was not started. Another goroutine may have found and entered it
// already: its memory stays until that one leaves.
func (l *link) discard() {
	l.fail(errs.New(errs.Closed, "msg.Close", l.name, nil))
	l.supervise()
}

// start posts every receive. From here on the link cleans up after itself; the role makes some
// goroutine poll.
func (l *link) start() {
	err := l.ep.PostRecv(l.bufs.Posts())
	go l.supervise()
	if err != nil {
		l.fail(err)
	}
}

// repost posts a receive again. On a dead link it does nothing. Where the peer has gone, the
// receives that are still posted tell so, behind all that had arrived before: the answers that a
// server gives while it shuts down are not lost to its end.
func (l *link) repost(i int) {
	err := l.ep.PostRecv(l.bufs.Posts()[i : i+1])
	switch {
	case err == nil:
	case errs.KindOf(err) == errs.Disconnected && int(l.unposted.Add(1)) < len(l.bufs.Posts()):
	default:
		l.fail(err)
	}
}

// parcel is the memory of a message's work request, kept for reuse.
type parcel struct {
	pieces [2]fabric.Sge
	wrs    [1]fabric.WR
}

func (p *parcel) bytes() int { return len(p.pieces[0].Buf) + len(p.pieces[1].Buf) }

// sendPlain posts a message that nobody waits for. Its buffer is free again at once when the
// message is at most inlineMax bytes long, else once the peer has answered it: what was
// answered has been received.
func (l *link) sendPlain(p *parcel, buf []byte) error {
	p.pieces[0] = fabric.Sge{Reg: l.bufs.Region(), Buf: buf}
	p.pieces[1] = fabric.Sge{}
	var flags fabric.Flags
	if len(buf) <= l.inlineMax {
		flags = fabric.FlagInline
	}
	return l.send(p, flags, kindPlain)
}

// send posts one message.
func (l *link) send(p *parcel, flags fabric.Flags, context uint64) error {
	n := 1
	if len(p.pieces[1].Buf) > 0 {
		n = 2
	}
	if l.plain.Add(1)%l.signalEvery == 0 {
		flags |= fabric.FlagSignaled
	}
	p.wrs[0] = fabric.WR{
		Op: fabric.OpSend, Flags: flags | fabric.FlagSolicited, Context: context,
		Local: p.pieces[:n],
	}
	return l.post(p.wrs[:])
}

// post posts work requests. Memory that the provider cannot use is the caller's error; a full queue
// is a bug of this package (see sendDepth) and ends the link like any other failure.
func (l *link) post(wrs []fabric.WR) error {
	err := l.ep.Post(wrs)
	if err == nil || errs.KindOf(err) == errs.Invalid {
		return err
	}
	l.fail(err)
	return l.err()
}

// supervise takes the link apart once it is dead.
func (l *link) supervise() {
	defer close(l.gone)
	<-l.done
	l.closeEndpoint()
	l.role.flushed(l.err())

	l.leave() // the link's own
	<-l.unused
	if err := l.bufs.Close(); err != nil {
		l.node.opts.Logger.Error("message memory was not released", "link", l.name, "err", err)
	}
	l.role.released()
}

// pollBatch is how many completions are handled at once.
const pollBatch = 32

// poller is the scratch space of a goroutine that empties the completion queue.
type poller struct {
	batch  [pollBatch]fabric.Completion
	header wire.Header // of the message being handled
	run    *Call       // server: what the goroutine will serve itself,
	quick  []*Call     // or these, one after another
}

// poll waits for completions and handles them. It fails when ctx ends, or when the link is dead.
// The caller has entered the link.
func (l *link) poll(ctx context.Context, p *poller) error {
	n, err := l.cq.Wait(ctx, p.batch[:])
	if err != nil {
		return err
	}
	l.handle(p, n)
	return nil
}

// waits returns how pollers of the link have waited, where the provider counts it.
func (l *link) waits() fabric.WaitCounts {
	if q, ok := l.cq.(fabric.WaitCounter); ok {
		return q.WaitCounts()
	}
	return fabric.WaitCounts{}
}

// handle handles the first n completions of a batch.
func (l *link) handle(p *poller, n int) {
	for i := range p.batch[:n] {
		c := &p.batch[i]
		switch {
		case c.Op == fabric.OpRecv:
			l.handleRecv(p, c)
		case c.Context&kindMask == kindPlain:
			l.moves.Add(1)
			if c.Err != nil {
				l.fail(c.Err)
			}
		default:
			l.moves.Add(1)
			l.role.completed(c)
		}
	}
}

func (l *link) handleRecv(p *poller, c *fabric.Completion) {
	if c.Err != nil {
		l.fail(c.Err)
		return
	}
	if l.over.Load() {
		return // messages that came before the end are dropped
	}
	l.heard.Add(1)
	i := int(c.Context &^ kindMask)
	body, inline, err := p.header.Parse(l.bufs.Recv(i)[:c.Len])
	if err == nil && c.WithImm {
		err = errs.Newf(errs.Protocol, "msg", l.name, "a write with immediate")
	}
	if err != nil {
		l.fail(err)
		return
	}
	l.role.received(p, i, body, inline)
}

// fail ends the link; the first cause is kept. It returns at once: supervise does the rest.
func (l *link) fail(cause error) {
	l.mu.Lock()
	if l.dead != nil {
		l.mu.Unlock()
		return
	}
	l.dead = deathOf(l.name, cause)
	l.over.Store(true)
	err := l.dead
	l.mu.Unlock()
	close(l.done)
	l.role.died(err)
}

// Close ends the connection and waits until its memory is released. Calls in progress fail with
// errs.Closed.
func (l *link) Close() {
	l.fail(errs.New(errs.Closed, "msg.Close", l.name, nil))
	<-l.gone
}

// Drop ends the connection as if its peer were lost: calls in progress fail with
// errs.Disconnected, which those repeat that can. Close it as well.
func (l *link) Drop(why string) {
	l.fail(errs.Newf(errs.Disconnected, "msg.Drop", l.name, "%s", why))
}

// closeEndpoint returns when no memory of this side is touched any more. Completions that were not
// polled are dropped with the queue: role.flushed replaces them.
func (l *link) closeEndpoint() {
	l.closing.Do(func() {
		if err := l.ep.Close(); err != nil {
			l.node.opts.Logger.Warn("endpoint did not close cleanly", "link", l.name, "err", err)
		}
		_ = l.cq.Close() // ends the waits of pollers
		close(l.ended)
	})
}

// deathOf is the error of waits on a dead link: Closed when this side closed it, else Disconnected
// with the cause.
func deathOf(name string, cause error) error {
	kind := errs.KindOf(cause)
	if kind != errs.Closed {
		kind = errs.Disconnected
	}
	return errs.New(kind, "msg", name, cause)
}

// err is why the link is dead; nil while it lives.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// explain replaces an operation's error by the cause of the link's death, if it is dead.
func (l *link) explain(err error) error {
	if dead := l.err(); dead != nil && err != nil {
		return dead
	}
	return err
}

// enter keeps the link's memory mapped until leave. It fails once the link is dead.
func (l *link) enter() error {
	for {
		if l.over.Load() {
			return l.err()
		}
		users := l.users.Load()
		if users > 0 && l.users.CompareAndSwap(users, users+1) {
			return nil
		}
	}
}

func (l *link) leave() {
	if l.users.Add(-1) == 0 {
		close(l.unused)
	}
}
