//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// conn is an identifier of the connection manager. Its events go to the goroutine that sets it up,
// and to the endpoint once there is one.
type conn struct {
	id     *cID
	events chan cmEvent // until it has an endpoint; a setup waits for one at a time

	mu       sync.Mutex
	ep       *endpoint
	listener *listener // it is a listener's own
}

func newConn(id *cID) *conn { return &conn{id: id, events: make(chan cmEvent, 8)} }

// deliver is called by serveEvents and never blocks.
func (c *conn) deliver(d *domain, ev *cmEvent) {
	if ev.kind == cmDeviceRemoval {
		d.removed(idDevice(c.id))
		if l := c.host(); l != nil {
			_ = l.Close() // there is nothing to accept from any more
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ep != nil {
		c.ep.notice(ev)
		return
	}
	select {
	case c.events <- *ev:
	default: // a setup waits for one event at a time
	}
}

// attach sends events to the endpoint from now on, the old ones first.
func (c *conn) attach(e *endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ep = e
	for len(c.events) > 0 {
		ev := <-c.events
		e.notice(&ev)
	}
}

// host is the listener that owns this identifier, if any.
func (c *conn) host() *listener {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listener
}

// notice handles an event of a connection.
func (e *endpoint) notice(ev *cmEvent) {
	switch ev.kind {
	case cmTimewaitExit, cmDeviceRemoval: // the device tells its endpoints of its removal
	case cmEstablished:
		e.established(false)
	case cmDisconnected:
		e.Die(errs.Disconnected, "the peer ended the connection")
	default:
		e.Die(errs.Disconnected, fmt.Sprintf("the connection failed: event %d, status %d",
			ev.kind, ev.status))
	}
}

// await waits for one kind of event; any other is a failure.
func (c *conn) await(ctx context.Context, kind int) (*cmEvent, error) {
	select {
	case ev := <-c.events:
		switch ev.kind {
		case kind:
			return &ev, nil
		case cmRejected:
			return nil, decodeRefusal(ev.private[:ev.privateLen], ev.status)
		case cmDeviceRemoval:
			return nil, errs.Newf(errs.Disconnected, "verbs", "", "the RDMA device is gone")
		}
		return nil, errs.Newf(errs.Disconnected, "verbs", "",
			"the peer cannot be reached: event %d, status %d", ev.kind, ev.status)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connTable finds the receiver of an event. An event is taken and its receiver found under one
// lock, so that an identifier that is freed, and one that is made at its place, are never mixed up.
type connTable struct {
	mu  sync.Mutex
	all map[*cID]*conn
}

func (t *connTable) open() { t.all = map[*cID]*conn{} }

func (t *connTable) add(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[c.id] = c
}

// drop frees an identifier. Events that are on their way to it are lost.
func (t *connTable) drop(c *conn) {
	t.mu.Lock()
	delete(t.all, c.id)
	t.mu.Unlock()
	freeID(c.id)
}

// next takes an event and finds its receiver. A request is for its listener.
func (t *connTable) next(ch *cChannel) (cmEvent, *conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ev, err := nextEvent(ch)
	if err != nil {
		return ev, nil, err
	}
	if ev.kind == cmConnectRequest {
		return ev, t.all[ev.listener], nil
	}
	return ev, t.all[ev.id], nil
}

// serveEvents runs until the watcher is closed.
func (d *domain) serveEvents() {
	for {
		var (
			ev cmEvent
			c  *conn
		)
		err := d.events.read(func() (err error) {
			ev, c, err = d.conns.next(d.channel)
			return err
		})
		switch {
		case d.Context().Err() != nil && err != nil:
			return
		case err == syscall.EBADF:
			return
		case err != nil: // the library could not decode an event
			time.Sleep(time.Millisecond)
		case ev.kind == cmConnectRequest:
			if l := c.host(); l != nil {
				l.request(&ev)
			} else {
				freeID(ev.id) // it is gone
			}
		case c != nil:
			c.deliver(d, &ev)
		}
	}
}

// newConn makes an identifier whose events are delivered.
func (d *domain) newConn() (*conn, error) {
	id, err := newID(d.channel)
	if err != nil {
		return nil, errs.Wrap("verbs", "connection", err)
	}
	c := newConn(id)
	d.conns.add(c)
	return c, nil
}
