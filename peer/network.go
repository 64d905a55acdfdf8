// Package peer connects to other processes: it opens the providers that this host has, finds the
// best one that works for each peer by trying (the ladder), pools one connection per peer (Pool),
// lets connections climb when a better way works again, and retries with backoff (Retry, Patience).
// Requests over a connection are package msg's.
//
//	providers, err := peer.Open(peer.Options{})                  // what this host has
//	network, err := peer.New(providers, msg.Options{})           // a msg.Node with the ladder
//	conn, err := network.Dial(ctx, "127.0.0.1:9400")             // by shm, verbs or tcp
//	server, err := network.Serve("tcp:127.0.0.1:0,shm:/run/x", handler, msg.ServeOptions{})
//
// It is the only package that knows providers by name: below it there are fabric.Caps, above it
// there are addresses.
//
// Read network.go first, then address.go, networks.go, ladder.go, reach.go and offers.go (how a
// peer is reached), providers.go (what is opened), pool.go, climb.go and retry.go.
package peer

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/msg"
)

// Network is a msg.Node that reaches its peers, and can be reached, by several providers. Safe for
// concurrent use. Close it before its providers.
type Network struct {
	*msg.Node
	steps    []step // of the ladder, best first
	missing  []Step
	tokens   *fabric.Tokens
	instance uint64   // identifies this network
	host     [32]byte // identifies this host
	misses   misses
	log      *slog.Logger
	missed   logonce.Logger
	networks func() []netip.Prefix // of this host

	stop    context.CancelFunc // ends what runs in the background
	running sync.WaitGroup

	mu      sync.Mutex
	counts  map[LadderCount]uint64
	climbed map[string]uint64 // by provider
	revoked uint64            // connections that were ended because their peers are not believed
	ways    map[*msg.Conn]*way
	heard   map[string][]string // places that servers have told of, by the address that was dialled
}

// heardMax bounds the addresses of which other places are remembered.
const heardMax = 1024

// step is one provider of the ladder.
type step struct {
	domain fabric.Domain
	caps   fabric.Caps
}

// New makes a network on providers, which the caller closes. opts are the node's; its domains are
// the providers', and its limits and its way of progress too where opts has none.
func New(p *Providers, opts msg.Options) (*Network, error) {
	if len(p.Domains) == 0 {
		return nil, errs.Newf(errs.Invalid, "peer.New", "", "no providers")
	}
	opts.Domain, opts.Domains = p.Base(), p.Domains
	if opts.Limits == nil {
		opts.Limits = p.Limits
	}
	if opts.Progress == msg.ProgressAny {
		opts.Progress = p.Progress
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	node, err := msg.NewNode(opts)
	if err != nil {
		return nil, err
	}
	n := &Network{
		Node: node, missing: p.Missing, tokens: p.Tokens, instance: rand.Uint64(), host: hostID(),
		log: opts.Logger, missed: logonce.Logger{Log: opts.Logger}, counts: map[LadderCount]uint64{},
		networks: ownNetworks, climbed: map[string]uint64{}, ways: map[*msg.Conn]*way{},
		heard: map[string][]string{},
	}
	for _, d := range p.Domains {
		n.steps = append(n.steps, step{d, d.Caps()})
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	if p.changed != nil {
		n.running.Go(func() { n.watchTrust(ctx, p.changed) })
	}
	return n, nil
}

// Close ends every connection and server of the network, as that of a Node, and waits until they
// are gone. Closing twice is allowed.
func (n *Network) Close() error {
	n.stop()
	n.running.Wait()
	return n.Node.Close()
}

// base is the last step, which addresses without a provider's name are of.
func (n *Network) base() *step { return &n.steps[len(n.steps)-1] }

func (n *Network) providers() []string {
	var names []string
	for _, s := range n.steps {
		names = append(names, s.caps.Provider)
	}
	return names
}

// Dial connects to a server, by the best step of the ladder that works; see address.go for what
// addr may be.
func (n *Network) Dial(ctx context.Context, addr string) (*msg.Conn, error) {
	places, err := parseAddress(addr, n.providers())
	if err != nil {
		return nil, err
	}
	k := climb{net: n, addr: addr, places: places}
	c, err := k.dial(ctx)
	if err != nil {
		return nil, errs.Wrap("peer.Dial", addr, err)
	}
	n.report(&k, c)
	return c, nil
}

// learn remembers where a server that was dialled says that it is.
func (n *Network) learn(addr string, places []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.heard[addr]; !known && len(n.heard) >= heardMax {
		clear(n.heard)
	}
	n.heard[addr] = places
}

func (n *Network) learned(addr string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heard[addr]
}

// Serve starts to answer requests with h at all places of an address, and tells clients where it
// listens. The operation OpOffers is the network's own.
func (n *Network) Serve(addr string, h msg.Handler, opts msg.ServeOptions) (*msg.Server, error) {
	places, err := parseAddress(addr, n.providers())
	if err != nil {
		return nil, err
	}
	return n.servePlaces(places, h, opts)
}

// servePlaces is Serve at places, of which several may be of one provider.
func (n *Network) servePlaces(places []place, h msg.Handler, opts msg.ServeOptions) (*msg.Server,
	error) {
	var at []msg.Place
	for _, p := range places {
		s, ok := n.stepOf(p)
		if !ok {
			return nil, errs.Newf(errs.Unsupported, "peer.Serve", p.at, "this network has no %s",
				p.provider)
		}
		at = append(at, msg.Place{Domain: s.domain, Addr: p.at})
	}
	opts.Services = append(opts.Services[:len(opts.Services):len(opts.Services)], msg.Service{
		Name: "offers", From: OpOffers, To: OpOffers, Handler: msg.HandlerFunc(n.answerOffers),
	})
	return n.ServeAt(at, h, opts)
}

// stepOf is the step that a place is of.
func (n *Network) stepOf(p place) (*step, bool) {
	if p.provider == "" {
		return n.base(), true
	}
	for i := range n.steps {
		if n.steps[i].caps.Provider == p.provider {
			return &n.steps[i], true
		}
	}
	return nil, false
}

// AddrOf is where a server of the network listens, as Dial takes it: all of its places.
func (n *Network) AddrOf(s *msg.Server) string {
	var all []place
	for _, p := range s.Places() {
		all = append(all, place{provider: p.Domain.Caps().Provider, at: p.Addr})
	}
	return formatAddress(all, n.base().caps.Provider)
}

// Ladder returns the steps of a connection, from the best one down to the one that was taken, with
// the reasons why the others were not. It is nil for a dead connection.
func (n *Network) Ladder(c *msg.Conn) []Step {
	if w := n.wayOf(c); w != nil {
		return w.steps
	}
	return nil
}

// LadderCount counts one outcome of a provider; errs.OK where it was taken.
type LadderCount struct {
	Provider string
	Outcome  errs.Kind
}

// LadderCounts returns how often each provider was taken, or not taken and why.
func (n *Network) LadderCounts() map[LadderCount]uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.counts)
}

// report logs the steps that were not taken, once per peer and reason, counts all, and keeps them
// for Ladder. A provider that this host lacks is not logged here: Open has logged it.
func (n *Network) report(k *climb, c *msg.Conn) {
	for _, s := range k.steps[len(n.missing):] {
		if s.Err != nil {
			why := errs.KindOf(s.Err).String()
			n.missed.Warn(k.addr+" "+s.Provider+" "+why, "a better way to the peer was not taken",
				"provider", s.Provider, "at", s.Addr, "why", s.Err)
		}
	}
	taken := k.steps[len(k.steps)-1]
	w := &way{addr: k.addr, provider: taken.Provider, at: taken.Addr, steps: k.steps,
		known: k.known, later: k.later}
	if k.offers != nil {
		w.instance = k.offers.instance
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range k.steps {
		n.counts[LadderCount{Provider: s.Provider, Outcome: errs.KindOf(s.Err)}]++
	}
	maps.DeleteFunc(n.ways, func(c *msg.Conn, _ *way) bool {
		select {
		case <-c.Done():
			return true
		default:
			return false
		}
	})
	n.ways[c] = w
}
