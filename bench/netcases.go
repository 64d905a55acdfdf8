package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/msg"
)

// Net is bench net: what package msg reaches between two processes, beside what they reach without
// it.
type Net struct {
	Providers []string  // of those that Open knows
	Open      NetOpener // opens a provider for this side
	Control   string    // where the other process runs ServeNet
	Plain     string    // where it runs ServePlain
	Unix      string    // where it runs ServePlain on a unix socket
	Quick     bool      // only the cases that are First

	stats *control
}

// shmProvider and the others are what bench net has to tell apart.
const (
	tcpProvider   = "tcp"
	shmProvider   = "shm"
	verbsProvider = "verbs"
)

// bulkSize and bulkCalls are those of the large requests that are asked for by name.
const (
	bulkSize  = mib
	bulkCalls = 4
	bulkFewer = 2
)

// Cases are what is measured.
func (n *Net) Cases() []Case {
	cases := []Case{
		n.rtt(), n.rttSpin(), n.rate4k(), n.bulk(opGive), n.bulk(opTake), n.noncontiguous(64 * kib),
		n.layers(false), n.layers(true),
	}
	for _, op := range []uint16{opGive, opTake} {
		for _, depth := range []int{1, netDepth} {
			for _, size := range sweepSizes() {
				cases = append(cases, n.sweep(op, size, depth))
			}
		}
	}
	small := caller{op: opEcho, body: make([]byte, PingBytes), depth: 1}
	many, large := small, caller{op: opGive, size: bulkSize, depth: bulkCalls}
	many.depth = netDepth
	cases = append(cases, n.progress("progress-8", small, Latency),
		n.progress("progress-8-d32", many, Rate), n.progress("progress-1m", large, Bandwidth))
	for _, op := range []uint16{opGive, opTake} {
		for _, size := range []int{64 * kib, mib} {
			cases = append(cases, n.registration(op, size))
		}
	}
	for _, each := range []time.Duration{0, 5, 20, 100} {
		for workers := 1; workers <= 4; workers++ {
			cases = append(cases, n.service(each*time.Microsecond, workers))
		}
	}
	for piece := 512; piece <= 64*kib; piece *= 2 {
		cases = append(cases, n.crossover(piece))
	}
	return n.chosen(cases)
}

// chosen leaves out what nobody can do, and what does not fit into a quick run.
func (n *Net) chosen(cases []Case) []Case {
	kept := cases[:0]
	for _, c := range cases {
		if len(c.contenders()) > 0 && (c.First || !n.Quick) {
			kept = append(kept, c)
		}
	}
	return kept
}

// Close ends what the cases needed.
func (n *Net) Close() error { return n.stats.close() }

func netCase(name string, size, depth int, metric string) Case {
	return Case{Bench: "net", Name: name, Size: int64(size), Depth: depth, Metric: metric}
}

func (n *Net) has(provider string) bool {
	for _, p := range n.Providers {
		if p == provider {
			return true
		}
	}
	return false
}

// sockets adds the ceilings that are sockets: TCP always, unix where there is shared memory.
func (n *Net) sockets(c *Case, of func(addr string) Contender) {
	plain := of(n.Plain)
	plain.Provider, plain.Ceiling = PlainTCP, PlainTCP
	c.Others = append(c.Others, plain)
	if n.has(shmProvider) {
		local := of(n.Unix)
		local.Provider, local.Ceiling = PlainUnix, PlainTCP
		c.Others = append(c.Others, local)
	}
}

func (n *Net) rtt() Case {
	c := netCase("rtt-8", PingBytes, 1, Latency)
	c.First, c.About = true, "a request with 8 bytes and its answer, one at a time"
	n.sockets(&c, func(addr string) Contender { return plainPings(addr, PingBytes) })
	for _, p := range n.Providers {
		c.Others = append(c.Others, n.pings(p, spec{}, p))
		if p == shmProvider {
			c.Others = append(c.Others, n.pings(p, spec{Asleep: true}, p+", asleep"))
		}
	}
	return c
}

func (n *Net) rttSpin() Case {
	c := netCase("rtt-8-spin", PingBytes, 1, Latency)
	c.First, c.About = true, "the same with both sides polling all the time"
	n.sockets(&c, func(addr string) Contender { return plainPings(addr, PingBytes) })
	for _, p := range n.Providers {
		c.Others = append(c.Others, n.pings(p, spec{Progress: msg.ProgressPoll}, p))
	}
	return c
}

// pings is a small request and its answer.
func (n *Net) pings(provider string, s spec, name string) Contender {
	s.Do, s.Provider = doServe, provider
	call := &caller{n: n, spec: s, op: opEcho, body: make([]byte, PingBytes), depth: 1}
	c := call.contender(name)
	c.Ceiling = PlainTCP
	return n.costly(c, provider, func(ctx context.Context, d time.Duration) (moved, float64, error) {
		return n.counted(ctx, d, call)
	})
}

// bulk is large requests, whose data goes one way.
func (n *Net) bulk(op uint16) Case {
	name, what := "bulk-1m", "reply"
	if op == opTake {
		name, what = "bulk-1m-out", "request"
	}
	c := netCase(name, bulkSize, bulkCalls, Bandwidth)
	c.First = true
	c.About = "requests with 1 MiB of " + what + fmt.Sprintf(" data, %d under way", bulkCalls)
	stream := plainReads
	if op == opTake {
		stream = plainWrites
	}
	n.sockets(&c, func(addr string) Contender {
		return n.moves(Contender{Depth: 1}, tcpProvider, stream(addr, bulkSize))
	})
	if n.has(shmProvider) {
		copies := Contender{Provider: SharedCopy, Ceiling: SharedCopy, Depth: 2}
		c.Others = append(c.Others, n.moves(copies, shmProvider, n.sharedCopies(bulkSize)))
	}
	for _, p := range n.Providers {
		c.Others = append(c.Others, n.bulkBy(p, p, op, bulkCalls, false),
			n.bulkBy(p, fmt.Sprintf("%s, %d under way", p, bulkFewer), op, bulkFewer, false))
		if p == shmProvider && op == opTake {
			c.Others = append(c.Others, n.bulkBy(p, p+", touched", op, bulkCalls, true))
		}
	}
	return c
}

// bulkBy is one way of bulk. Over shared memory who gets reply data looks at it, as in the ceiling.
// Request data is copied by its receiver, and a socket's reader copies too; touched has the
// receiver look at it once more, which is the strictest reading of that ceiling.
func (n *Net) bulkBy(provider, name string, op uint16, depth int, touched bool) Contender {
	return n.bulkOf(spec{Do: doServe, Provider: provider, Touch: touched}, name, op, depth)
}

func (n *Net) bulkOf(s spec, name string, op uint16, depth int) Contender {
	provider := s.Provider
	call := &caller{
		n: n, spec: s, op: op, size: bulkSize, depth: depth,
		touch: provider == shmProvider && op == opGive,
	}
	c := call.contender(name)
	c.Ceiling = PlainTCP
	if provider == shmProvider {
		c.Ceiling = SharedCopy
	}
	return n.moves(c, provider, call.stream)
}

// ServeLadder has the other process serve package msg on several providers, best first, the last
// one being the base of the ladder, until Close. It returns the address.
func (n *Net) ServeLadder(ctx context.Context, above []string, base string) (string, error) {
	if n.stats == nil {
		c, err := dialControl(ctx, n.Control)
		if err != nil {
			return "", err
		}
		n.stats = c
	}
	a, err := n.stats.ask(spec{Do: doLadder, Provider: base, Also: above})
	return a.Addr, err
}
