package msg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Resolve finds the address of the peer with an id. It is asked before each attempt to
// connect, so that a peer may move.
type Resolve func(ctx context.Context, id uint32) (addr string, err error)

// dialTimeout bounds one attempt to connect to an address; how long the address is looked for is
// the business of Resolve. It is apart from the contexts of those who wait for it, because they
// share it. An attempt that takes longer is followed by the next one, as after any other failure.
const dialTimeout = 10 * time.Second

// Pool keeps one live connection per peer, made on demand and shared by all callers. After a
// failed attempt the next one waits, longer each time. Safe for concurrent use.
type Pool struct{ peers[uint32] }

// NewPool makes a pool whose connections are n's.
func NewPool(n *Node, resolve Resolve) *Pool {
	p := &Pool{}
	connect := func(ctx context.Context, id uint32) (*Conn, error) {
		addr, err := resolve(ctx, id)
		if err != nil {
			return nil, err
		}
		return n.dialWithin(ctx, addr)
	}
	p.init(n, connect, func(id uint32) string { return fmt.Sprintf("peer %d", id) })
	return p
}

func (n *Node) dialWithin(ctx context.Context, addr string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return n.Dial(ctx, addr)
}

// peers is a pool by some kind of key.
type peers[K comparable] struct {
	node     *Node
	dialPeer func(ctx context.Context, key K) (*Conn, error)
	nameOf   func(key K) string
	backoff  Backoff
	ctx      context.Context // of attempts; ends with Close
	cancel   context.CancelFunc
	dials    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	byKey  map[K]*peer
}

// peer is what the pool knows about one id.
type peer struct {
	conn     *Conn
	attempt  *attempt // under way; nil for none
	failures int      // in a row
}

// attempt is one try to connect, waited for by many.
type attempt struct {
	done chan struct{}
	conn *Conn
	err  error
}

func (p *peers[K]) init(n *Node, dial func(context.Context, K) (*Conn, error),
	nameOf func(K) string,
) {
	p.node, p.dialPeer, p.nameOf = n, dial, nameOf
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.backoff, p.byKey = Backoff{}.withDefaults(), map[K]*peer{}
}

// Get returns the live connection to id. Without one it starts an attempt, or joins the one
// that is under way, and returns its outcome; an attempt that follows a failed one begins
// with a pause. ctx bounds this caller's waiting, not the attempt.
func (p *peers[K]) Get(ctx context.Context, id K) (*Conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errs.New(errs.Closed, "msg.Get", p.nameOf(id), nil)
	}
	e := p.byKey[id]
	if e == nil {
		e = &peer{}
		p.byKey[id] = e
	}
	if e.conn != nil && e.conn.Err() == nil {
		c := e.conn
		p.mu.Unlock()
		return c, nil
	}
	stale := e.conn
	e.conn = nil
	a := e.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		e.attempt = a
		p.dials.Add(1)
		go p.dial(id, e, a, stale)
	}
	p.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, errs.New(errs.KindOf(ctx.Err()), "msg.Get", p.nameOf(id), ctx.Err())
	}
}

// dial makes one attempt, after the pause that earlier failures ask for.
func (p *peers[K]) dial(id K, e *peer, a *attempt, stale *Conn) {
	defer p.dials.Done()
	p.retire(stale)
	p.mu.Lock()
	failures := e.failures
	p.mu.Unlock()
	var err error
	if failures > 0 {
		err = sleep(p.ctx, p.backoff.wait(failures))
	}
	var c *Conn
	if err == nil {
		c, err = p.dialPeer(p.ctx, id)
	}
	p.mu.Lock()
	e.attempt = nil
	if err == nil && p.closed {
		err = errs.New(errs.Closed, "msg.Get", p.nameOf(id), nil)
	}
	if err == nil {
		e.conn, e.failures = c, 0
	} else {
		e.failures++
	}
	p.mu.Unlock()
	if err != nil && c != nil {
		c.Close()
		c = nil
	}
	a.conn, a.err = c, errs.Wrap("msg.Get", p.nameOf(id), err)
	close(a.done)
}

// retire lets the calls on a connection that said goodbye finish, and then closes it: the
// server ends it when they are done. A dead one is gone already.
func (p *peers[K]) retire(c *Conn) {
	if c == nil {
		return
	}
	p.dials.Add(1)
	go func() {
		defer p.dials.Done()
		select {
		case <-c.Done():
		case <-p.ctx.Done():
		}
		c.Close()
	}()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drop ends conn, which somebody finds useless, if it is still the pool's connection to id; others
// may have replaced it. Calls on it fail with errs.Disconnected: those who share it have closed
// nothing, and may repeat them on the next connection. A slow answer is no reason to drop a
// connection: whether the peer is there is watched by Options.KeepAlive.
func (p *peers[K]) Drop(id K, conn *Conn) {
	p.mu.Lock()
	e := p.byKey[id]
	mine := e != nil && conn != nil && e.conn == conn
	if mine {
		e.conn = nil
	}
	p.mu.Unlock()
	if mine {
		conn.fail(errs.Newf(errs.Disconnected, "msg.Drop", conn.name, "given up by another caller"))
		conn.Close()
	}
}

// Close closes all connections and waits for attempts to end. Closing twice is allowed.
func (p *peers[K]) Close() error {
	p.mu.Lock()
	p.closed = true
	var conns []*Conn
	for _, e := range p.byKey {
		if e.conn != nil {
			conns = append(conns, e.conn)
			e.conn = nil
		}
	}
	p.mu.Unlock()
	p.cancel()
	for _, c := range conns {
		c.Close()
	}
	p.dials.Wait()
	return nil
}
