// Package tune measures at which sizes one protocol of package msg becomes faster than another:
// data inside the message, through an eager slot, by rendezvous. The result is valid for one
// provider on these hosts and can be put into msg.Options.Limits; tune does not store it. `sluice
// bench tune` runs it. Read Measure first.
package tune

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
)

// Limits that are considered at most, and that nodes for measuring are made with.
const (
	inlineMax = 64 << 10
	eagerMax  = 256 << 10
)

// Options say how exactly Measure measures.
type Options struct {
	// Calls is how many calls a measurement consists of; the median counts. Default 51.
	Calls int

	// Large, in bytes, is the transfer by which units are compared. Default 8 MiB.
	Large int

	// Source is where the memory comes from that is sent. Default nil: anonymous memory.
	Source mem.Source

	// Seen, if not nil, is told of every measurement.
	Seen func(Sample)
}

// Sample is the median time of requests with so many bytes of data.
type Sample struct {
	Bytes    int
	Protocol string // inline, eager or rendezvous
	Unit     int    // in bytes; 0: the node's
	Took     time.Duration
}

func (o Options) withDefaults() Options {
	if o.Calls == 0 {
		o.Calls = 51
	}
	if o.Large == 0 {
		o.Large = 8 << 20
	}
	return o
}

// Node makes options of a node that Measure can measure with: all limits as large as they can
// become.
func Node(o msg.Options) msg.Options {
	o.InlineMax, o.EagerMax, o.Limits = inlineMax, eagerMax, nil
	o.BodyMax = 4096
	if o.Credits == 0 || o.Credits > credits {
		o.Credits = credits
	}
	o.Memory = max(o.Memory, 32<<20)
	return o
}

// credits are as many as measurements need, one after the other.
const credits = 8

// Sink is the handler that Measure needs at the server: it takes what it is sent and sends zeros.
// All requests use the same memory, since its content does not matter.
type Sink struct{ arena *mem.Arena }

// NewSink makes a handler for measurements of up to Options.Large bytes.
func NewSink(node *msg.Node, opts Options) (*Sink, error) {
	opts = opts.withDefaults()
	arena, err := mem.NewArena(max(opts.Large, eagerMax), opts.Source)
	if err != nil {
		return nil, err
	}
	if err := node.Attach(arena); err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	return &Sink{arena}, nil
}

// Close frees the memory. The node must be closed before.
func (s *Sink) Close() error { return s.arena.Close() }

// Serve implements msg.Handler. The body may name a unit.
func (s *Sink) Serve(ctx context.Context, c *msg.Call) {
	if b := c.Body(); len(b) == 4 {
		c.SetUnit(int(binary.BigEndian.Uint32(b)))
	}
	if room := int64(len(s.arena.Bytes())); max(c.OutLen(), c.InLen()) > room {
		_ = c.Fail(errs.Newf(errs.TooBig, "tune", "", "more than %d bytes", room))
		return
	}
	reg := s.arena.RegionOf(c.Domain())
	part := func(n int64) []fabric.Sge {
		return []fabric.Sge{{Reg: reg, Buf: s.arena.Bytes()[:n]}}
	}
	err := c.Pull(ctx, 0, part(c.OutLen()))
	if err == nil {
		err = c.Push(ctx, 0, part(c.InLen()))
	}
	if err != nil {
		_ = c.Fail(err)
		return
	}
	_ = c.Reply(nil, c.InLen())
}

// Measure finds the limits over a connection between two nodes made with the options of Node, whose
// server runs Sink: each size is sent by each protocol that can carry it, and the fastest wins.
func Measure(ctx context.Context, c *msg.Conn, opts Options) (msg.Limits, error) {
	t := tuner{conn: c, opts: opts.withDefaults()}
	arena, err := mem.NewArena(max(t.opts.Large, eagerMax), t.opts.Source)
	if err != nil {
		return msg.Limits{}, err
	}
	defer arena.Close()
	if err := arena.Attach(c.Domain()); err != nil {
		return msg.Limits{}, err
	}
	t.sge = fabric.Sge{Reg: arena.RegionOf(c.Domain()), Buf: arena.Bytes()}
	if err := t.warm(ctx); err != nil {
		return msg.Limits{}, err
	}
	var l msg.Limits
	if l.InlineMax, l.EagerMax, err = t.small(ctx); err == nil {
		l.Unit, err = t.large(ctx)
	}
	return l, errs.Wrap("tune.Measure", c.Provider(), err)
}

type tuner struct {
	conn *msg.Conn
	opts Options
	sge  fabric.Sge
}

// warm gets slots and wakes everything up.
func (t *tuner) warm(ctx context.Context) error {
	for range 20 {
		if _, err := t.once(ctx, 32<<10, msg.Eager, 0); err != nil {
			return err
		}
	}
	return nil
}

// small finds the limits of inline and eager data. Sizes are tried from small to large; a protocol
// that has lost twice in a row does not come back.
func (t *tuner) small(ctx context.Context) (inline, eager int, err error) {
	inlineLost, eagerLost := 0, 0
	for n := 512; n <= eagerMax; n *= 2 {
		ways := []way{{p: msg.Inline}, {p: msg.Eager}, {p: msg.Rendezvous}}
		if n > t.conn.InlineRoom() {
			ways = ways[1:]
		}
		if err := t.medians(ctx, n, t.opts.Calls, ways); err != nil {
			return 0, 0, err
		}
		took := [msg.Rendezvous + 1]time.Duration{msg.Inline: time.Hour}
		for _, w := range ways {
			took[w.p] = w.took
		}
		if took[msg.Inline] <= min(took[msg.Eager], took[msg.Rendezvous]) {
			if inlineLost < 2 {
				inline, inlineLost = n, 0
			}
		} else {
			inlineLost++
		}
		if took[msg.Eager] <= took[msg.Rendezvous] {
			if eagerLost < 2 {
				eager, eagerLost = n, 0
			}
		} else {
			eagerLost++
		}
	}
	if eager <= inline {
		eager = -1 // none
	}
	return max(inline, 512), eager, nil
}

// large finds the smallest unit that is at most a twentieth slower than the best.
func (t *tuner) large(ctx context.Context) (int, error) {
	units := []int{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20}
	ways := make([]way, len(units))
	for i, unit := range units {
		ways[i] = way{p: msg.Rendezvous, unit: unit}
	}
	if err := t.medians(ctx, t.opts.Large, max(t.opts.Calls/5, 3), ways); err != nil {
		return 0, err
	}
	best := time.Duration(1 << 62)
	for i := range ways {
		best = min(best, ways[i].took)
	}
	for i := range units {
		if ways[i].took <= best+best/20 {
			return units[i], nil
		}
	}
	return units[len(units)-1], nil
}

// way is one of several to carry the same data.
type way struct {
	p    msg.Protocol
	unit int
	all  []time.Duration
	took time.Duration // the median
}

// medians measures the ways in turns, so that what disturbs the host disturbs all of them.
func (t *tuner) medians(ctx context.Context, n, calls int, ways []way) error {
	for range calls {
		for i := range ways {
			w := &ways[i]
			d, err := t.once(ctx, n, w.p, w.unit)
			if err != nil {
				return err
			}
			w.all = append(w.all, d)
		}
	}
	for i := range ways {
		w := &ways[i]
		slices.Sort(w.all)
		w.took = w.all[len(w.all)/2]
		if t.opts.Seen != nil {
			t.opts.Seen(Sample{Bytes: n, Protocol: w.p.String(), Unit: w.unit, Took: w.took})
		}
	}
	return nil
}

// once times one request with n bytes of data.
func (t *tuner) once(ctx context.Context, n int, p msg.Protocol, unit int) (time.Duration, error) {
	req := msg.Request{Out: &msg.Memory{
		Windows: []fabric.Sge{{Reg: t.sge.Reg, Buf: t.sge.Buf[:n:n]}}, Access: seg.Contig(0, int64(n)),
	}, By: p}
	if unit > 0 {
		req.Body = binary.BigEndian.AppendUint32(nil, uint32(unit))
	}
	start := time.Now()
	err := t.conn.Call(ctx, &req, &msg.Reply{})
	return time.Since(start), err
}
