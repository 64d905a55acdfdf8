package peer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// Resolve finds the address of the peer with an id. It is asked before each attempt to
// connect, so that a peer may move.
type Resolve func(ctx context.Context, id uint32) (addr string, err error)

// dialTimeout bounds one attempt to connect to an address, not Resolve. It does not depend on the
// contexts of the callers that wait for the attempt, because they share it. An attempt that takes
// longer is followed by the next one, as after any other failure.
const dialTimeout = 10 * time.Second

// Dialer makes connections: a Network does, by the ladder, and a msg.Node, by its one provider.
type Dialer interface {
	Dial(ctx context.Context, addr string) (*msg.Conn, error)
}

// climber is a Dialer that may find a better way to a peer later: a Network is one.
type climber interface {
	MayClimb(c *msg.Conn) bool
	Better(ctx context.Context, c *msg.Conn) (*msg.Conn, error)
}

// Pool holds one live connection per peer, made on demand and shared by all callers. After failed
// attempts the next one waits, with backoff. Where a connection did not get the best way there is,
// the pool looks for it again, in growing pauses, and replaces the connection. Safe for concurrent
// use.
type Pool struct {
	dialer  Dialer
	resolve Resolve
	backoff Backoff
	climbs  Backoff         // between attempts to find a better way
	quiet   time.Duration   // how long a replaced connection is unused before it is closed
	ctx     context.Context // of attempts; ends with Close
	cancel  context.CancelFunc
	dials   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	byID   map[uint32]*entry
}

// entry is what the pool knows about one peer.
type entry struct {
	conn     *msg.Conn
	addr     string    // that conn was made to
	attempt  *attempt  // under way; nil for none
	failures int       // in a row
	climbs   int       // attempts to find a better way since there was rest
	climbed  time.Time // when the last one was
}

// attempt is one try to connect, waited for by many.
type attempt struct {
	ctx    context.Context // ends with the pool, and when the peer is elsewhere
	cancel context.CancelFunc
	done   chan struct{}

	addr   string // that is dialled, once that is known; guarded by the pool's lock, and so is
	sleeps bool   // it begins later
	conn   *msg.Conn
	err    error
}

// NewPool makes a pool whose connections are d's.
func NewPool(d Dialer, resolve Resolve) *Pool {
	p := &Pool{dialer: d, resolve: resolve, backoff: Backoff{}.withDefaults(),
		climbs: Backoff{First: climbFirst, Max: climbMax}, quiet: climbQuiet, byID: map[uint32]*entry{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// connect resolves the address and makes one attempt.
func (p *Pool) connect(id uint32, a *attempt) (*msg.Conn, error) {
	addr, err := p.resolve(a.ctx, id)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	a.addr = addr
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.ctx, dialTimeout)
	defer cancel()
	return p.dialer.Dial(ctx, addr)
}

func nameOf(id uint32) string { return fmt.Sprintf("peer %d", id) }

// Get returns the live connection to id. Without one it starts an attempt, or joins the one
// that is under way, and returns its outcome; an attempt that follows a failed one begins
// with a pause. ctx bounds this caller's waiting, not the attempt.
func (p *Pool) Get(ctx context.Context, id uint32) (*msg.Conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errs.New(errs.Closed, "peer.Get", nameOf(id), nil)
	}
	e := p.byID[id]
	if e == nil {
		e = &entry{}
		p.byID[id] = e
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
		a.ctx, a.cancel = context.WithCancel(p.ctx)
		e.attempt = a
		p.dials.Add(1)
		go p.dial(id, e, a, stale)
	}
	p.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, errs.New(errs.KindOf(ctx.Err()), "peer.Get", nameOf(id), ctx.Err())
	}
}

// dial makes one attempt, after the backoff of earlier failures.
func (p *Pool) dial(id uint32, e *entry, a *attempt, stale *msg.Conn) {
	defer p.dials.Done()
	defer a.cancel()
	p.retire(stale)
	p.mu.Lock()
	failures := e.failures
	a.sleeps = failures > 0
	p.mu.Unlock()
	var err error
	if failures > 0 {
		err = sleep(a.ctx, p.backoff.wait(failures))
		p.mu.Lock()
		a.sleeps = false
		p.mu.Unlock()
	}
	var c *msg.Conn
	if err == nil {
		c, err = p.connect(id, a)
	}
	by := p.climberOf(c)
	p.mu.Lock()
	e.attempt = nil
	switch {
	case p.closed && err == nil:
		err = errs.New(errs.Closed, "peer.Get", nameOf(id), nil)
	case !p.closed && a.ctx.Err() != nil: // what it was made to, if anything, is not the peer
		err = errs.Newf(errs.Disconnected, "peer.Get", nameOf(id), "it has moved")
	}
	switch {
	case err == nil:
		e.conn, e.addr, e.failures = c, a.addr, 0
		p.climbLocked(by, e, c)
	case a.ctx.Err() == nil:
		e.failures++
	}
	p.mu.Unlock()
	if err != nil && c != nil {
		c.Close()
		c = nil
	}
	a.conn, a.err = c, errs.Wrap("peer.Get", nameOf(id), err)
	close(a.done)
}

// Moved says that a peer is at an address now. A connection that was made to another one is
// dropped: calls on it fail with errs.Disconnected, and so does an attempt that is under way, so
// that nobody waits for what is not there any more. The next Get connects at once, to what Resolve
// says then.
func (p *Pool) Moved(id uint32, addr string) {
	p.mu.Lock()
	e := p.byID[id]
	if e == nil {
		p.mu.Unlock()
		return
	}
	var old *msg.Conn
	if e.conn != nil && e.addr != addr {
		old, e.conn = e.conn, nil
	}
	e.failures = 0
	if a := e.attempt; a != nil && (a.sleeps || a.addr != "" && a.addr != addr) {
		a.cancel()
	}
	if old != nil && !p.closed {
		p.dials.Go(func() {
			old.Drop("the peer has moved to " + addr)
			old.Close()
		})
	}
	p.mu.Unlock()
}

// retire lets the calls on a draining connection finish, and then closes it: the server ends it
// when they are done. A dead one is gone already.
func (p *Pool) retire(c *msg.Conn) {
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

// Close closes all connections and waits for attempts to end. Closing twice is allowed.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var conns []*msg.Conn
	for _, e := range p.byID {
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
