package msg

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg/internal/eager"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// This file is the server's side of eager slots, see package eager.

// want gives slots to the client. Taking memory does not wait.
func (s *serverConn) want(buf int, h *wire.Header) {
	s.repost(buf)
	give := s.bufs.Send(len(s.calls) + maxCancels + 4)
	e := wire.Enc{B: give[:wire.HeaderBytes]}
	s.mu.Lock()
	for range min(int(h.Credits), eager.GiftsMax) {
		g, ok := s.lent.Give(&s.node.store, s.name, s.node.opts.EagerSlots, s.rung.limits.EagerMax,
			s.grantSlot)
		if !ok {
			break
		}
		g.Append(&e)
	}
	s.mu.Unlock()
	reply := wire.Header{
		Kind: wire.KindControl, Op: opGive, BodyLen: uint32(len(e.B) - wire.HeaderBytes),
	}
	reply.Append(give[:0])
	_ = s.sendPlain(&parcel{}, e.B) // a failure has ended the link
}

// grantSlot opens a buffer to the client.
func (s *serverConn) grantSlot(buf *mem.Buf) (fabric.Remote, error) {
	if s.over.Load() {
		return fabric.Remote{}, s.err()
	}
	sge := buf.SgeOf(s.rung.domain, 0, buf.Len())
	return sge.Reg.Grant(s.ep, fabric.OffsetIn(sge.Reg.Bytes(), sge.Buf), s.rung.limits.EagerMax,
		fabric.RemoteWrite)
}

// dropSlots revokes slots and frees their memory.
func (s *serverConn) dropSlots(slots []eager.Slot) {
	for i := range slots {
		slots[i].Buf.SgeOf(s.rung.domain, 0, 0).Reg.Revoke(slots[i].Remote)
		s.node.store.Drop(slots[i].Buf)
	}
}

// back takes slots from the client again.
func (s *serverConn) back(buf int, set uint64) {
	s.repost(buf)
	var room [eager.MaxSlots]eager.Slot
	s.mu.Lock()
	slots, ok := s.lent.Back(set, room[:0])
	s.mu.Unlock()
	s.dropSlots(slots)
	if !ok {
		s.fail(errs.Newf(errs.Protocol, "msg", s.name, "eager slots given back that it has not"))
	}
}

// useSlot finds the data of a request in its slot. It stays there until the call is answered.
func (s *serverConn) useSlot(c *Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.eager, c.slotRef = s.lent.Use(c.out.Slot, c.out.Length); !c.slotRef {
		return segment.Malformed("an eager slot that it does not have")
	}
	return nil
}

// unuseSlotLocked ends a call's use of its slot.
func (s *serverConn) unuseSlotLocked(c *Call) {
	if c.slotRef {
		s.lent.Unuse(c.out.Slot)
		c.slotRef, c.eager = false, nil
	}
}

// sweepSlots asks for slots back that were not used for EagerIdle.
func (s *serverConn) sweepSlots(now time.Time) {
	s.mu.Lock()
	ask := s.lent.Idle(now, s.node.opts.EagerIdle)
	s.mu.Unlock()
	if ask {
		_ = s.sendControl(s.bufs.Send(len(s.calls)+maxCancels+5), opTake, 0)
	}
}

// closeSlots frees all memory of slots: the endpoint is closed and no call is left.
func (s *serverConn) closeSlots() {
	var room [eager.MaxSlots]eager.Slot
	s.mu.Lock()
	slots, user := s.lent.Close(room[:0])
	s.mu.Unlock()
	s.dropSlots(slots)
	if user != nil {
		s.node.released(s.node.store.Leave(user))
	}
}
