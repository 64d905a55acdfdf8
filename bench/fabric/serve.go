package fabric

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

const doFabric = "fabric" // serve the fabric alone, and tell where

type fabricArgs struct {
	Provider string `json:"provider"`
	Metered  bool   `json:"metered"`
}

// Jobs are what the other process does for this package.
func Jobs(open partner.Opener) partner.Jobs {
	return partner.Jobs{doFabric: partner.On(func(s *partner.Session, a fabricArgs) (string, error) {
		by := open
		if a.Metered {
			by = open.Metered
		}
		d, err := by(a.Provider)
		if err != nil {
			return "", err
		}
		ln, err := d.Domain.Connector().Listen(d.Listen)
		if err != nil {
			return "", errors.Join(err, d.Domain.Close())
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			serve(s.Context, d.Domain, ln, s.Note)
		}()
		s.Later(func() error {
			err := errors.Join(ln.Close(), d.Domain.Close()) // ends the endpoints, too
			<-done
			return err
		})
		return ln.Addr().String(), nil
	})}
}

// peerEnds is how many endpoints a peer serves at once: one measures at a time, and a case holds a
// few more open.
const peerEnds = 64

// serve is the other side on one provider. It accepts endpoints, does for each what the dialler's
// hello asks for, and returns when the listener is closed and everybody has left. note is told of
// endpoints that ended otherwise than by their dialler.
func serve(ctx context.Context, d fabric.Domain, ln fabric.Listener, note func(error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, peerEnds)
	for {
		var e *end
		ep, err := ln.Accept(ctx, func(p fabric.Peer) (fabric.EndpointConfig, error) {
			select {
			case places <- struct{}{}:
			default:
				return fabric.EndpointConfig{}, errs.Newf(errs.Again, "bench peer", "", "too many")
			}
			r, err := roleOf(p.Features)
			if err == nil {
				e, err = newEnd(d, r, max(wire.HeaderBytes+r.size, GrantBytes))
			}
			if err != nil {
				<-places
				return fabric.EndpointConfig{}, err
			}
			return e.config(), nil
		})
		if err == nil {
			wg.Go(func() {
				err := e.serve(ep, d.Caps().MaxInline)
				if kind := errs.KindOf(err); kind != errs.Disconnected && kind != errs.Closed {
					note(err)
				}
				_ = e.undo.Close()
				<-places
			})
			continue
		}
		if e != nil {
			_ = e.undo.Close() // it was not used
			<-places
		}
		if errs.KindOf(err) == errs.Closed || ctx.Err() != nil {
			return
		}
	}
}

// serve runs until the endpoint ends.
func (e *end) serve(ep fabric.Endpoint, inline int) error {
	if err := e.start(ep); err != nil {
		return err
	}
	switch e.role.mode {
	case modeEcho:
		return e.serveEcho(inline)
	case modeSink:
		return e.serveSink(inline)
	case modeHeader:
		return e.serveHeader(inline)
	}
	return e.serveMemory(inline)
}

func (e *end) serveEcho(inline int) error {
	for {
		count, length, _, err := e.awaitMessages()
		if err != nil {
			return err
		}
		for range count {
			if err := e.send(length, 0, inline); err != nil {
				return err
			}
		}
	}
}

func (e *end) serveSink(inline int) error {
	for taken := 0; ; {
		count, _, _, err := e.awaitMessages()
		if err != nil {
			return err
		}
		for taken += count; taken >= sinkBatch; taken -= sinkBatch {
			if err := e.send(1, sinkBatch, inline); err != nil {
				return err
			}
		}
	}
}

func (e *end) serveMemory(inline int) error {
	rem, err := e.arena.Region().Grant(e.ep, 0, e.role.size, fabric.RemoteRead|fabric.RemoteWrite)
	if err != nil {
		return err
	}
	PutRemote(e.data, rem)
	if err := e.send(GrantBytes, 0, inline); err != nil {
		return err
	}
	for {
		if _, err := e.await(); err != nil {
			return err
		}
	}
}

// serveHeader answers a message with a header with one.
func (e *end) serveHeader(inline int) error {
	for {
		slot, length, err := e.awaitOne()
		if err != nil {
			return err
		}
		var h wire.Header
		body, _, err := h.Parse(e.slots[slot][:length])
		if err != nil {
			return err
		}
		h.Kind = wire.KindReply
		n := e.compose(&h, body)
		if err := e.post(slot); err != nil {
			return err
		}
		if err := e.send(n, 0, inline); err != nil {
			return err
		}
	}
}

// compose writes a message into data and tells its length.
func (e *end) compose(h *wire.Header, body []byte) int {
	h.BodyLen = uint32(len(body))
	return len(append(h.Append(e.data[:0]), body...))
}

// awaitOne waits for a message and leaves its receive to the caller.
func (e *end) awaitOne() (slot, length int, err error) {
	for {
		n, err := e.cq.Wait(context.Background(), e.got[:1])
		if err != nil {
			return 0, 0, err
		}
		for i := range e.got[:n] {
			if e.got[i].Err != nil {
				return 0, 0, e.got[i].Err
			}
			if e.got[i].Op == fabric.OpRecv {
				return int(e.got[i].Context), e.got[i].Len, nil
			}
		}
	}
}
