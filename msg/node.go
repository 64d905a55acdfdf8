package msg

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/msg/internal/arenas"
	"github.com/sluice-storage/sluice/msg/internal/eager"
	"github.com/sluice-storage/sluice/msg/segment"
)

// rung is one provider that a node can use, with its limits: one step of package peer's ladder.
type rung struct {
	domain fabric.Domain
	caps   fabric.Caps
	limits Limits
}

// Place is an address of one provider.
type Place struct {
	Domain fabric.Domain // one of the node's; nil: Options.Domain
	Addr   string        // as the provider takes it
}

// Node is a process's part of the message layer: it dials, serves, and enforces time limits. Safe
// for concurrent use.
type Node struct {
	opts  Options
	rungs []*rung // best first

	lateFailures    atomic.Uint64
	woken           atomic.Uint64
	refused, silent logonce.Logger
	store           eager.Store // of the slots that are lent to clients
	arenas          arenas.Set

	chains  sync.Pool // of *segment.Chain
	waiters sync.Pool // of *wait.Count
	pollers sync.Pool // of *poller

	watchdog *progress.Watchdog[*progress.Duty]
	stop     context.CancelFunc // ends watchdog and sweeper
	ended    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	links   map[member]struct{}
	past    fabric.WaitCounts // of links that are gone
	servers map[closer]struct{}
}

// member is a connection, seen by the node. The sweep enforces its time limits, so that calls need
// no timers of their own.
type member interface {
	sweep(now time.Time)
	recheck() (ended bool)
	waits() fabric.WaitCounts
	Close() // ends it, and waits until its memory is released
}

// closer is a server, seen by the node.
type closer interface {
	Close(ctx context.Context) error
}

// NewNode makes a node on opts.Domain and opts.Domains.
func NewNode(opts Options) (*Node, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	n := &Node{
		opts: opts, watchdog: progress.NewWatchdog[*progress.Duty](),
		links: map[member]struct{}{}, servers: map[closer]struct{}{},
	}
	for _, d := range opts.Domains {
		caps := d.Caps()
		n.rungs = append(n.rungs, &rung{domain: d, caps: caps, limits: opts.limits(caps.Provider)})
	}
	slot := 0
	for _, r := range n.rungs {
		slot = max(slot, r.limits.EagerMax)
	}
	n.store.Open(eager.Options{Bytes: opts.Memory, SlotBytes: slot, Source: opts.Source,
		Attach: n.Attach, Detach: n.Detach})
	n.refused.Log, n.silent.Log = opts.Logger, opts.Logger
	n.chains.New = func() any { return &segment.Chain{WRs: make([]fabric.WR, 0, segment.ChainMax)} }
	n.waiters.New = func() any { return wait.NewCount() }
	n.pollers.New = func() any { return &poller{} }
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.ended.Go(func() { n.watchdog.Run(ctx) })
	n.ended.Go(func() { n.sweep(ctx) })
	return n, nil
}

// base is the provider of addresses that name none.
func (n *Node) base() *rung { return n.rungs[len(n.rungs)-1] }

// rungOf finds a domain of the node; nil is the last one.
func (n *Node) rungOf(d fabric.Domain) (*rung, error) {
	if d == nil {
		return n.base(), nil
	}
	for _, r := range n.rungs {
		if r.domain == d {
			return r, nil
		}
	}
	return nil, errs.Newf(errs.Invalid, "msg", d.Caps().Provider, "not a domain of this node")
}

// Close ends every connection and server of the node and waits until they are gone. Calls in
// progress fail with errs.Closed; handlers see their context end.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	servers, links := slices.Collect(maps.Keys(n.servers)), slices.Collect(maps.Keys(n.links))
	n.mu.Unlock()

	now, cancel := context.WithCancel(context.Background())
	cancel() // no time to drain
	var first error
	for _, s := range servers {
		if err := s.Close(now); first == nil && errs.KindOf(err) != errs.Canceled {
			first = err
		}
	}
	for _, l := range links {
		l.Close()
	}
	n.stop()
	n.ended.Wait()
	n.released(n.store.Close())
	return first
}

// released logs err: memory was not released.
func (n *Node) released(err error) {
	if err != nil {
		n.opts.Logger.Error("memory was not released", "err", err)
	}
}

// NodeStats are counters of a node.
type NodeStats struct {
	LateFailures uint64            // errors of requests that nobody waited for, one-way ones too
	Memory       eager.Stats       // of the slots that it lends
	Progress     Progress          // as Options say
	Waits        fabric.WaitCounts // of the goroutines that polled
	Woken        uint64            // replies whose caller slept while another goroutine polled
}

// Stats returns the node's counters.
func (n *Node) Stats() NodeStats {
	return NodeStats{
		LateFailures: n.lateFailures.Load(), Memory: n.store.Stats(), Progress: n.opts.Progress,
		Waits: n.waits(), Woken: n.woken.Load(),
	}
}

// waits adds up the queues of all links, also of those that are gone.
func (n *Node) waits() fabric.WaitCounts {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := n.past
	for l := range n.links {
		sum.Add(l.waits())
	}
	return sum
}

// adopt makes the node responsible for a link that is about to start.
func (n *Node) adopt(l member, name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errs.New(errs.Closed, "msg", name, nil)
	}
	n.links[l] = struct{}{}
	return nil
}

func (n *Node) forget(l member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.links[l]; ok {
		delete(n.links, l)
		n.past.Add(l.waits())
	}
}

// sweep checks all links a few times within the shortest limit.
func (n *Node) sweep(ctx context.Context) {
	o := &n.opts
	period := min(o.CallTimeout, o.PeerTimeout, o.KeepAlive, o.EagerIdle) / 8
	tick := time.NewTicker(min(max(period, time.Millisecond), 250*time.Millisecond))
	defer tick.Stop()
	var due []member
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			due = due[:0]
			n.mu.Lock()
			for l := range n.links {
				due = append(due, l)
			}
			n.mu.Unlock()
			for _, s := range due {
				s.sweep(now)
			}
		}
	}
}
