package bench

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/wire"
)

// This file is where the time of an 8-byte round trip goes. Each layer is measured on top of those
// before it.

// The layers.
const (
	layerBase      = "base"      // the fabric alone: a message of 8 bytes there and back
	layerHeader    = "header"    // with a wire.Header before it, written and read at both sides
	layerAdaption  = "adaption"  // through a hook that wraps the provider and counts
	layerProtocol  = "protocol"  // package msg: credits, slots, deadlines, a handler
	layerThreading = "threading" // polled by a thread of its own, handled by a worker
	layerMsg       = "msg"       // package msg on the provider itself, without a hook
)

// ServeFabric's part: a message with a header is answered with one.
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

// headerTrip is a message with a header there and back.
func (e *end) headerTrip(id uint64, body []byte, inline int) error {
	h := wire.Header{Kind: wire.KindRequest, Op: opEcho, RequestID: id}
	if err := e.send(e.compose(&h, body), 0, inline); err != nil {
		return err
	}
	slot, length, err := e.awaitOne()
	if err != nil {
		return err
	}
	var back wire.Header
	rest, _, err := back.Parse(e.slots[slot][:length])
	if err == nil && (back.RequestID != id || len(rest) != len(body)) {
		err = errs.Newf(errs.Protocol, "bench net", "", "another answer")
	}
	if err != nil {
		return err
	}
	return e.post(slot)
}

// fabricTrip is this side of a contender that uses the fabric alone.
type fabricTrip struct {
	n    *Net
	spec spec
	role role

	control  *control
	provider Provider
	link     link
	trips    uint64
}

func (f *fabricTrip) open(ctx context.Context) (err error) {
	if f.link.end != nil {
		return nil
	}
	if f.control, err = dialControl(ctx, f.n.Control); err != nil {
		return err
	}
	a, err := f.control.ask(f.spec)
	if err != nil {
		return err
	}
	d, err := f.spec.open(f.n.Open)
	if err != nil {
		return err
	}
	f.provider = Provider{Name: f.spec.Provider, Domain: d.Domain, Addr: a.Addr}
	f.link = link{p: &f.provider, role: f.role, dataBytes: wire.HeaderBytes + f.role.size}
	return f.link.open(ctx)
}

func (f *fabricTrip) measure(ctx context.Context, d time.Duration) (float64, error) {
	if err := f.open(ctx); err != nil {
		return 0, err
	}
	e, inline := f.link.end, f.provider.Domain.Caps().MaxInline
	body := make([]byte, f.role.size)
	return MedianLatency(ctx, d, func() error {
		if f.role.mode == modeHeader {
			f.trips++
			return e.headerTrip(f.trips, body, inline)
		}
		if err := e.send(f.role.size, 0, inline); err != nil {
			return err
		}
		_, _, _, err := e.awaitMessages()
		return err
	})
}

func (f *fabricTrip) close() error {
	err := f.link.close()
	if f.provider.Domain != nil {
		err = errors.Join(err, f.provider.Domain.Close())
	}
	return errors.Join(err, f.control.close())
}

// layers is a case with all layers of all providers. spin has everybody poll.
func (n *Net) layers(spin bool) Case {
	name, about := "layers-8", "an 8-byte round trip, layer by layer"
	if spin {
		name, about = name+"-spin", about+", polling"
	}
	c := netCase(name, PingBytes, 1, Latency)
	c.About = about
	for _, p := range n.Providers {
		base := p + ", " + layerBase
		trip := func(layer string, mode int, metered bool) Contender {
			f := &fabricTrip{
				n: n, role: role{mode: mode, size: PingBytes, spin: spin},
				spec: spec{Do: doFabric, Provider: p, Metered: metered},
			}
			return Contender{
				Provider: p + ", " + layer, Depth: 1, Ceiling: base, Measure: f.measure,
				Optional: p == verbsProvider, Close: f.close,
			}
		}
		request := func(layer string, progress msg.Progress, metered bool) Contender {
			s := spec{Progress: progress, Metered: metered}
			one := n.pings(p, s, p+", "+layer)
			one.Ceiling = base
			return one
		}
		progress := msg.ProgressAny
		if spin {
			progress = msg.ProgressPoll
		}
		c.Others = append(c.Others,
			trip(layerBase, modeEcho, false), trip(layerHeader, modeHeader, false),
			trip(layerAdaption, modeHeader, true), request(layerProtocol, progress, true),
			request(layerThreading, msg.ProgressThread, true), request(layerMsg, progress, false))
	}
	return c
}
