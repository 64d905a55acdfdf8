package exio

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mover"
)

// How a long message goes, with W who writes it and R who reads it:
//
//	W  request: tag, length, pieces  -------------->  R  waits for the read that it is for
//	W  <--------------  accept: where the pieces are     R  has granted them to W
//	W  one-sided writes, one for each piece of R, posted together; an immediate with the last
//	R  has the data: takes the grants back, tells its program
//
// Where W cannot access the memory of R without a copy, but R that of W (shared memory, where only
// the end that listens maps memory of the other one), R fetches it:
//
//	W  request: tag, length, and where the pieces are, granted to R  ------------->
//	R  one-sided reads into its pieces, when there is a read for it
//	W  <--------------  fetched: takes the grants back, tells its program

// loan is what is granted for one message, or registered for it.
type loan struct {
	regions []fabric.Region // of grants
	grants  []fabric.Remote // what was granted, by these
	own     []fabric.Region // made for this message
	slot    *mem.Buf
	unpack  *mover.Unpacker
}

func (l *loan) end() {
	for i, r := range l.regions {
		r.Revoke(l.grants[i])
	}
	for _, r := range l.own {
		_ = r.Close() // all that it is good for is over
	}
	if l.slot != nil {
		l.slot.Return()
	}
}

// ended implements carrier.
func (c *conn) ended(t *task) func() {
	l, _ := t.carry.(*loan)
	if l == nil {
		return nil
	}
	t.carry = nil
	return l.end
}

// loanOf is a task's.
func loanOf(t *task) *loan {
	l, _ := t.carry.(*loan)
	if l == nil {
		l = &loan{}
		t.carry = l
	}
	return l
}

// register is the registration of memory, which is made where there is none.
func (c *conn) register(l *loan, b []byte) (fabric.Region, error) {
	if r := c.link.Memory.region(c.link.Domain, b); r != nil {
		return r, nil
	}
	r, err := c.link.Domain.Register(b)
	if err != nil {
		return nil, errs.Wrap("exio.Register", c.name, err)
	}
	l.own = append(l.own, r)
	return r, nil
}

// grant opens pieces to the peer, and returns what it is to be told of them.
func (c *conn) grant(t *task, pieces [][]byte, rights fabric.Rights) ([]fabric.Remote, error) {
	l := loanOf(t)
	one := func(b []byte) (fabric.Remote, error) {
		reg, err := c.register(l, b)
		if err != nil {
			return fabric.Remote{}, err
		}
		r, err := reg.Grant(c.ep, fabric.OffsetIn(reg.Bytes(), b), len(b), rights)
		if err == nil {
			l.regions, l.grants = append(l.regions, reg), append(l.grants, r)
		}
		return r, err
	}
	var list []fabric.Remote
	if parent := t.op.Parent; parent != nil && len(pieces) > 1 {
		whole, err := one(parent)
		for _, p := range pieces {
			at := fabric.OffsetIn(parent, p)
			if err == nil && at < 0 {
				err = errs.Newf(errs.Invalid, "exio", c.name, "a piece that is not in its parent")
			}
			if err != nil {
				return nil, err
			}
			list = append(list, whole.Slice(uint64(at), uint64(len(p))))
		}
		return list, nil
	}
	for _, p := range pieces {
		r, err := one(p)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// local are pieces of this side as the mover takes them.
func (c *conn) local(t *task, pieces [][]byte) ([]fabric.Sge, error) {
	sges := make([]fabric.Sge, 0, len(pieces))
	for _, p := range pieces {
		reg := c.link.Memory.region(c.link.Domain, p)
		if reg == nil && !c.caps.AnyMemory {
			var err error
			if reg, err = c.register(loanOf(t), p); err != nil {
				return nil, err
			}
		}
		sges = append(sges, fabric.Sge{Reg: reg, Buf: p})
	}
	return sges, nil
}

// sendRequest implements carrier.
func (c *conn) sendRequest(h header, t *task) error {
	pieces := head(t.op.Pieces, t.bytes)
	p := places{pieces: len(pieces)}
	if c.fetched {
		var err error
		if p.list, err = c.grant(t, pieces, fabric.RemoteRead); err != nil {
			return c.wroteLocked(t, err) // the message, not the connection
		}
	}
	return c.send(nil, func(b []byte) []byte { return p.append(h.append(b), kindRequest) })
}

// controlLocked takes a message that has no data.
func (c *conn) controlLocked(h *header, body []byte) error {
	switch h.kind {
	case kindCredit:
		return nil
	case kindRequest:
		p, err := parsePlaces(body, h.kind, h.length)
		if err != nil {
			return err
		}
		return c.arrived(&arrival{tag: h.tag, note: h.note, length: int(h.length), id: h.id, carry: &p})
	case kindAccept, kindRefuse, kindFetched:
		t, err := c.lookLocked(c.writes, h.id)
		if err != nil {
			return err
		}
		byPeer := c.fetched || t.bytes == 0
		if t.moving || h.kind == kindAccept && byPeer || h.kind == kindFetched && !byPeer {
			return malformed("a message that was not asked for")
		}
		if h.kind == kindAccept {
			return c.acceptedLocked(h, body, t)
		}
		return c.answeredLocked(body, t)
	}
	return malformed("a message of kind %d", h.kind)
}

// answeredLocked ends a write by what the reader says of it.
func (c *conn) answeredLocked(body []byte, t *task) error {
	kind, err := parseKind(body)
	if err != nil {
		return err
	}
	var failed error
	if kind != errs.OK {
		failed = errs.Newf(kind, "exio.Write", c.name, "the reader has refused the message")
	}
	return c.wroteLocked(t, failed)
}

// acceptedLocked moves a message to where its reader wants it.
func (c *conn) acceptedLocked(h *header, body []byte, t *task) error {
	p, err := parsePlaces(body, kindAccept, uint64(t.bytes))
	if err != nil {
		return err
	}
	if h.peer > mover.MaxTag {
		return malformed("a tag that is out of range")
	}
	c.move(t, &c.puts[t.id], mover.Put, t.op.Pieces, p.list, mover.Run{
		Slot: p.slot, Notice: mover.Notice{How: mover.Immediate, Tag: h.peer},
	}, func(err error) error { return c.wroteLocked(t, err) })
	return nil
}

// move begins to move data when the lock is free. over is called with the lock; an error of the
// move, or of over, ends the connection.
func (c *conn) move(t *task, plan **mover.Plan, dir mover.Direction, pieces [][]byte,
	list []fabric.Remote, run mover.Run, over func(error) error) {

	t.moving = true
	c.running.Add(1)
	c.moves.Add(1)
	run.Done = func(err error) {
		c.moves.Add(-1)
		c.mu.Lock()
		if err != nil {
			err = errs.Wrap("exio", c.name, err)
			c.brokenLocked(err)
		}
		c.brokenLocked(over(err))
		c.leave()
	}
	c.later = append(c.later, func() {
		defer c.running.Done()
		err := c.begin(t, plan, dir, pieces, list, run)
		if err != nil {
			run.Done(err)
			c.cq.Wake() // no completion tells that this was the last
		}
	})
}

func (c *conn) begin(t *task, plan **mover.Plan, dir mover.Direction, pieces [][]byte,
	list []fabric.Remote, run mover.Run) error {

	sges, err := c.local(t, head(pieces, bytesOf(pieces)))
	if err != nil {
		return err
	}
	if *plan == nil {
		*plan, err = c.mover.NewPlan(dir, sges, list)
	} else {
		err = (*plan).Reset(dir, sges, list)
	}
	if err != nil {
		return err
	}
	return c.mover.Start(*plan, run)
}

// accept implements carrier.
func (c *conn) accept(t *task, a *arrival, want [][]byte) error {
	p := a.carry.(*places)
	if a.length == 0 {
		c.filledLocked(t, nil)
		return c.sendWord(c.stampLocked(header{kind: kindFetched, id: a.id}), errs.OK)
	}
	if len(p.list) > 0 {
		c.move(t, &c.gets[t.id], mover.Get, want, p.list, mover.Run{}, func(err error) error {
			c.filledLocked(t, err)
			return c.sendWord(c.stampLocked(header{kind: kindFetched, id: a.id}), errs.KindOf(err))
		})
		return nil
	}
	list, err := c.grant(t, want, fabric.RemoteWrite)
	if err != nil {
		c.filledLocked(t, err)
		return c.sendWord(c.stampLocked(header{kind: kindRefuse, id: a.id}), errs.KindOf(err))
	}
	answer := places{list: list}
	if err := c.offerSlot(t, p, want, &answer); err != nil {
		return err
	}
	h := c.stampLocked(header{kind: kindAccept, id: a.id, peer: t.id, length: uint64(a.length)})
	return c.send(nil, func(b []byte) []byte { return answer.append(h.append(b), kindAccept) })
}

// offerSlot prepares for data that comes packed, if the writer finds that better.
func (c *conn) offerSlot(t *task, p *places, want [][]byte, answer *places) error {
	l := loanOf(t)
	var slot []byte
	if (len(want) > 1 || p.pieces > 1) && t.sent <= slotBytes {
		if l.slot = c.slots.TryTake(); l.slot != nil {
			slot = l.slot.Bytes()
			r, err := c.region.Grant(c.ep, fabric.OffsetIn(c.region.Bytes(), slot), t.sent,
				fabric.RemoteWrite)
			if err != nil {
				return err
			}
			l.regions, l.grants = append(l.regions, c.region), append(l.grants, r)
			answer.slot = r
		}
	}
	l.unpack = mover.NewUnpacker(slot)
	return l.unpack.Expect(t.id, want)
}

// noticeLocked takes the notice that a message is there.
func (c *conn) noticeLocked(imm uint32) error {
	t, err := c.lookLocked(c.reads, imm&mover.MaxTag)
	if err != nil {
		return err
	}
	l := loanOf(t)
	if l.unpack == nil {
		return malformed("a notice for a message that is being fetched")
	}
	if err := l.unpack.Imm(imm); err != nil {
		return err
	}
	c.filledLocked(t, nil)
	return nil
}
