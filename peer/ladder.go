package peer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// The ladder: a network has several providers, best first, and reaches each peer by the best one
// that works, found out by trying. It connects by the last step first, where the peer is
// authenticated if anything is, and asks the server how else it can be reached (OpOffers). Then it
// tries each better step: the step must be offered, by a server on this host where the provider
// needs that, with a token where the server asks for one; it must connect; and the same server must
// answer there. The first such step is taken and the connection of the last step is closed. Why a
// step was not taken is logged once per peer, counted, and returned by Network.Ladder.

// Step is one provider that could have carried a connection.
type Step struct {
	Provider string
	Addr     string // where it was tried; empty if it was not
	Err      error  // why it was not taken; nil for the one that was
}

// stepTimeout bounds the attempt of one step above the last.
const stepTimeout = 3 * time.Second

// climb is one attempt to reach a server.
type climb struct {
	net    *Network
	addr   string
	places []place
	offers *offers // what the server said; nil if it was not asked
	steps  []Step
}

// at is the place of a step in the address.
func (k *climb) at(s *step) (place, bool) {
	for _, p := range k.places {
		if of, ok := k.net.stepOf(p); ok && of.domain == s.domain {
			return p, true
		}
	}
	return place{}, false
}

// dialAt connects by one step.
func (k *climb) dialAt(ctx context.Context, s *step, addr string, token [32]byte) (
	*msg.Conn, error,
) {
	return k.net.DialAt(ctx, msg.Place{Domain: s.domain, Addr: addr}, token)
}

// where is the place of a step that the server offers: that of the address if it names one, because
// its author knows the network. A server that listens on all addresses has the host of the last
// step.
func (k *climb) where(s *step, o *offer) string {
	if p, ok := k.at(s); ok {
		return p.at
	}
	host, port, err := net.SplitHostPort(o.at)
	ip, _ := netip.ParseAddr(host) // no address, such as a path, is not unspecified
	if base, ok := k.at(k.net.base()); ok && err == nil &&
		(host == "" || ip.IsUnspecified()) {
		if host, _, err := net.SplitHostPort(base.at); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return o.at
}

func (k *climb) dial(ctx context.Context) (*msg.Conn, error) {
	k.steps = append(k.steps, k.net.missing...)
	base, better := k.net.base(), k.net.steps[:len(k.net.steps)-1]
	p, ok := k.at(base)
	if !ok || len(better) == 0 {
		return k.down(ctx, errs.Newf(errs.Invalid, "peer.Dial", k.addr, "this network has %s only",
			strings.Join(k.net.providers(), ", ")))
	}
	c, err := k.dialAt(ctx, base, p.at, [32]byte{})
	if err != nil {
		return k.down(ctx, err)
	}
	if k.offers, err = askOffers(ctx, c); err != nil && c.Err() != nil {
		c.Close()
		return nil, err
	}
	for i := range better {
		s := &better[i]
		taken, at, err := k.try(ctx, s)
		k.steps = append(k.steps, Step{Provider: s.caps.Provider, Addr: at, Err: err})
		if err == nil {
			c.Close()
			return taken, nil
		}
	}
	k.steps = append(k.steps, Step{Provider: base.caps.Provider, Addr: p.at})
	return c, nil
}

// down takes the first step that the address names and that works, without asking the server: the
// last step has failed with err, or is not named, or is the only one.
func (k *climb) down(ctx context.Context, err error) (*msg.Conn, error) {
	last := len(k.net.steps) - 1
	for i := range k.net.steps {
		s := &k.net.steps[i]
		p, ok := k.at(s)
		if !ok || i > 0 && i == last {
			continue
		}
		var c *msg.Conn
		if c, err = k.dialAt(ctx, s, p.at, [32]byte{}); err == nil {
			k.steps = append(k.steps, Step{Provider: s.caps.Provider, Addr: p.at})
			return c, nil
		}
		k.steps = append(k.steps, Step{Provider: s.caps.Provider, Addr: p.at, Err: err})
	}
	return nil, err
}

// try tries one step. The error says why it cannot be taken.
func (k *climb) try(ctx context.Context, s *step) (c *msg.Conn, at string, err error) {
	if k.offers == nil {
		return nil, "", noStep(errs.Unsupported, "the server does not say what it offers")
	}
	o := k.offers.of(s.caps.Provider)
	switch {
	case o == nil:
		return nil, "", noStep(errs.NotFound, "the server does not listen there")
	case o.denied:
		return nil, o.at, noStep(errs.Perm, "the server gives no token to a peer it does not know")
	case s.caps.SameHost && k.offers.host != k.net.host:
		return nil, o.at, noStep(errs.CrossDevice, "the server is on another host")
	}
	at = k.where(s, o)
	key := at + " " + s.caps.Provider
	if err := k.net.misses.recent(key); err != nil {
		return nil, at, err
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if c, err = k.dialAt(ctx, s, at, o.token); err == nil {
		if err = k.same(ctx, c); err == nil {
			return c, at, nil
		}
		c.Close()
	}
	k.net.misses.note(key, err)
	return nil, at, err
}

func noStep(kind errs.Kind, why string) error {
	return errs.Newf(kind, "peer.Ladder", "", "%s", why)
}

// same tells whether the server at the other end is the one that was asked before: a path or a
// name may belong to another one on this host.
func (k *climb) same(ctx context.Context, c *msg.Conn) error {
	o, err := askOffers(ctx, c)
	if err == nil && o.instance != k.offers.instance {
		err = errs.Newf(errs.Conflict, "peer.Ladder", k.addr, "another server answers there")
	}
	return err
}

// hostID identifies this host and boot: processes with the same one can share memory. A host
// without one gets a random one, which matches no other.
func hostID() [32]byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		id = make([]byte, 16)
		_, _ = rand.Read(id) // never fails
	}
	return sha256.Sum256(append([]byte("sluice host\x00"), id...))
}
