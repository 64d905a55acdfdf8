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

// Backlog is how many peers of a listener may be in the hello, or through it and not yet accepted.
const Backlog = 64

// Listener keeps the peers of a listening socket between their connect and Accept. Hellos are read
// in the background, so that a slow peer holds up nobody. C is a peer whose hello was read, or
// could not be. The provider's listener embeds it and adds Accept and Addr.
type Listener[C any] struct {
	domain *Domain
	sock   io.Closer
	drop   func(C)
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	slots  chan struct{} // one for each peer between its connect and Accept
	ready  chan C
	wg     sync.WaitGroup
	once   sync.Once
}

// Open makes the listener one of the domain's; drop is what becomes of a peer that waits for Accept
// when the listener is closed. When the domain was closed meanwhile it closes sock.
func (l *Listener[C]) Open(d *Domain, sock io.Closer, drop func(C)) error {
	l.domain, l.sock, l.drop = d, sock, drop
	l.ctx, l.cancel = context.WithCancel(d.ctx)
	l.slots, l.ready = make(chan struct{}, Backlog), make(chan C, Backlog)
	if err := d.adoptListener(l); err != nil {
		l.cancel()
		_ = sock.Close()
		return err
	}
	return nil
}

// Context ends when the listener is closed.
func (l *Listener[C]) Context() context.Context { return l.ctx }

// Serve accepts sockets until l is closed. It takes a slot for each and calls meet, which hands the
// slot on: by Ready, or by Leave where the peer concerns nobody. When there is no slot it calls
// full, if that is not nil, which may make one.
func Serve[C any, S io.Closer](
	l *Listener[C], accept func() (S, error), full func(), meet func(S),
) {
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

// TrySlot takes a slot, if there is one, for providers that hear of peers in other ways than Serve.
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

// Ready puts a peer that has a slot where Next finds it. It never blocks: there are no more slots
// than places.
func (l *Listener[C]) Ready(c C) { l.ready <- c }

// Leave gives the slot of a peer back.
func (l *Listener[C]) Leave() { <-l.slots }

// Next waits for a peer: errs.Closed when the listener is closed.
func (l *Listener[C]) Next(ctx context.Context) (c C, err error) {
	if l.ctx.Err() != nil {
		return c, l.domain.closedErr("Accept")
	}
	select {
	case c = <-l.ready:
		l.Leave()
		return c, nil
	case <-ctx.Done():
		return c, ctx.Err()
	case <-l.ctx.Done():
		return c, l.domain.closedErr("Accept")
	}
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

// Clear drops the peers that wait in a closed listener: for who has put one there that Close may
// have missed. A Next that still runs may be quicker, and is welcome to it.
func (l *Listener[C]) Clear() {
	for {
		select {
		case c := <-l.ready:
			l.drop(c)
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

// Configure is what a listener does with a peer that it has admitted (fabric.Tokens.Admit): it asks
// cfg for this side's configuration, puts answer into its hello and reserves its places. An error
// refuses the peer.
func (d *Domain) Configure(
	peer fabric.Peer, answer [32]byte, cfg func(fabric.Peer) (fabric.EndpointConfig, error),
) (mine fabric.EndpointConfig, err error) {
	if mine, err = cfg(peer); err != nil {
		if errs.KindOf(err) == errs.Closed { // of something else: it must not end the listener
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
