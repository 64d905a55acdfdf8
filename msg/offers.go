package msg

import (
	"bytes"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// offers are the answer to askOffers: how a server can be reached.
//
//	0        8     40    41
//	|instance|host |count| count x |flags u8 |len u8 |name |len u16 |place |token 32, if flags & 1|
//
// instance tells one node from another, host one host from another. flags: 1 a token follows, which
// the dialler shows there; 2 that provider asks for a token, which this peer is not given.
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

// appendOffers writes what the server offers to the peer of one connection.
func (s *Server) appendOffers(e *wire.Enc, c *serverConn) {
	e.U64(s.node.instance)
	e.Raw(s.node.host[:])
	e.U8(uint8(len(s.doors)))
	last := s.node.rungs[len(s.node.rungs)-1]
	for _, d := range s.doors {
		flags, token := uint8(0), [32]byte{}
		known := slices.Contains(s.node.opts.Known, d.rung.caps.Provider)
		if tokens := s.node.opts.Tokens; tokens != nil && !known && d.rung != last && c.rung == last {
			flags, token = s.tokenFor(tokens, c.ep.Peer())
		}
		e.U8(flags)
		e.U8(uint8(len(d.rung.caps.Provider)))
		e.Raw([]byte(d.rung.caps.Provider))
		at := d.listener.Addr().String()
		e.U16(uint16(len(at)))
		e.Raw([]byte(at))
		if flags&offerToken != 0 {
			e.Raw(token[:])
		}
	}
}

// tokenFor issues a token to a peer that is known.
func (s *Server) tokenFor(tokens *fabric.Tokens, peer fabric.Peer) (uint8, [32]byte) {
	if peer.Proof == fabric.ProofNone {
		return offerDenied, [32]byte{}
	}
	token, err := tokens.Issue(peer.Name, tokenLife)
	if err != nil {
		return offerDenied, [32]byte{}
	}
	return offerToken, token
}

// decodeOffers reads the answer of a server, which may be anybody.
func decodeOffers(body []byte) (*offers, error) {
	bad := errs.Newf(errs.Protocol, "msg.Offers", "", "an answer that makes no sense")
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
