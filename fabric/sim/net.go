// Package sim is a fabric provider inside one process: a Net connects any number of domains, and
// what it does depends only on its seed and on the order of the calls to it. Protocol tests run on
// it. It has no goroutines and no clock.
//
// Free-running (MaxDelay 0): Post carries out its requests before it returns. With MaxDelay
// requests wait in virtual time, which advances step by step in CQ.Poll and CQ.Wait; each step
// carries out one piece of work that the contract allows next, chosen by the seed. So completions
// of different endpoints, Reads, Writes through different grants, and the moment at which a Write
// appears come in any legal order, and a Break leaves any legal mixture of done and not done
// behind.
//
// It does no real networking and is not fast: one lock guards a whole Net.
//
// Read net.go first (the steps), then ep.go, msg.go and rma.go (what a step does), cq.go (which
// takes the steps) and cm.go (connecting).
package sim

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Options of a Net. The zero value is a free-running net that never breaks.
type Options struct {
	// Seed decides delays, choices, keys and breaks.
	Seed uint64

	// MaxDelay, in steps, is the longest that a piece of work waits before it may be chosen.
	// 0: free-running.
	MaxDelay int

	// BreakOneIn breaks a connection after each piece of work with probability 1/BreakOneIn.
	// 0: never.
	BreakOneIn int

	// RegionsOnly makes Caps.AnyMemory false, as on RDMA devices.
	RegionsOnly bool

	// RefusalEnds makes refused access end the connection, as RDMA devices do.
	RefusalEnds bool

	// Limits replaces the default of the Caps' numbers where not zero. The other fields are not
	// taken from it.
	Limits fabric.Caps
}

func (o Options) withDefaults() Options {
	l := &o.Limits
	for _, f := range []struct {
		field *int
		value int
	}{
		{&l.MaxSge, 32}, {&l.MaxMessage, 1 << 20}, {&l.MaxTransfer, 1 << 30},
		{&l.MaxInline, 512}, {&l.QueueDepth, 4096}, {&l.ReadDepth, 16},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	l.Provider = "sim"
	l.AnyMemory, l.RefusalEnds = !o.RegionsOnly, o.RefusalEnds
	l.SameHost, l.PostMoves, l.AnyMemoryCopied = false, false, false
	l.RegistersAny, l.PackBelow = true, 0
	return o
}

func (o Options) validate() {
	l := o.Limits
	smallest := min(l.MaxSge, l.MaxMessage, l.MaxTransfer, l.MaxInline, l.QueueDepth, l.ReadDepth)
	invariant.Check(o.MaxDelay >= 0 && o.BreakOneIn >= 0 && smallest > 0, "negative sim option")
	invariant.Check(l.ReadDepth <= provider.ReadDepth, "sim: ReadDepth is out of range")
}

// Net is a network of simulated domains. Safe for concurrent use.
type Net struct {
	opts Options

	mu        sync.Mutex
	rng       *rand.Rand
	listeners map[string]*listener
	eps       []*endpoint // alive, oldest first
	waiting   map[*cq]int // queues with waiters
	tick      uint64      // virtual time
	names     int         // last number given to a listener, domain or endpoint
	grants    map[uint64]grant
	actions   []action // where the next ones are listed
}

// New makes an empty net.
func New(opts Options) *Net {
	opts = opts.withDefaults()
	opts.validate()
	return &Net{
		opts:      opts,
		rng:       rand.New(rand.NewPCG(opts.Seed, 0x736c75696365)),
		listeners: map[string]*listener{},
		waiting:   map[*cq]int{},
		grants:    map[uint64]grant{},
	}
}

// Break cuts the connection of ep at once, as a cable would: everything pending at both ends
// completes with errs.Disconnected. Both endpoints still have to be closed.
func (n *Net) Break(ep fabric.Endpoint) {
	e, ok := ep.(*endpoint)
	invariant.Check(ok && e.net == n, "sim.Break of an endpoint of another net")
	n.mu.Lock()
	defer n.mu.Unlock()
	e.breakLocked(cut)
}

// BreakAfter cuts the connection of ep as soon as it has carried out count more pieces of work (a
// request of either end is two: its effect and its completion). Work that follows is never done.
func (n *Net) BreakAfter(ep fabric.Endpoint, count int) {
	e, ok := ep.(*endpoint)
	invariant.Check(ok && e.net == n, "sim.BreakAfter of an endpoint of another net")
	invariant.Check(count > 0, "sim.BreakAfter needs a positive count")
	n.mu.Lock()
	defer n.mu.Unlock()
	e.breakIn, e.peer.breakIn = 0, 0
	e.breakIn = count
}

// Step carries out one piece of work, if there is any, and tells whether there was. Poll and
// Wait do it by themselves; tests that look at memory in between call it directly.
func (n *Net) Step() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stepLocked()
}

// Idle carries out all work that is possible.
func (n *Net) Idle() {
	for n.Step() {
	}
}

func (n *Net) nextNameLocked() int {
	n.names++
	return n.names
}

// dueLocked draws the virtual time at which a piece of work that appears now may be chosen.
func (n *Net) dueLocked() uint64 {
	if n.opts.MaxDelay == 0 {
		return n.tick
	}
	return n.tick + uint64(n.rng.IntN(n.opts.MaxDelay+1))
}

// action is one piece of work that may come next.
type action struct {
	ep   *endpoint
	kind actionKind
	at   int // the tag for actRead, the place in reqs.Started for actPlace
	due  uint64
}

type actionKind uint8

const (
	actStart  actionKind = iota // the oldest request that has not started
	actPlace                    // a Write that was started: its effect
	actFinish                   // the oldest Send or Write that had its effect: completion
	actRead                     // a Read that was started: data and completion
)

// stepLocked picks among everything that the contract allows next.
func (n *Net) stepLocked() bool {
	all := n.actions[:0]
	for _, e := range n.eps {
		all = e.actionsLocked(all)
	}
	n.actions = all
	if len(all) == 0 {
		return false
	}
	n.tick++
	earliest := slices.MinFunc(all, func(a, b action) int { return cmpDue(a.due, b.due) }).due
	n.tick = max(n.tick, earliest)
	due := all[:0]
	for _, a := range all {
		if a.due <= n.tick {
			due = append(due, a)
		}
	}
	n.runLocked(due[n.rng.IntN(len(due))])
	return true
}

func cmpDue(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (n *Net) runLocked(a action) {
	e := a.ep
	switch a.kind {
	case actStart:
		e.startLocked()
		if n := e.reqs.Started.Len(); n > 0 && !(*e.reqs.Started.At(n - 1)).Own.placed {
			return // a started Write without effect does not count
		}
	case actPlace:
		e.placeLocked(*e.reqs.Started.At(a.at))
	case actFinish:
		e.finishLocked()
	case actRead:
		e.readLocked(a.at)
	}
	e.countBreakLocked()
}

// drainLocked carries out everything that e can do, in the order posted: the free-running way.
func (n *Net) drainLocked(e *endpoint) {
	for {
		n.actions = e.actionsLocked(n.actions[:0])
		if len(n.actions) == 0 {
			return
		}
		n.runLocked(n.actions[0])
	}
}

// progressLocked runs after new work was posted on e.
func (n *Net) progressLocked(e *endpoint) {
	if n.opts.MaxDelay == 0 {
		n.drainLocked(e)
		return
	}
	for q := range n.waiting { // any of them can take the steps
		q.cond.Broadcast()
	}
}

// forgetLocked removes a dead endpoint from the steps.
func (n *Net) forgetLocked(e *endpoint) {
	n.eps = without(n.eps, e)
}

// without removes one from a list and keeps the order of the others.
func without[T comparable](list []T, one T) []T {
	if i := slices.Index(list, one); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// kindErr is the error value that completions carry.
func kindErr(kind errs.Kind, e *endpoint, why string) error {
	return errs.Newf(kind, "fabric", e.Name(), "%s", why)
}
