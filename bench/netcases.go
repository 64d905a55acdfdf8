package bench

import (
	"context"
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
)

// Cases are what is measured.
func (n *Net) Cases() []Case {
	cases := []Case{n.rtt(), n.rttSpin(), n.bulk(opGive), n.bulk(opTake)}
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
	c.First = true
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
	c.First = true
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
	name := "bulk-1m"
	if op == opTake {
		name = "bulk-1m-out"
	}
	c := netCase(name, bulkSize, bulkCalls, Bandwidth)
	c.First = true
	stream := plainReads
	if op == opTake {
		stream = plainWrites
	}
	n.sockets(&c, func(addr string) Contender {
		return n.moves(Contender{Depth: 1}, "", stream(addr, bulkSize))
	})
	if n.has(shmProvider) {
		copies := Contender{Provider: SharedCopy, Ceiling: SharedCopy, Depth: 2}
		c.Others = append(c.Others, n.moves(copies, "", n.sharedCopies(bulkSize)))
	}
	for _, p := range n.Providers {
		s := spec{Do: doServe, Provider: p, Touch: p == shmProvider}
		call := &caller{n: n, spec: s, op: op, size: bulkSize, depth: bulkCalls}
		ours := call.contender(p)
		ours.Ceiling = PlainTCP
		if p == shmProvider {
			ours.Ceiling = SharedCopy
		}
		c.Others = append(c.Others, n.moves(ours, p, call.stream))
	}
	return c
}
