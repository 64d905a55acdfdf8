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

// offers are the answer to OpOffers.
//
//	0        8     40    41
//	|instance|host |count| count x |flags u8 |len u8 |name |len u16 |place |token 32, if flags & 1|
//
// instance identifies the network, host the host. flags: 1 a token follows, which the dialler shows
// there; 2 that provider asks for a token, which this peer is not given.
type offers struct {
	instance uint64
	host     [32]byte
	list     []offer
}

type offer struct {
	provider, at string
	token        [32]byte
	denied       bool
}

const (
	offerToken  = 1
	offerDenied = 2

	tokenLife = 30 * time.Second
)

func (o *offers) of(provider string) *offer {
	for i := range o.list {
		if o.list[i].provider == provider {
			return &o.list[i]
		}
	}
	return nil
}

// askOffers asks a server how else it can be reached.
func askOffers(ctx context.Context, c *msg.Conn) (*offers, error) {
	var rep msg.Reply
	if err := c.Call(ctx, &msg.Request{Op: OpOffers}, &rep); err != nil {
		return nil, err
	}
	return decodeOffers(rep.Body)
}

// answerOffers replies to a call with what its server offers.
func (n *Network) answerOffers(_ context.Context, c *msg.Call) {
	var e wire.Enc
	places := c.Server().Places()
	e.U64(n.instance)
	e.Raw(n.host[:])
	e.U8(uint8(len(places)))
	for _, p := range places {
		flags, token := uint8(0), [32]byte{}
		caps := p.Domain.Caps()
		if base := n.base().domain; caps.AsksToken && p.Domain != base && c.Domain() == base {
			flags, token = n.tokenFor(c.Peer())
		}
		e.U8(flags)
		e.U8(uint8(len(caps.Provider)))
		e.Raw([]byte(caps.Provider))
		e.U16(uint16(len(p.Addr)))
		e.Raw([]byte(p.Addr))
		if flags&offerToken != 0 {
			e.Raw(token[:])
		}
	}
	_ = c.Reply(e.B, 0) // the peer may be gone
}

// tokenFor issues a token to a peer that is known.
func (n *Network) tokenFor(peer fabric.Peer) (uint8, [32]byte) {
	if peer.Proof == fabric.ProofNone || n.tokens == nil {
		return offerDenied, [32]byte{}
	}
	token, err := n.tokens.Issue(peer.Name, tokenLife)
	if err != nil {
		return offerDenied, [32]byte{}
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
		flags := d.U8()
		name := bytes.Clone(raw(int(d.U8())))
		at := bytes.Clone(raw(int(d.U16())))
		if d.Err() != nil || flags > offerDenied || len(name) == 0 || len(at) == 0 ||
			len(at) > maxAddress {
			return nil, bad
		}
		x.provider, x.at, x.denied = string(name), string(at), flags == offerDenied
		if flags == offerToken && copy(x.token[:], raw(32)) != 32 {
			return nil, bad
		}
		o.list = append(o.list, x)
	}
	if len(d.Rest()) != 0 {
		return nil, bad
	}
	return o, nil
}
