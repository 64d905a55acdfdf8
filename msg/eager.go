package msg

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// Eager slots are memory of the server that one client may write, and nobody else may use, for as
// long as it holds them: request data of a middling size goes there, and is behind the server's
// door when the request is. A client that could use slots asks for them (opWant); the server gives
// what it can spare (opGive); slots that a connection has not used for a while are asked back
// (opTake), and the client gives back those that are free (opBack). An idle connection has none.
//
// The client can write at any time, so nothing in a slot is believed: Pull copies, and what was
// copied is looked at. A slot carries one request until that is answered.
//
// The body of opGive, for each slot:
//
//	0      8        16       24       32
//	|index |key     |addr    |len     |
const giveBytes = 32

// giveMax is how many slots one message gives: it fits every message.
const giveMax = minBody / giveBytes / 2

// eagerSlots are a connection's slots, at the server. Guarded by serverConn.mu.
type eagerSlots struct {
	user   *mem.User // nil until there was a first one
	slots  [maxEager]eagerSlot
	held   uint64 // set of slots that the client has
	uses   uint64
	seen   uint64    // uses, at the last sweep
	since  time.Time // when the sweep last saw uses change
	taking bool      // slots were asked back
}

type eagerSlot struct {
	buf    *mem.Buf
	remote fabric.Remote
	refs   int // calls that were sent with it and are not answered
}

// want gives slots to the client. Taking memory does not wait.
func (s *serverConn) want(buf int, h *wire.Header) {
	s.repost(buf)
	give := s.sendBuf(len(s.calls) + maxCancels + 4)
	e := wire.Enc{B: give[:wire.HeaderBytes]}
	s.mu.Lock()
	for range min(int(h.Credits), giveMax) {
		if !s.giveLocked(&e) {
			break
		}
	}
	s.mu.Unlock()
	reply := wire.Header{
		Kind: wire.KindControl, Op: opGive, BodyLen: uint32(len(e.B) - wire.HeaderBytes),
	}
	reply.Append(give[:0])
	_ = s.sendPlain(&parcel{}, e.B) // a failure has ended the link
}

// giveLocked takes memory for one more slot and grants it.
func (s *serverConn) giveLocked(e *wire.Enc) bool {
	x, opts := &s.eager, &s.node.opts
	index, size := bits.TrailingZeros64(^x.held), s.rung.limits.EagerMax
	if index >= opts.EagerSlots || size == 0 || opts.Memory == 0 || s.over.Load() {
		return false
	}
	if x.user == nil {
		u, err := s.node.store.open(s.name)
		if err != nil {
			return false
		}
		x.user = u
	}
	buf := s.slotBuf(size)
	if buf == nil {
		return false
	}
	sge := buf.SgeOf(s.rung.domain, 0, buf.Len())
	remote, err := sge.Reg.Grant(s.ep, offsetIn(sge.Reg.Bytes(), sge.Buf), size, fabric.RemoteWrite)
	if err != nil {
		s.node.store.eager.Add(-int64(buf.Len()))
		buf.Return()
		return false
	}
	x.held |= 1 << index
	x.slots[index] = eagerSlot{buf: buf, remote: remote}
	x.uses++ // it is about to be used
	e.U64(uint64(index))
	e.U64(remote.Key)
	e.U64(remote.Addr)
	e.U64(remote.Len)
	return true
}

// slotBuf takes one buffer that counts as a slot; nil if there is none to spare.
func (s *serverConn) slotBuf(size int) *mem.Buf {
	var room [4]*mem.Buf
	bufs, ok := s.eager.user.TryTake(size, room[:0])
	if ok && len(bufs) == 1 && s.node.store.lend(bufs[0].Len()) {
		return bufs[0]
	}
	for _, b := range bufs { // chopped, or beyond the bound
		b.Return()
	}
	return nil
}

// back takes slots from the client again.
func (s *serverConn) back(buf int, set uint64) {
	s.repost(buf)
	s.mu.Lock()
	x := &s.eager
	bad := set&^x.held != 0 || !x.taking
	x.taking = false
	var out [maxEager]eagerSlot
	n := 0
	for ; set != 0 && !bad; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		if bad = x.slots[i].refs > 0; !bad {
			out[n] = s.takeSlotLocked(i)
			n++
		}
	}
	s.mu.Unlock()
	for i := range n {
		s.dropSlot(&out[i])
	}
	if bad {
		s.fail(errs.Newf(errs.Protocol, "msg", s.name, "eager slots given back that it has not"))
	}
}

// takeSlotLocked removes a slot from the table.
func (s *serverConn) takeSlotLocked(i int) eagerSlot {
	slot := s.eager.slots[i]
	s.eager.slots[i] = eagerSlot{}
	s.eager.held &^= 1 << i
	return slot
}

// dropSlot revokes a slot and returns its memory.
func (s *serverConn) dropSlot(slot *eagerSlot) {
	slot.buf.SgeOf(s.rung.domain, 0, 0).Reg.Revoke(slot.remote)
	s.node.store.eager.Add(-int64(slot.buf.Len()))
	slot.buf.Return()
}

// useSlot finds the data of a request in its slot. It stays there until the call is answered.
func (s *serverConn) useSlot(c *Call) error {
	i := c.out.Slot
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.eager
	if i >= maxEager || x.held&(1<<i) == 0 || uint64(c.out.Length) > x.slots[i].remote.Len {
		return segment.Malformed("an eager slot that it does not have")
	}
	x.uses++
	x.slots[i].refs++
	c.slotRef = true
	c.eager = x.slots[i].buf.Bytes()[:c.out.Length]
	return nil
}

// unuseSlotLocked ends a call's use of its slot.
func (s *serverConn) unuseSlotLocked(c *Call) {
	if c.slotRef {
		s.eager.slots[c.out.Slot].refs--
		c.slotRef, c.eager = false, nil
	}
}

// sweepSlots asks slots back that nobody has used for a while.
func (s *serverConn) sweepSlots(now time.Time) {
	s.mu.Lock()
	x := &s.eager
	if x.uses != x.seen || x.since.IsZero() {
		x.seen, x.since = x.uses, now
	}
	ask := x.held != 0 && !x.taking && now.Sub(x.since) > s.node.opts.EagerIdle
	if ask {
		x.taking = true
	}
	s.mu.Unlock()
	if ask {
		_ = s.sendControl(s.sendBuf(len(s.calls)+maxCancels+5), opTake, 0)
	}
}

// closeSlots returns all memory of slots: the endpoint is closed and no call is left.
func (s *serverConn) closeSlots() {
	s.mu.Lock()
	var out [maxEager]eagerSlot
	n := 0
	for ; s.eager.held != 0; n++ {
		out[n] = s.takeSlotLocked(bits.TrailingZeros64(s.eager.held))
	}
	user := s.eager.user
	s.eager.user = nil
	s.mu.Unlock()
	for i := range n {
		s.dropSlot(&out[i])
	}
	if user != nil {
		s.node.store.leave(user)
	}
}
