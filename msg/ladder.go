package msg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// The ladder: a node has several providers, best first, and reaches each peer by the best one that
// works, found out by trying. It connects by the last step first, where the peer is authenticated
// if anything is, and asks the server how else it can be reached (askOffers). Then it climbs: for
// each better step, is it offered, on this host (shm), with a token where the server asks for
// one; does it connect; and is it the same server that answers there? The first that does is
// taken and the connection of the last step is closed. Why a step was not taken is kept with
// the connection, logged once per peer, and counted.

// Step is one provider that could have carried a connection.
type Step struct {
	Provider string
	Addr     string // where it was tried; empty if it was not
	Err      error  // why it was not taken; nil for the one that was
}

// stepTimeout bounds the attempt of one step above the last.
const stepTimeout = 3 * time.Second

// missPause is how long a step that failed is not tried again with the same server.
const missPause = time.Minute

// Ladder tells, for the steps from the best one down to that which was taken, why they were not.
func (c *Conn) Ladder() []Step { return c.steps }

// Provider is the name of the provider that carries the connection.
func (c *Conn) Provider() string { return c.caps.Provider }

// Dial connects to a server, by the best step of the ladder that works; see address.go for what
// addr may be. The connection is shared by all callers of Call.
func (n *Node) Dial(ctx context.Context, addr string) (*Conn, error) {
	places, err := parseAddress(addr, n.providers())
	if err != nil {
		return nil, err
	}
	k := climb{node: n, addr: addr, places: places}
	c, err := k.dial(ctx)
	if err != nil {
		return nil, errs.Wrap("msg.Dial", addr, err)
	}
	c.steps = k.steps
	n.report(addr, k.steps)
	return c, nil
}

func (n *Node) providers() []string {
	var names []string
	for _, r := range n.rungs {
		names = append(names, r.caps.Provider)
	}
	return names
}

// climb is one attempt to reach a server.
type climb struct {
	node   *Node
	addr   string
	places []place
	offers *offers // what the server said; nil if it was not asked
	steps  []Step
}

// at is where the address puts a step.
func (k *climb) at(r *rung) (place, bool) {
	last := r == k.node.rungs[len(k.node.rungs)-1]
	for _, p := range k.places {
		if p.provider == r.caps.Provider || p.provider == "" && last {
			return p, true
		}
	}
	return place{}, false
}

// where is the place of a step that the server offers: that of the address if it names one, because
// whoever wrote it knows the network between. A server that listens on all addresses is where the
// last step has found it.
func (k *climb) where(r *rung, o *offer) string {
	if p, ok := k.at(r); ok {
		return p.at
	}
	host, port, err := net.SplitHostPort(o.at)
	ip, _ := netip.ParseAddr(host) // no address, such as a path, is not unspecified
	if base, ok := k.at(k.node.rungs[len(k.node.rungs)-1]); ok && err == nil &&
		(host == "" || ip.IsUnspecified()) {
		if host, _, err := net.SplitHostPort(base.at); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return o.at
}

func (k *climb) dial(ctx context.Context) (*Conn, error) {
	rungs := k.node.rungs
	k.steps = append(k.steps, k.node.opts.Missing...)
	base := rungs[len(rungs)-1]
	p, ok := k.at(base)
	if !ok || len(rungs) == 1 {
		return k.down(ctx)
	}
	c, err := k.node.dialOn(ctx, base, p.at, fabric.Hello{})
	if err != nil {
		return k.downFrom(ctx, err)
	}
	if k.offers, err = c.askOffers(ctx); err != nil && c.Err() != nil {
		c.Close()
		return nil, err
	}
	for _, r := range rungs[:len(rungs)-1] {
		better, at, err := k.try(ctx, r)
		k.steps = append(k.steps, Step{Provider: r.caps.Provider, Addr: at, Err: err})
		if err == nil {
			c.Close()
			return better, nil
		}
	}
	k.steps = append(k.steps, Step{Provider: base.caps.Provider, Addr: p.at})
	return c, nil
}

// down takes the first step that the address names and that works. There is nobody to ask.
func (k *climb) down(ctx context.Context) (*Conn, error) {
	return k.downFrom(ctx, errs.Newf(errs.Invalid, "msg.Dial", k.addr,
		"this node has %s only", strings.Join(k.node.providers(), ", ")))
}

// downFrom is down, after the last step has failed already if there are others.
func (k *climb) downFrom(ctx context.Context, err error) (*Conn, error) {
	rungs := k.node.rungs
	for i, r := range rungs {
		p, ok := k.at(r)
		if !ok || i > 0 && i == len(rungs)-1 {
			continue
		}
		var c *Conn
		if c, err = k.node.dialOn(ctx, r, p.at, fabric.Hello{}); err == nil {
			k.steps = append(k.steps, Step{Provider: r.caps.Provider, Addr: p.at})
			return c, nil
		}
		k.steps = append(k.steps, Step{Provider: r.caps.Provider, Addr: p.at, Err: err})
	}
	return nil, err
}

// try climbs to one step. The error says why it cannot be taken.
func (k *climb) try(ctx context.Context, r *rung) (c *Conn, at string, err error) {
	if k.offers == nil {
		return nil, "", noStep(errs.Unsupported, "the server does not say what it offers")
	}
	o := k.offers.of(r.caps.Provider)
	switch {
	case o == nil:
		return nil, "", noStep(errs.NotFound, "the server does not listen there")
	case o.denied:
		return nil, o.at, noStep(errs.Perm, "the server gives no token to a peer it does not know")
	case r.caps.SameHost && k.offers.host != k.node.host:
		return nil, o.at, noStep(errs.CrossDevice, "the server is on another host")
	}
	at = k.where(r, o)
	key := at + " " + r.caps.Provider
	if err := k.node.misses.recent(key); err != nil {
		return nil, at, err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if c, err = k.node.dialOn(ctx, r, at, fabric.Hello{Token: o.token}); err == nil {
		if err = k.same(ctx, c); err == nil {
			return c, at, nil
		}
		c.Close()
	}
	k.node.misses.note(key, err)
	return nil, at, err
}

func noStep(kind errs.Kind, why string) error {
	return errs.Newf(kind, "msg.Ladder", "", "%s", why)
}

// same tells whether the server at the other end is the one that was asked before: a path or a
// name may belong to another one on this host.
func (k *climb) same(ctx context.Context, c *Conn) error {
	o, err := c.askOffers(ctx)
	if err == nil && o.instance != k.offers.instance {
		err = errs.Newf(errs.Conflict, "msg.Ladder", c.name, "another server answers there")
	}
	return err
}

// askOffers asks the server how else it can be reached.
func (c *Conn) askOffers(ctx context.Context) (*offers, error) {
	var rep Reply
	if err := c.Call(ctx, &Request{ask: askOffers}, &rep); err != nil {
		return nil, err
	}
	return decodeOffers(rep.Body)
}

// misses remembers which steps failed a short while ago.
type misses struct {
	mu   sync.Mutex
	list map[string]miss
}

type miss struct {
	err   error
	until time.Time
}

const maxMisses = 1024

func (m *misses) recent(key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x, ok := m.list[key]; ok && time.Now().Before(x.until) {
		return x.err
	}
	return nil
}

func (m *misses) note(key string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list == nil || len(m.list) >= maxMisses {
		m.list = map[string]miss{}
	}
	m.list[key] = miss{err, time.Now().Add(missPause)}
}

// report logs the steps that were not taken, once per peer and reason, and counts all. What is
// missing here is missing for every peer: whoever tried to open it has said so.
func (n *Node) report(addr string, steps []Step) {
	for _, s := range steps[len(n.opts.Missing):] {
		if s.Err != nil {
			why := errs.KindOf(s.Err).String()
			n.missed.Warn(addr+" "+s.Provider+" "+why, "a better way to the peer was not taken",
				"provider", s.Provider, "at", s.Addr, "why", s.Err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range steps {
		n.ladder[LadderCount{Provider: s.Provider, Outcome: errs.KindOf(s.Err)}]++
	}
}

// LadderCount is a provider and what came of trying it; errs.OK where it was taken.
type LadderCount struct {
	Provider string
	Outcome  errs.Kind
}

// hostID tells this host, since it was started, from others: what shared memory can span. One that
// does not know its own is on the same host as nobody.
func hostID() [32]byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		id = make([]byte, 16)
		_, _ = rand.Read(id) // never fails
	}
	return sha256.Sum256(append([]byte("sluice host\x00"), id...))
}
