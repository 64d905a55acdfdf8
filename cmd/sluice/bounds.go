package main

import (
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	metaserver "github.com/sluice-storage/sluice/meta/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/unifier"
)

// Everything that bounds a process is derived in this file, by one function for each role, from the
// few knobs that the role has; what the functions return is what the process is started with, and
// what sluice bounds prints. Where a request may have to wait:
//
//	the client's credits     requests of one connection, and the bytes that they wait for
//	                         (msg.Options.Credits and Window)
//	the server's admission   requests and bytes. At an I/O server: of each kind of request, clients
//	                         in turn by bytes, so that loans and drafts never make anybody wait
//	                         who was let in. At the metadata service: so many run, connections in
//	                         turn.
//	the disk                 who uses the store. What is cached passes no third gate.
//
// Behind these only the send queue of a connection has a bound, which comes back as data moves.
// Bytes under way in the network have none of their own: they lie in memory that a gate has let in.
const (
	// creditsEach is how many requests one connection has under way. The server keeps a receive for
	// each of them: see connectionBytes.
	creditsEach = 64

	// callsMax is how many requests the metadata service runs at once, and how many an I/O server
	// runs of one client that is alone: those of four busy connections.
	callsMax = 4 * creditsEach

	// usualRequest is how much a request moves that is not small: what the kernel and QEMU send.
	usualRequest = 1 << 20

	// diskDepth is how many requests use a store at once: more than any disk works at.
	diskDepth = 64
)

// bound is one limit, for people and programs.
type bound struct {
	Name  string `json:"name"`
	Of    string `json:"of,omitempty"` // the bound that this one is a part of
	Bytes int64  `json:"bytes,omitempty"`
	Count int    `json:"count,omitempty"`
	Why   string `json:"why"`
}

// iodBounds are those of an I/O server.
type iodBounds struct {
	plan   memoryPlan
	serve  msg.ServeOptions
	limits server.Limits
	cache  unifier.Config // its sizes; the rest is for whoever starts it
}

// boundIod derives them from --memory, which plan divides, and --write-back.
func boundIod(plan memoryPlan, writeBack bool) iodBounds {
	b := iodBounds{
		plan: plan,
		// The gates of the I/O server are its admission: they know bytes. A credit stands for a call.
		serve: msg.ServeOptions{MaxConns: plan.conns, MaxCalls: -1,
			QuickAt: server.QuickAt, Announces: true},
		limits: server.Limits{
			// A client that is alone has half of a gate.
			Requests: 2 * callsMax,
			// As many as run.
			QueueRequests: callsMax,
			DiskRequests:  diskDepth, DiskBytes: diskDepth * usualRequest,
		},
		cache: unifier.Config{MemoryBytes: plan.cache},
	}
	if writeBack {
		b.cache.DirtyBytes = plan.dirty()
	}
	return b
}

// list is the bounds in words. The parts of memory add up to it, those of the cache to the cache
// but for less than a slab.
func (b *iodBounds) list() []bound {
	list := []bound{{Name: "memory", Bytes: b.plan.total, Why: "--memory; what follows is all of it"}}
	whys := map[string]string{
		"cache":       "what the others leave",
		"network":     "eager slots: a 64th",
		"connections": "receives and replies: an 8th",
		"pending":     "what the store has logged and not yet put in place: a 16th",
		"index":       "pages of the store's index, twice: an 8th",
		"heap":        "tables, goroutines, garbage: a 16th",
	}
	for _, p := range b.plan.parts() {
		list = append(list, bound{Name: p.name, Of: "memory", Bytes: p.bytes, Why: whys[p.name]})
	}
	s := b.cache.Shares()
	gates := b.limits.Bounds(s)
	list = append(list,
		bound{Name: "loans", Of: "cache", Bytes: s.Loans, Why: "units that reads hold: the rest"},
		bound{Name: "drafts", Of: "cache", Bytes: s.Drafts, Why: "writes under way: a quarter"},
		bound{Name: "direct", Of: "cache", Bytes: s.Rooms, Why: "requests past the cache: an 8th"},
		bound{Name: "dirty", Of: "cache", Bytes: s.Dirty, Why: "not yet written back: a quarter"},
		bound{Name: "fetch", Of: "cache", Bytes: s.Fetch, Why: "units being read: a 16th"},
		bound{Name: "conns", Of: "connections", Count: b.serve.MaxConns, Why: "of 512 KiB each"},
		bound{Name: "credits", Of: "conns", Count: creditsEach, Why: "requests of one connection"},
		bound{Name: "calls", Of: "conns", Count: b.serve.MaxConns * creditsEach,
			Why: "requests that are here, run or wait: one a credit"},
	)
	return append(list,
		gateBound("hits", "loans", &gates[0], "reads of what is cached: half, so that they never wait "+
			"for the others"),
		gateBound("misses", "loans", &gates[1], "reads of what is not: half"),
		gateBound("writes", "drafts", &gates[2], "all but two slabs: a write may begin inside of one"),
		gateBound("rooms", "direct", &gates[3], "all; a request has a window of 1 MiB"),
		gateBound("disk", "", &gates[4], "requests that use the store, of 1 MiB each"))
}

func gateBound(name, of string, g *server.Bound, why string) bound {
	return bound{Name: name, Of: of, Bytes: g.Bytes, Count: g.Count, Why: why}
}

// metaBounds are those of the metadata service.
type metaBounds struct {
	serve msg.ServeOptions
	kv    pebblekv.Options // its sizes
}

// boundMeta has no knob: names need little memory.
func boundMeta() metaBounds {
	return metaBounds{
		serve: msg.ServeOptions{MaxConns: 2048, MaxCalls: callsMax, Quick: metaserver.Quick},
		kv:    pebblekv.Options{CacheBytes: 16 << 20, MemtableBytes: 16 << 20},
	}
}

func (b *metaBounds) list() []bound {
	return []bound{
		{Name: "conns", Count: b.serve.MaxConns, Why: "connections"},
		{Name: "credits", Of: "conns", Count: creditsEach, Why: "requests of one connection"},
		{Name: "calls", Count: b.serve.MaxCalls, Why: "requests that run; others wait in turn"},
		{Name: "blocks", Bytes: b.kv.CacheBytes, Why: "cache of the key-value store"},
		{Name: "memtables", Bytes: 4 * int64(b.kv.MemtableBytes),
			Why: "changes in memory; commits wait while three of four are being written out"},
	}
}

// clientBounds are those of a mount, a block server or a tool.
type clientBounds struct {
	buffers int   // bytes
	retain  int64 // bytes
}

// boundClient has no knob. A process that serves others is given more buffers than a tool: room for
// the reads of a few busy programs or connections.
func boundClient(serves bool) clientBounds {
	b := clientBounds{buffers: 32 * usualRequest, retain: 96 * usualRequest}
	if serves {
		b.buffers *= 2
	}
	return b
}

func (b *clientBounds) list() []bound {
	return []bound{
		{Name: "credits", Count: creditsEach, Bytes: creditsEach * usualRequest,
			Why: "requests under way at one server, and the data that they wait for"},
		{Name: "buffers", Bytes: int64(b.buffers), Why: "data of callers that no server may reach"},
		{Name: "retain", Bytes: b.retain,
			Why: "writes that are gathered, and kept until they are synced"},
	}
}

// boundNBD has no knob: it is what a block server has besides what its client has.
func boundNBD() nbd.Config {
	const memory = 256 * usualRequest
	return nbd.Config{MemoryBytes: memory, ConnMemoryBytes: memory / 4, ConnRequests: 32,
		MaxConns: 4096}
}

func listNBD(c *nbd.Config) []bound {
	return []bound{
		{Name: "memory", Bytes: c.MemoryBytes, Why: "payloads of all connections"},
		{Name: "connection", Of: "memory", Bytes: c.ConnMemoryBytes,
			Why: "payloads of one connection: a quarter, so that a stalled one cannot hold all"},
		{Name: "requests", Count: c.ConnRequests, Why: "of one connection that run"},
		{Name: "conns", Count: c.MaxConns, Why: "connections"},
		{Name: "disks", Bytes: diskCacheUsual,
			Why: "files, disks and members in other modes than page, all together (--cache)"},
	}
}
