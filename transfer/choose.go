package transfer

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
)

// Which driver is used is a matter of the pair of hosts and of the size of a block. Where there is
// little to move the order of the ladder decides: shared memory, devices, tcp. Where there is much,
// each driver that connects is measured with blocks as the transfer has them, for some
// milliseconds, and the fastest is taken.

// Choice is one driver that could have been taken.
type Choice struct {
	Driver string  `json:"driver"`
	Addr   string  `json:"addr,omitempty"`
	Rate   float64 `json:"bytes_per_second,omitempty"` // 0: not measured
	Taken  bool    `json:"taken"`
	Why    string  `json:"why,omitempty"` // not
}

const (
	// probeFrom is how much must be there to move for a measurement to pay: it takes as long as some
	// ten MiB do.
	probeFrom = 64 << 20

	// probeTime is how long one driver is measured for, about; probeMax bounds what a peer may have
	// a service do.
	probeTime = 40 * time.Millisecond
	probeMax  = 20 * time.Second
)

// drain receives count messages, several at once, and forgets them.
func drain(ctx context.Context, h exio.Handle, buffers []buffer, count int) error {
	type end struct {
		of  *buffer
		err error
	}
	done := make(chan end, len(buffers))
	left, open := count, 0
	begin := func(b *buffer) error {
		if left == 0 {
			return nil
		}
		left--
		open++
		return h.Read(&exio.Op{Tag: exio.AnyTag, Pieces: b.pieces, Parent: b.all,
			Done: func(ev exio.Event) { done <- end{b, ev.Err} }})
	}
	for i := range buffers {
		if err := begin(&buffers[i]); err != nil {
			return err
		}
	}
	for open > 0 {
		select {
		case e := <-done:
			open--
			if e.err != nil {
				return e.err
			}
			if err := begin(e.of); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// probe measures a driver: bytes in a second.
func (c *Client) probe(ctx context.Context, index int, h exio.Handle, o Options,
	buffers []buffer) (float64, error) {

	ctx, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	run := func(count int) (time.Duration, error) {
		err := c.send(ctx, message{kind: msgProbe, handle: index, moving: o, count: count})
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		if err := pour(ctx, h, buffers, count); err != nil {
			return 0, err
		}
		_, err = c.expect(ctx, msgProbed)
		return time.Since(begin), err
	}
	took, err := run(2 * o.Depth) // memory is touched, connections are warm
	if err != nil {
		return 0, err
	}
	each := max(took/time.Duration(2*o.Depth), time.Microsecond)
	count := max(4*o.Depth, min(int(probeTime/each), 64<<20/o.Block+1))
	if took, err = run(count); err != nil {
		return 0, err
	}
	return float64(count) * float64(o.Block) / took.Seconds(), nil
}

// pour writes count messages, as many at once as there are buffers.
func pour(ctx context.Context, h exio.Handle, buffers []buffer, count int) error {
	done := make(chan error, len(buffers))
	open := 0
	for i := range count {
		if open == len(buffers) {
			select {
			case err := <-done:
				if err != nil {
					return err
				}
				open--
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b := &buffers[i%len(buffers)] // it is only read: two messages may share it
		op := &exio.Op{Tag: uint64(i), Pieces: b.pieces, Parent: b.all}
		op.Done = func(ev exio.Event) { done <- ev.Err }
		if err := h.Write(op); err != nil {
			return err
		}
		open++
	}
	for range open {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// choose connects and takes a driver: asked, if it is not empty.
func (c *Client) choose(ctx context.Context, asked string, o Options, size int64) error {
	var open []candidate
	for _, of := range c.offers {
		if asked != "" && of.driver != asked {
			continue
		}
		if len(open) == handlesMax {
			break
		}
		h, err := c.connect(ctx, of, len(open)) // a handle's index is its place among the open ones
		if err != nil {
			c.Choices = append(c.Choices, Choice{Driver: of.driver, Addr: of.addr, Why: err.Error()})
			continue
		}
		open = append(open, candidate{of, h})
		if asked != "" || size < probeFrom {
			break // the first that connects is the best, or the one that was asked for
		}
	}
	if len(open) == 0 {
		return errs.Newf(errs.Unsupported, "transfer", c.addr, "no driver connects%s", c.whys(asked))
	}
	return c.compare(ctx, open, o)
}

// candidate is a connection that could be taken.
type candidate struct {
	offer
	h exio.Handle
}

// compare measures connections, if there are several, and takes the fastest.
func (c *Client) compare(ctx context.Context, open []candidate, o Options) error {
	rates := make([]float64, len(open))
	best := 0
	if len(open) > 1 {
		leave := func() {
			for _, x := range open {
				_ = x.h.Close() // nothing was begun by them
			}
		}
		buffers, err := newBuffers(c.memory, o)
		if err != nil {
			leave()
			return err
		}
		defer freeBuffers(c.memory, buffers)
		for i, x := range open {
			if rates[i], err = c.probe(ctx, i, x.h, o, buffers); err != nil {
				leave()
				return errs.Wrap("transfer: measuring "+x.driver, x.addr, err)
			}
			if rates[i] > rates[best] {
				best = i
			}
		}
	}
	for i, x := range open {
		ch := Choice{Driver: x.driver, Addr: x.addr, Rate: rates[i], Taken: i == best}
		if i != best {
			ch.Why = "slower"
			_ = x.h.Close()
		}
		c.Choices = append(c.Choices, ch)
	}
	c.data, c.index = open[best].h, best
	return nil
}
