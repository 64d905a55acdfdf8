package peer

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
)

// The ladder: a network has several providers, best first, and reaches each peer by the best one
// that works, found out by trying. It connects by the last step first, where the peer is
// authenticated if anything is, and asks the server how else it can be reached (OpOffers). Then it
// tries each better step: the step must be offered, by a server on this host where the provider
// needs that, with a token where the server asks for one; it must connect; and the same server must
// answer there. The first such step is taken and the connection of the last step is closed. Why a
// step was not taken is logged once per peer, counted, and returned by Network.Ladder. A step may
// have several places, in several networks: see reach.go for how they are tried, and climb.go for
// how a connection is replaced when a better way works again.

// Step is one provider that could have carried a connection, at one place.
type Step struct {
	Provider string
	Addr     string // where it was tried; empty if it was not
	Err      error  // why it was not taken; nil for the one that was
}

// stepTimeout bounds the attempt of one step above the last.
const stepTimeout = 3 * time.Second

// climb is one attempt to reach a server, or to reach it by a better way.
type climb struct {
	net    *Network
	addr   string
	places []place
	have   *way // the one there is, that a better one is looked for; nil: none

	base   *msg.Conn // of the last step
	baseAt string
	offers *offers // what the server said; nil if it was not asked
	steps  []Step
	known  fabric.Peer // who is there, by the connection that was taken, and how it is known
	later  bool        // a better way has failed for now: it may work later
}

// named are the places of a step in the address.
func (k *climb) named(s *step) (places []string) {
	for _, p := range k.places {
		if of, ok := k.net.stepOf(p); ok && of.domain == s.domain {
			places = append(places, p.at)
		}
	}
	return places
}

// baseSpots are the places of the last step: those of the address, and behind them those that the
// server has told of.
func (k *climb) baseSpots() []spot {
	base := k.net.base()
	named := k.named(base)
	if len(named) == 0 {
		return nil
	}
	spots := k.order(base, named)
	for _, at := range k.net.learned(k.addr) {
		if !slices.Contains(named, at) {
			spots = append(spots, spot{at: at, rank: len(spots)})
		}
	}
	return spots
}

// where is a place as it is dialled: that of a server which listens on all addresses has the host
// of the last step.
func (k *climb) where(at string) string {
	host, port, err := net.SplitHostPort(at)
	ip, _ := netip.ParseAddr(host) // no address, such as a path, is not unspecified
	if err == nil && (host == "" || ip.IsUnspecified()) {
		if host, _, err := net.SplitHostPort(k.baseAt); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return at
}

// spotsOf are the places of a step that the server offers: those of the address if it names any,
// because its author knows the network, else those that the server tells of.
func (k *climb) spotsOf(s *step, offered []*offer) []spot {
	places := k.named(s)
	if len(places) == 0 {
		for _, o := range offered {
			places = append(places, o.at)
		}
	}
	var once []string
	for _, at := range places {
		if at = k.where(at); !slices.Contains(once, at) {
			once = append(once, at)
		}
	}
	spots := k.order(s, once)
	for i := range spots { // each token is good at each of them, once
		if i < len(offered) {
			spots[i].token = offered[i].token
		}
	}
	return spots
}

func (k *climb) dial(ctx context.Context) (*msg.Conn, error) {
	k.steps = append(k.steps, k.net.missing...)
	base, better := k.net.base(), k.net.steps[:len(k.net.steps)-1]
	spots := k.baseSpots()
	if len(spots) == 0 || len(better) == 0 {
		return k.down(ctx, errs.Newf(errs.Invalid, "peer.Dial", k.addr, "this network has %s only",
			strings.Join(k.net.providers(), ", ")))
	}
	c, i, err := k.reach(ctx, base, spots, nil)
	if err != nil {
		return k.down(ctx, err)
	}
	k.base, k.baseAt = c, spots[i].at
	if err = k.ask(ctx); err != nil && c.Err() != nil {
		c.Close()
		return nil, err
	}
	if taken := k.above(ctx, better); taken != nil {
		c.Close()
		return taken, nil
	}
	k.take(base, c, spots, i)
	return c, nil
}

// ask asks the server how it can be reached.
func (k *climb) ask(ctx context.Context) (err error) {
	if k.offers, err = askOffers(ctx, k.base, k.net.host); err == nil {
		k.net.learn(k.addr, k.offers.places(k.net.base().caps.Provider))
	}
	return err
}

// above takes the best of the steps that works; nil: none.
func (k *climb) above(ctx context.Context, better []step) *msg.Conn {
	for i := range better {
		if taken := k.try(ctx, &better[i]); taken != nil {
			return taken
		}
		if k.have != nil && better[i].caps.Provider == k.have.provider {
			return nil // what follows is worse than what there is
		}
	}
	return nil
}

// take notes that a connection is the one: at one of the spots of its step, of which some may be
// preferred to it.
func (k *climb) take(s *step, c *msg.Conn, spots []spot, at int) {
	for _, x := range spots {
		if err := cmp.Or(x.err, x.was); err != nil && x.rank < spots[at].rank {
			k.later = k.later || mayPass(err)
			k.skip(s, x.at, err)
		}
	}
	k.steps = append(k.steps, Step{Provider: s.caps.Provider, Addr: spots[at].at})
	k.known = c.Peer()
	if k.base != nil && c != k.base && spots[at].token != [32]byte{} {
		who := k.base.Peer() // the listener has proved that it knows the token
		k.known.Proof, k.known.Name, k.known.Recheck = fabric.ProofToken, who.Name, who.Recheck
	}
}

// skip notes why a place was not taken.
func (k *climb) skip(s *step, at string, err error) {
	k.steps = append(k.steps, Step{Provider: s.caps.Provider, Addr: at, Err: err})
}

// down takes the first step that the address names and that works, without asking the server: the
// last step has failed with err, or is not named, or is the only one.
func (k *climb) down(ctx context.Context, err error) (*msg.Conn, error) {
	last := len(k.net.steps) - 1
	for i := range k.net.steps {
		s := &k.net.steps[i]
		places := k.named(s)
		if len(places) == 0 || i > 0 && i == last {
			continue
		}
		spots := k.order(s, places)
		c, at, failed := k.reach(ctx, s, spots, nil)
		if failed == nil {
			k.take(s, c, spots, at)
			return c, nil
		}
		err = failed
		k.failed(s, spots)
	}
	return nil, err
}

// try tries one step. Where it cannot be taken the reasons are noted.
func (k *climb) try(ctx context.Context, s *step) *msg.Conn {
	offered, at, err := k.offered(s)
	if err != nil {
		k.skip(s, at, err)
		return nil
	}
	spots := k.spotsOf(s, offered)
	if k.have != nil && k.have.provider == s.caps.Provider {
		spots = before(spots, k.have.at)
	}
	if len(spots) == 0 {
		return nil
	}
	if err := spots[0].was; err != nil { // all have failed recently: those are last
		k.later = k.later || mayPass(err)
		k.skip(s, spots[0].at, err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	c, i, err := k.reach(ctx, s, spots, k.same)
	if err == nil {
		k.take(s, c, spots, i)
		return c
	}
	k.failed(s, spots)
	return nil
}

// before are the spots that are to be tried before a place.
func before(spots []spot, at string) []spot {
	if i := slices.IndexFunc(spots, func(x spot) bool { return x.at == at }); i >= 0 {
		return spots[:i]
	}
	return spots
}

// mayPass tells whether a step that failed may work later, with the same server: not if somebody
// has decided that it does not.
func mayPass(err error) bool {
	if errors.Is(err, os.ErrPermission) {
		return false
	}
	switch errs.KindOf(err) {
	case errs.Perm, errs.Access, errs.Unsupported, errs.Version, errs.Invalid:
		return false
	}
	return true
}

// offered is what the server offers of a step; at is where, if it cannot be taken for a reason.
func (k *climb) offered(s *step) (all []*offer, at string, err error) {
	if k.offers == nil {
		return nil, "", noStep(errs.Unsupported, "the server does not say what it offers")
	}
	all = k.offers.of(s.caps.Provider)
	if len(all) == 0 {
		return nil, "", noStep(errs.NotFound, "the server does not listen there")
	}
	o := all[0]
	switch {
	case s.caps.SameHost && k.offers.host != k.net.host:
		return nil, o.at, noStep(errs.CrossDevice, "the server is on another host")
	case o.state == offerDenied:
		return nil, o.at, noStep(errs.Perm, "the server gives no token to a peer it does not know")
	case o.state == offerBusy:
		k.later = true
		return nil, o.at, noStep(errs.Again, "the server has given out too many tokens for now")
	}
	return all, o.at, nil
}

func noStep(kind errs.Kind, why string) error {
	return errs.Newf(kind, "peer.Ladder", "", "%s", why)
}

// same tells whether the server at the other end is the one that was asked before: a path or a
// name may belong to another one on this host.
func (k *climb) same(ctx context.Context, c *msg.Conn) error {
	o, err := askOffers(ctx, c, k.net.host)
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
