// Package eager tracks eager slots: memory of a server that is lent to one client, which alone may
// write it. Request data of medium size goes there, so that it is at the server when the request
// arrives. A client that could use slots asks for them; the server gives what it can spare; it asks
// for slots back that a connection has not used for a while, and the client returns those that are
// free. So an idle connection soon has none.
//
// A slot carries one request until that is answered. The client can write it at any time, so the
// server copies the data before it uses it.
//
// It sends no messages: package msg does. Held and Lent are guarded by their user's lock; Store is
// safe for concurrent use.
//
// Read held.go first (the client's side), then lent.go and store.go (the server's).
package eager

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// MaxSlots is how many slots a connection may have: they are one word of bits.
const MaxSlots = 64

// A message that gives slots has for each of them:
//
//	0      8        16       24       32
//	|index |key     |addr    |len     |
const giftBytes = 32

// GiftsMax is how many slots one message gives: it fits every message.
const GiftsMax = 8

// Gift is a slot that the server gives.
type Gift struct {
	Index  int
	Remote fabric.Remote
}

// Append writes a gift.
func (g *Gift) Append(e *wire.Enc) {
	e.U64(uint64(g.Index))
	e.U64(g.Remote.Key)
	e.U64(g.Remote.Addr)
	e.U64(g.Remote.Len)
}

// DecodeGifts reads all gifts of a message.
func DecodeGifts(body []byte) ([]Gift, error) {
	if len(body)%giftBytes != 0 || len(body) > GiftsMax*giftBytes {
		return nil, errs.Newf(errs.Protocol, "msg", "", "eager slots in %d bytes", len(body))
	}
	var all []Gift
	d := wire.NewDec(body)
	for range len(body) / giftBytes {
		index := d.U64()
		r := fabric.Remote{Key: d.U64(), Addr: d.U64(), Len: d.U64()}
		if index >= MaxSlots || r.Addr+r.Len < r.Addr {
			return nil, errs.Newf(errs.Protocol, "msg", "", "eager slot %d", index)
		}
		all = append(all, Gift{int(index), r})
	}
	return all, d.Err()
}
