package mover

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
)

// Unpacker is the receiver's half of a Put, packed or not: it expects one move at a time, checks
// the notice and, if the data came packed, copies it out of the slot. It checks which move it is,
// its length, and the number of its pieces. It is used by one goroutine at a time.
//
// The slot is memory on which only this peer was granted RemoteWrite, and nothing else. It may be
// granted again for the next move when Imm or Message has returned; until then the peer can change
// the data but not where it goes.
type Unpacker struct {
	slot    []byte
	pieces  [][]byte
	total   uint64
	tag     uint32
	expects bool
}

// NewUnpacker makes an unpacker for a slot, which may be empty if the peer never packs.
func NewUnpacker(slot []byte) *Unpacker { return &Unpacker{slot: slot} }

// Expect prepares for the move with this tag, whose segments are the pieces. They, and the list,
// belong to the unpacker until the notice was seen or Forget is called. While another move is
// expected it is errs.Busy.
func (u *Unpacker) Expect(tag uint32, pieces [][]byte) error {
	if u.expects {
		return errs.Newf(errs.Busy, "mover.Expect", "", "move %d is expected", u.tag)
	}
	if tag > MaxTag {
		return errs.Newf(errs.Invalid, "mover.Expect", "", "tag %d", tag)
	}
	u.pieces, u.tag, u.total, u.expects = pieces, tag, 0, true
	for _, p := range pieces {
		u.total += uint64(len(p))
	}
	return nil
}

// Forget cancels what is expected. A notice that comes nevertheless is errs.Protocol.
func (u *Unpacker) Forget() { u.expects, u.pieces = false, nil }

// Imm handles the immediate of a notice. When it returns nil the data is in the pieces.
func (u *Unpacker) Imm(imm uint32) error {
	return u.take(&Received{
		Packed: imm&immPacked != 0, Tag: imm &^ immPacked, Total: u.total,
	})
}

// Message handles the message of a notice. When it returns nil the data is in the pieces. The
// message is the caller's again.
func (u *Unpacker) Message(msg []byte) error {
	r, err := ParseNotice(msg, len(u.pieces))
	if err != nil {
		return err
	}
	return u.take(&r)
}

// take accepts a notice once. After a refused notice the move is still expected.
func (u *Unpacker) take(r *Received) error {
	if err := u.check(r); err != nil {
		return err
	}
	if r.Packed {
		from := u.slot[:u.total]
		for _, p := range u.pieces {
			from = from[mem.CopyFor(mem.CopyUnpack, p, from):]
		}
	}
	u.Forget()
	return nil
}

func (u *Unpacker) check(r *Received) error {
	switch {
	case !u.expects:
		return malformed("no move is expected")
	case r.Tag != u.tag:
		return malformed("another move is expected")
	case r.Total != u.total:
		return malformed("the move is longer or shorter than expected")
	case r.Packed && r.Total > uint64(len(u.slot)):
		return malformed("the move does not fit into the slot")
	case r.Count() > 0 && r.Count() != len(u.pieces):
		return malformed("the move has another number of segments than expected")
	}
	for i := range r.Count() {
		if r.Length(i) != uint64(len(u.pieces[i])) {
			return malformed("a segment is longer or shorter than expected")
		}
	}
	return nil
}
