package msg

import (
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg/internal/eager"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// This file is the client's side of eager slots, see package eager.

// eagerGroup is how many work requests one eager write may take.
const eagerGroup = 4

// eagerFor finds a slot for request data; -1 for none. It asks for slots where one would have been
// used.
func (c *Conn) eagerFor(m *Memory) int {
	n := m.Len()
	if n > int64(c.rung.limits.EagerMax) || !c.gathers(m) {
		return -1
	}
	c.mu.Lock()
	slot, ask := c.held.Take(n)
	c.mu.Unlock()
	if ask {
		h := wire.Header{Kind: wire.KindControl, Op: opWant, Credits: eager.WantSlots}
		_ = c.sendPlain(&parcel{}, h.Append(c.bufs.Send(len(c.slots) + maxCancels + 2)[:0]))
	}
	return slot
}

// gathers tells whether memory can be written to a slot by few work requests.
func (c *Conn) gathers(m *Memory) bool {
	pieces := m.Access.Pieces() + int64(len(m.Windows))
	return pieces <= int64(eagerGroup/2*c.caps.MaxSge) &&
		m.Len() <= int64(eagerGroup/2)*int64(c.caps.MaxTransfer)
}

// given takes new slots; none in the message means that the server has none to lend.
func (c *Conn) given(body []byte) error {
	gifts, err := eager.DecodeGifts(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.Given(gifts)
}

// giveBack returns the slots that carry no request.
func (c *Conn) giveBack() {
	c.mu.Lock()
	set := c.held.GiveBack()
	c.mu.Unlock()
	_ = c.sendControl(c.bufs.Send(len(c.slots)+maxCancels+3), opBack, set)
}

// sendEager writes the data into the slot's memory at the server and the message behind it, in one
// chain.
func (c *Conn) sendEager(s *slot, m *Memory, msg []byte) error {
	ch := c.node.chains.Get().(*segment.Chain)
	defer func() {
		ch.Reset()
		c.node.chains.Put(ch)
	}()
	c.mu.Lock()
	remote := c.held.Remote(s.eager)
	c.mu.Unlock()
	ch.Gather(&c.caps, kindPlain, &s.spaces[0], m, remote)
	if m.Domain == nil || m.Domain != c.rung.domain { // else the windows name their regions
		if err := c.localize(ch.WRs); err != nil {
			return err
		}
	}
	s.parcel.pieces = [2]fabric.Sge{{Reg: c.bufs.Region(), Buf: msg}}
	flags := fabric.FlagSignaled | fabric.FlagSolicited // so that the writes' places come back soon
	if len(msg) <= c.inlineMax {
		flags |= fabric.FlagInline
	}
	ch.WRs = append(ch.WRs, fabric.WR{
		Op: fabric.OpSend, Flags: flags, Context: kindPlain, Local: s.parcel.pieces[:1],
	})
	return c.post(ch.WRs)
}

// fence waits until the provider has completed everything that was posted before: the memory of an
// eager write that is given up must not be read afterwards. It is not needed after a reply.
func (c *Conn) fence(s *slot) {
	select { // a signal of an earlier fence
	case <-s.fenced:
	default:
	}
	wrs := []fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Context: kindFence | uint64(s.index),
	}}
	if c.post(wrs) != nil {
		<-c.ended
		return
	}
	c.duty.EnsurePolling() // no other caller may be polling
	select {
	case <-s.fenced:
	case <-c.ended:
	}
}
