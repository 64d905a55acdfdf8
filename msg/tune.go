package msg

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
)

// Limits that Tune considers at most, and that nodes for it are made with.
const (
	tuneInline = 64 << 10
	tuneEager  = 256 << 10
)

// TuneOptions say how exactly Tune measures.
type TuneOptions struct {
	// Calls is how many calls a measurement consists of; the median counts. Default 51.
	Calls int

	// Large, in bytes, is the transfer by which units are compared. Default 8 MiB.
	Large int

	// Source is where the memory comes from that is sent. Default nil: anonymous memory.
	Source mem.Source

	// Seen, if not nil, is told of every measurement.
	Seen func(TuneSample)
}

// TuneSample is the median time of requests with so many bytes of data.
type TuneSample struct {
	Bytes    int
	Protocol string // inline, eager or rendezvous
	Unit     int    // in bytes; 0: the node's
	Took     time.Duration
}

func (o TuneOptions) withDefaults() TuneOptions {
	o.Calls, o.Large = or(o.Calls, 51), or(o.Large, 8<<20)
	return o
}

// ForTuning makes options of a node that Tune can measure with: all limits as large as they can
// become.
func (o Options) ForTuning() Options {
	o.InlineMax, o.EagerMax, o.Limits = tuneInline, tuneEager, nil
	o.BodyMax = 4096
	o.Credits = or(min(o.Credits, 8), 8)
	o.Memory = max(o.Memory, 32<<20)
	return o
}

// Sink is the handler that Tune needs at the server: it takes what it is sent and sends zeros.
type Sink struct{}

// Serve implements Handler. The body may name a unit.
func (Sink) Serve(ctx context.Context, c *Call) {
	if b := c.Body(); len(b) == 4 {
		c.unit = min(max(int(binary.BigEndian.Uint32(b)), minUnit), c.s.rung.limits.Unit)
	}
	take := func(int64, []byte) error { return nil }
	zero := func(_ int64, b []byte) error {
		clear(b)
		return nil
	}
	err := c.PullUnits(ctx, 0, c.OutLen(), take)
	if err == nil {
		err = c.PushUnits(ctx, 0, c.InLen(), zero)
	}
	if err != nil {
		_ = c.Fail(err)
		return
	}
	_ = c.Reply(nil, c.InLen())
}

// Tune measures where one protocol gives way to the next, over a connection between two nodes made
// with Options.ForTuning whose server runs Sink: each size is sent by each protocol that can carry
// it, and the fastest wins. The answer holds for the provider of the connection on these hosts; the
// limits that it gives are good for Options.Limits.
func Tune(ctx context.Context, c *Conn, opts TuneOptions) (Limits, error) {
	t := tuner{conn: c, opts: opts.withDefaults()}
	arena, err := mem.NewArena(max(t.opts.Large, tuneEager), t.opts.Source)
	if err != nil {
		return Limits{}, err
	}
	defer arena.Close()
	if err := arena.Attach(c.rung.domain); err != nil {
		return Limits{}, err
	}
	t.sge = fabric.Sge{Reg: arena.RegionOf(c.rung.domain), Buf: arena.Bytes()}
	if err := t.warm(ctx); err != nil {
		return Limits{}, err
	}
	var l Limits
	if l.InlineMax, l.EagerMax, err = t.small(ctx); err == nil {
		l.Unit, err = t.large(ctx)
	}
	return l, errs.Wrap("msg.Tune", c.name, err)
}

type tuner struct {
	conn *Conn
	opts TuneOptions
	sge  fabric.Sge
}

// protocol is how a request's data travels.
type protocol uint8

const (
	protocolAny protocol = iota // as the limits say
	protocolInline
	protocolEager
	protocolRendezvous
)

func (p protocol) String() string {
	switch p {
	case protocolInline:
		return "inline"
	case protocolEager:
		return "eager"
	case protocolRendezvous:
		return "rendezvous"
	}
	return "any"
}

// warm gets slots and wakes everything up.
func (t *tuner) warm(ctx context.Context) error {
	for range 20 {
		if _, err := t.once(ctx, 32<<10, protocolEager, 0); err != nil {
			return err
		}
	}
	return nil
}

// small finds the limits of inline and eager data. Sizes are tried from small to large; a protocol
// that has lost twice in a row does not come back.
func (t *tuner) small(ctx context.Context) (inline, eager int, err error) {
	inlineLost, eagerLost := 0, 0
	for n := 512; n <= tuneEager; n *= 2 {
		ways := []way{{p: protocolInline}, {p: protocolEager}, {p: protocolRendezvous}}
		if n > t.conn.inlineRoom() {
			ways = ways[1:]
		}
		if err := t.medians(ctx, n, t.opts.Calls, ways); err != nil {
			return 0, 0, err
		}
		took := [protocolRendezvous + 1]time.Duration{protocolInline: time.Hour}
		for _, w := range ways {
			took[w.p] = w.took
		}
		if took[protocolInline] <= min(took[protocolEager], took[protocolRendezvous]) {
			if inlineLost < 2 {
				inline, inlineLost = n, 0
			}
		} else {
			inlineLost++
		}
		if took[protocolEager] <= took[protocolRendezvous] {
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
		ways[i] = way{p: protocolRendezvous, unit: unit}
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
	p    protocol
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
			t.opts.Seen(TuneSample{Bytes: n, Protocol: w.p.String(), Unit: w.unit, Took: w.took})
		}
	}
	return nil
}

// once times one request with n bytes of data.
func (t *tuner) once(ctx context.Context, n int, p protocol, unit int) (time.Duration, error) {
	req := Request{Out: &Memory{
		Windows: []fabric.Sge{{Reg: t.sge.Reg, Buf: t.sge.Buf[:n:n]}}, Access: seg.Contig(0, int64(n)),
	}, by: p}
	if unit > 0 {
		req.Body = binary.BigEndian.AppendUint32(nil, uint32(unit))
	}
	start := time.Now()
	err := t.conn.Call(ctx, &req, &Reply{})
	return time.Since(start), err
}
