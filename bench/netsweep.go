package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sluice-storage/sluice/msg"
)

// This file is bench net's sweeps: by size and protocol, by who makes progress, by registration, by
// service time and workers.

// sweepSizes are 8 B to 8 MiB.
func sweepSizes() []int { return []int{8, 512, 4 * kib, 32 * kib, 256 * kib, mib, 8 * mib} }

// protocols are those that can carry size bytes: request data by all, reply data not eagerly.
func protocols(op uint16, size int) []string {
	var all []string
	if size <= wideInline {
		all = append(all, Inline)
	}
	if op == opTake && size <= wideEager {
		all = append(all, Eager)
	}
	return append(all, Rendezvous)
}

// sweep is one size, one way, at one depth, by every protocol.
func (n *Net) sweep(op uint16, size, depth int) Case {
	way, what := "in-", "reply"
	if op == opTake {
		way, what = "out-", "request"
	}
	name, metric := way+sizeName(size), Latency
	if depth > 1 {
		name, metric = fmt.Sprintf("%s-d%d", name, depth), Bandwidth
		if size < 64*kib {
			metric = Rate
		}
	}
	c := netCase(name, size, depth, metric)
	c.About = fmt.Sprintf("%s of %s data by each protocol, %d under way", sizeText(int64(size)),
		what, depth)
	n.sockets(&c, func(addr string) Contender {
		return n.plainSweep(addr, op, size, depth, metric)
	})
	for _, p := range n.Providers {
		for _, protocol := range protocols(op, size) {
			call := &caller{
				n: n, spec: spec{Do: doServe, Provider: p, Wide: true}, protocol: protocol, op: op,
				size: size, depth: depth,
			}
			ours := n.measure(call, p+", "+protocol, metric)
			ours.Ceiling = PlainTCP
			c.Others = append(c.Others, ours)
		}
	}
	return c
}

// plainSweep is the ceiling of a sweep.
func (n *Net) plainSweep(addr string, op uint16, size, depth int, metric string) Contender {
	out, in := askBytes, size
	if op == opTake {
		out, in = size, askBytes
	}
	switch metric {
	case Rate:
		return n.rates(Contender{Depth: depth}, tcpProvider, plainTrades(addr, out, in, depth))
	case Bandwidth:
		return n.moves(Contender{Depth: depth}, tcpProvider, plainTrades(addr, out, in, depth))
	}
	return plainOneWay(addr, op, size)
}

// plainOneWay measures size bytes one way and askBytes the other.
func plainOneWay(addr string, op uint16, size int) Contender {
	what, out, in := plainAnswer, askBytes, size
	if op == opTake {
		what, out, in = plainTake, size, askBytes
	}
	p := &plain{addr: addr, size: size, what: what}
	measure := func(ctx context.Context, d time.Duration) (float64, error) {
		if err := p.open(ctx); err != nil {
			return 0, err
		}
		buf := touched(max(size, askBytes))
		return MedianLatency(ctx, d, func() error {
			if _, err := p.conn.Write(buf[:out]); err != nil {
				return err
			}
			_, err := io.ReadFull(p.conn, buf[:in])
			return err
		})
	}
	return Contender{Depth: 1, Measure: measure, Close: p.close}
}

// rate4k is small reads, many at once.
func (n *Net) rate4k() Case {
	const size = 4 * kib
	c := netCase("rate-4k-d32", size, netDepth, Rate)
	c.First, c.About = true, "requests with 4 KiB of reply data, 32 under way"
	n.sockets(&c, func(addr string) Contender {
		asks := plainTrades(addr, askBytes, size, netDepth)
		return n.rates(Contender{Depth: netDepth}, tcpProvider, asks)
	})
	for _, p := range n.Providers {
		call := &caller{
			n: n, spec: spec{Do: doServe, Provider: p}, op: opGive, size: size, depth: netDepth,
		}
		ours := call.contender(p)
		ours.Ceiling, ours.Protocol = PlainTCP, Inline
		c.Others = append(c.Others, n.rates(ours, p, call.stream))
	}
	return c
}

// progress holds the three ways of progress against each other.
func (n *Net) progress(name string, call caller, metric string) Case {
	c := netCase(name, max(call.size, len(call.body)), call.depth, metric)
	c.About = "who makes progress: any goroutine, callers that poll, a thread of its own"
	for _, p := range n.Providers {
		for _, by := range []msg.Progress{msg.ProgressAny, msg.ProgressPoll, msg.ProgressThread} {
			one := call
			one.n, one.spec = n, spec{Do: doServe, Provider: p, Progress: by}
			ours := n.measure(&one, p+", "+by.String(), metric)
			ours.Ceiling = p + ", " + msg.ProgressAny.String()
			c.Others = append(c.Others, ours)
		}
	}
	return c
}

// measure is a caller's contender for a metric.
func (n *Net) measure(call *caller, name, metric string) Contender {
	c := call.contender(name)
	switch metric {
	case Bandwidth:
		return n.moves(c, call.spec.Provider, call.stream)
	case Rate:
		return n.rates(c, call.spec.Provider, call.stream)
	}
	return n.costly(c, call.spec.Provider, func(ctx context.Context, d time.Duration) (moved,
		float64, error) {
		return n.counted(ctx, d, call)
	})
}

// registration holds memory that is registered already against memory that is not.
func (n *Net) registration(op uint16, size int) Case {
	way := "in"
	if op == opTake {
		way = "out"
	}
	c := netCase(fmt.Sprintf("reg-%s-%s", way, sizeName(size)), size, 1, Latency)
	c.About = "registration: an attached arena, a cache's hit, registered anew, none at all"
	for _, p := range n.Providers {
		for _, m := range []struct {
			name   string
			memory memoryOf
		}{{"arena", arenaMemory}, {"hit", cachedMemory}, {"miss", freshMemory}, {"none", plainMemory}} {
			call := &caller{
				n: n, spec: spec{Do: doServe, Provider: p}, op: op, size: size, depth: 1,
				memory: m.memory, protocol: Rendezvous,
			}
			ours := n.measure(call, p+", "+m.name, Latency)
			ours.Ceiling = p + ", arena"
			c.Others = append(c.Others, ours)
		}
	}
	return c
}

// serviceCalls is how many requests are under way while handlers work.
const serviceCalls = 8

// service has handlers that take their time.
func (n *Net) service(each time.Duration, workers int) Case {
	name := fmt.Sprintf("service-%dus-w%d", each.Microseconds(), workers)
	c := netCase(name, PingBytes, serviceCalls, Rate)
	c.About = fmt.Sprintf("handlers work for %v, at most %d at once: polling against threads", each,
		workers)
	for _, p := range n.Providers {
		for _, by := range []msg.Progress{msg.ProgressAny, msg.ProgressPoll, msg.ProgressThread} {
			call := &caller{
				n: n, spec: spec{Do: doServe, Provider: p, Progress: by, Workers: workers},
				op: opWork, body: nanoseconds(each), depth: serviceCalls,
			}
			ours := n.measure(call, p+", "+by.String(), Rate)
			ours.Ceiling = p + ", " + msg.ProgressAny.String()
			c.Others = append(c.Others, ours)
		}
	}
	return c
}
