package provider

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Backlog is how many peers of a listener may be connected and not yet accepted.
const Backlog = 64

// Listener holds the peers of a listening socket between their connect and Accept. Hellos are read
// in the background, so that a slow peer delays no other. The provider's listener embeds it and
// adds Addr.
type Listener[C Caller] struct {
	domain *Domain
	sock   io.Closer
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	slots  chan struct{} // one for each peer between its connect and Accept
	ready  chan C
	wg     sync.WaitGroup
	once   sync.Once
}

// Caller is a peer of a listener. Each is admitted, refused or closed, once.
type Caller interface {
	met() *Met

	// Admit answers with mine's hello and makes the endpoint. When it fails the peer is gone and an
	// endpoint, if one was made, was disowned: the caller releases the places of mine.
	Admit(mine fabric.EndpointConfig) (fabric.Endpoint, error)

	// Refuse tells the peer as much of the reason as it may know, and closes the connection.
	Refuse(why error)

	// Close drops a peer that nobody accepts any more.
	Close() error

	// Name is what errors call it.
	Name() string
}

// Met is what a Caller's hello has told. A Caller embeds it.
type Met struct {
	Peer   fabric.Peer
	Answer [32]byte // the token of this side's hello
	Err    error    // why it is refused
}

func (m *Met) met() *Met { return m }

// Open makes the listener of a socket, which Close closes.
func (l *Listener[C]) Open(d *Domain, sock io.Closer) {
	l.domain, l.sock = d, sock
	l.ctx, l.cancel = context.WithCancel(d.ctx)
	l.slots, l.ready = make(chan struct{}, Backlog), make(chan C, Backlog)
}

// Adopt adds the listener to the domain. When the domain was stopped meanwhile it closes the
// listener and returns errs.Closed.
func (l *Listener[C]) Adopt() error {
	err := l.domain.adoptListener(l)
	if err != nil {
		_ = l.Close()
	}
	return err
}

// Context ends when the listener is closed.
func (l *Listener[C]) Context() context.Context { return l.ctx }

// Serve adopts l and accepts sockets until it is closed. It takes a slot for each and calls meet,
// which passes the peer on by Ready, or gives the slot back by Leave. When there is no slot it
// calls full, if that is not nil, which may make one.
func Serve[C Caller, S io.Closer](
	l *Listener[C], accept func() (S, error), full func(), meet func(S),
) error {
	if err := l.Adopt(); err != nil {
		return err
	}
	l.wg.Go(func() {
		for {
			sock, err := accept()
			switch {
			case err == nil:
				if !l.takeSlot(full) {
					_ = sock.Close()
					return
				}
				meet(sock)
			case errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil:
				return
			default: // out of descriptors, or a peer that was gone again
				select {
				case <-time.After(10 * time.Millisecond):
				case <-l.ctx.Done():
				}
			}
		}
	})
	return nil
}

// takeSlot waits until there is a slot. It is false when the listener is closed.
func (l *Listener[C]) takeSlot(full func()) bool {
	if l.TrySlot() {
		return true
	}
	if full != nil {
		full()
	}
	select {
	case l.slots <- struct{}{}:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// TrySlot takes a slot, if there is one, for providers that do not use Serve.
func (l *Listener[C]) TrySlot() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// Go runs f in a goroutine that Close waits for.
func (l *Listener[C]) Go(f func()) { l.wg.Go(f) }

// Ready queues a peer that has a slot for Accept. It never blocks: the queue has as many places as
// there are slots.
func (l *Listener[C]) Ready(c C) { l.ready <- c }

// Leave gives the slot of a peer back.
func (l *Listener[C]) Leave() { <-l.slots }

// Accept implements fabric.Listener.
func (l *Listener[C]) Accept(
	ctx context.Context, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	if l.ctx.Err() != nil {
		return nil, l.domain.closedErr("Accept")
	}
	select {
	case c := <-l.ready:
		l.Leave()
		e, err := l.welcome(c, cfg)
		if err != nil {
			return nil, errs.Wrap(l.domain.name+".Accept", c.Name(), err)
		}
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, l.domain.closedErr("Accept")
	}
}

// welcome admits a peer or refuses it.
func (l *Listener[C]) welcome(
	c C, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (fabric.Endpoint, error) {
	m := c.met()
	mine, err := fabric.EndpointConfig{}, m.Err
	if err == nil {
		mine, err = l.domain.Configure(m.Peer, m.Answer, cfg)
	}
	if err != nil {
		c.Refuse(err)
		l.domain.CountRefusal()
		return nil, err
	}
	e, err := c.Admit(mine)
	if err != nil {
		l.domain.Unreserve(&mine)
	}
	return e, err
}

// Close implements fabric.Listener.
func (l *Listener[C]) Close() error {
	l.once.Do(func() {
		l.cancel()
		_ = l.sock.Close()
		l.wg.Wait()
		l.Clear()
		l.domain.forgetListener(l)
	})
	return nil
}

// Clear drops the peers that wait in a closed listener. A provider that calls Ready after Close
// calls it too. An Accept that still runs may take the peer first, which does no harm.
func (l *Listener[C]) Clear() {
	for {
		select {
		case c := <-l.ready:
			_ = c.Close()
		default:
			return
		}
	}
}

// Until runs read, which blocks on conn, and interrupts it when ctx ends.
func Until(ctx context.Context, conn net.Conn, read func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	err := read()
	if !stop() {
		return ctx.Err()
	}
	return err
}

// Configure configures this side for a peer that was admitted (fabric.Tokens.Admit): it asks cfg,
// puts answer into the hello and reserves the places. An error refuses the peer.
func (d *Domain) Configure(
	peer fabric.Peer, answer [32]byte, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (mine fabric.EndpointConfig, err error) {
	if mine, err = cfg(peer); err != nil {
		if errs.KindOf(err) == errs.Closed { // it is not the listener that is closed
			err = errs.Newf(errs.Disconnected, d.name+".Accept", "", "refused: %w", err)
		}
		return mine, err
	}
	if err = d.Reserve(&mine); err != nil {
		return mine, err
	}
	mine.Hello.Token = answer
	if v := mine.Hello.Version; v != fabric.HelloVersion {
		d.Unreserve(&mine)
		err = errs.Newf(errs.Version, d.name+".Accept", "", "this side says %d", v)
	}
	return mine, err
}
