package peer

import (
	"bytes"
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/wire"
)

// OpOffers asks a server how it can be reached. It is answered by the network, not by the server's
// handler.
const OpOffers uint16 = 0xffff

// offers are the answer to OpOffers, whose body is the host of who asks, 32 bytes, or nothing.
//
//	0        8     40    41
//	|instance|host |count| count x |state u8 |len u8 |name |len u16 |place |token 32, with state 1|
//
// instance identifies the network, host the host. A provider may have several places. state: 1 a
// token follows, which the dialler shows there; 2 that provider asks for a token, which this peer
// is not given; 3 nor anybody now, because too many are unused.
type offers struct {
	instance uint64
	host     [32]byte
	list     []offer
}

type offer struct {
	provider, at string
	state        uint8
	token        [32]byte
}

// The states of an offer.
const (
	offerPlain uint8 = iota
	offerToken
	offerDenied
	offerBusy
	offerEnd
)

const tokenLife = 30 * time.Second

// of are the offers of a provider, in the server's order.
func (o *offers) of(provider string) (all []*offer) {
	for i := range o.list {
		if o.list[i].provider == provider {
			all = append(all, &o.list[i])
		}
	}
	return all
}

// places are those of a provider.
func (o *offers) places(provider string) (all []string) {
	for _, x := range o.of(provider) {
		all = append(all, x.at)
	}
	return all
}

// askOffers asks a server how else it can be reached; host is this one.
func askOffers(ctx context.Context, c *msg.Conn, host [32]byte) (*offers, error) {
	var rep msg.Reply
	if err := c.Call(ctx, &msg.Request{Op: OpOffers, Body: host[:]}, &rep); err != nil {
		return nil, err
	}
	return decodeOffers(rep.Body)
}

// answerOffers replies to a call with what its server offers.
func (n *Network) answerOffers(_ context.Context, c *msg.Call) {
	var e wire.Enc
	list := n.offersTo(c)
	e.U64(n.instance)
	e.Raw(n.host[:])
	e.U8(uint8(len(list)))
	for i := range list {
		o := &list[i]
		e.U8(o.state)
		e.U8(uint8(len(o.provider)))
		e.Raw([]byte(o.provider))
		e.U16(uint16(len(o.at)))
		e.Raw([]byte(o.at))
		if o.state == offerToken {
			e.Raw(o.token[:])
		}
	}
	_ = c.Reply(e.B, 0) // the peer may be gone
}

// offersTo are all places of a server, each where others find it, at most as many as an answer may
// have. Tokens go to who asks by the last step, and for this host's memory to who is on this host.
func (n *Network) offersTo(c *msg.Call) []offer {
	base, body := n.base().domain, c.Body()
	elsewhere := len(body) == len(n.host) && [32]byte(body) != n.host
	var list []offer
	for _, p := range c.Server().Places() {
		caps := p.Domain.Caps()
		for _, at := range told(p) {
			if len(list) == maxPlaces {
				return list
			}
			o := offer{provider: caps.Provider, at: at}
			switch {
			case caps.SameHost && elsewhere:
			case caps.AsksToken && p.Domain != base && c.Domain() == base:
				o.state, o.token = n.tokenFor(c.Peer())
			}
			list = append(list, o)
		}
	}
	return list
}

// tokenFor issues a token to a peer that is known.
func (n *Network) tokenFor(peer fabric.Peer) (uint8, [32]byte) {
	if peer.Proof == fabric.ProofNone || n.tokens == nil {
		return offerDenied, [32]byte{}
	}
	token, err := n.tokens.IssueTo(peer, tokenLife)
	if err != nil {
		return offerBusy, [32]byte{}
	}
	return offerToken, token
}

// decodeOffers reads the answer of a server, which is not trusted.
func decodeOffers(body []byte) (*offers, error) {
	bad := errs.Newf(errs.Protocol, "peer.Offers", "", "an answer that makes no sense")
	d := wire.NewDec(body)
	o := &offers{instance: d.U64()}
	raw := func(n int) []byte {
		b := d.Rest()
		if d.Err() != nil || n > len(b) {
			return nil
		}
		d = wire.NewDec(b[n:])
		return b[:n:n]
	}
	if copy(o.host[:], raw(32)) != 32 {
		return nil, bad
	}
	count := int(d.U8())
	if d.Err() != nil || count > maxPlaces {
		return nil, bad
	}
	for range count {
		var x offer
		x.state = d.U8()
		name := bytes.Clone(raw(int(d.U8())))
		at := bytes.Clone(raw(int(d.U16())))
		if d.Err() != nil || x.state >= offerEnd || len(name) == 0 || len(at) == 0 ||
			len(at) > maxAddress {
			return nil, bad
		}
		x.provider, x.at = string(name), string(at)
		if x.state == offerToken && copy(x.token[:], raw(32)) != 32 {
			return nil, bad
		}
		o.list = append(o.list, x)
	}
	if len(d.Rest()) != 0 {
		return nil, bad
	}
	return o, nil
}
