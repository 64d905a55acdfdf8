package msg

import (
	"math/bits"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// lent are the eager slots that a client holds at its server, see eager.go. Guarded by Conn.mu.
type lent struct {
	slots  [maxEager]fabric.Remote
	held   uint64 // set of slots that are ours
	free   uint64 // of these, without a request
	asked  bool   // for more, and not answered
	silent int    // so many requests go without asking, after the server had none
}

const (
	wantSlots  = 2   // how many are asked for at once
	wantPause  = 256 // requests without asking, after the server had nothing to give
	eagerGroup = 4   // work requests that one eager write may take
)

// eagerFor finds a slot for n bytes of request data; -1 for none. It asks for slots where one would
// have been used.
func (c *Conn) eagerFor(m *Memory) int {
	n := m.Len()
	if n > int64(c.rung.limits.EagerMax) || !c.gathers(m) {
		return -1
	}
	c.mu.Lock()
	x := &c.lent
	if x.free != 0 {
		i := bits.TrailingZeros64(x.free)
		if uint64(n) <= x.slots[i].Len {
			x.free &^= 1 << i
			c.mu.Unlock()
			return i
		}
	}
	ask := !x.asked && x.silent == 0
	x.asked = x.asked || ask
	x.silent = max(x.silent-1, 0)
	c.mu.Unlock()
	if ask {
		h := wire.Header{Kind: wire.KindControl, Op: opWant, Credits: wantSlots}
		_ = c.sendPlain(&parcel{}, h.Append(c.sendBuf(len(c.slots) + maxCancels + 2)[:0]))
	}
	return -1
}

// gathers tells whether memory can be written to a slot by few work requests.
func (c *Conn) gathers(m *Memory) bool {
	pieces := m.Access.Pieces() + int64(len(m.Windows))
	return pieces <= int64(eagerGroup/2*c.caps.MaxSge) &&
		m.Len() <= int64(eagerGroup/2)*int64(c.caps.MaxTransfer)
}

// given takes new slots, or the news that there are none.
func (c *Conn) given(body []byte) error {
	remotes, err := decodeGive(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	x := &c.lent
	if !x.asked || len(remotes) > wantSlots {
		return errs.Newf(errs.Protocol, "msg", c.name, "eager slots that were not asked for")
	}
	x.asked = false
	if len(remotes) == 0 {
		x.silent = wantPause
	}
	for _, g := range remotes {
		if x.held&(1<<g.index) != 0 {
			return errs.Newf(errs.Protocol, "msg", c.name, "an eager slot given twice")
		}
		x.held |= 1 << g.index
		x.free |= 1 << g.index
		x.slots[g.index] = g.remote
	}
	return nil
}

// gift is a slot that the server gives.
type gift struct {
	index  int
	remote fabric.Remote
}

// decodeGive reads the body of opGive.
func decodeGive(body []byte) ([]gift, error) {
	if len(body)%giveBytes != 0 || len(body) > giveMax*giveBytes {
		return nil, errs.Newf(errs.Protocol, "msg", "", "eager slots in %d bytes", len(body))
	}
	var all []gift
	d := wire.NewDec(body)
	for range len(body) / giveBytes {
		index := d.U64()
		r := fabric.Remote{Key: d.U64(), Addr: d.U64(), Len: d.U64()}
		if index >= maxEager || r.Addr+r.Len < r.Addr {
			return nil, errs.Newf(errs.Protocol, "msg", "", "eager slot %d", index)
		}
		all = append(all, gift{int(index), r})
	}
	return all, d.Err()
}

// giveBack returns the slots that carry no request.
func (c *Conn) giveBack() {
	c.mu.Lock()
	x := &c.lent
	set := x.free
	x.held &^= set
	x.free = 0
	c.mu.Unlock()
	_ = c.sendControl(c.sendBuf(len(c.slots)+maxCancels+3), opBack, set)
}

// freeSlotLocked ends the use of an eager slot: its request was answered.
func (c *Conn) freeSlotLocked(s *slot) {
	if s.eager >= 0 {
		c.lent.free |= 1 << s.eager & c.lent.held
		s.eager = -1
	}
}

// sendEager writes the data into the slot's memory at the server and the message behind it, in one
// chain.
func (c *Conn) sendEager(s *slot, m *Memory, msg []byte) error {
	ch := c.node.chains.Get().(*chain)
	defer func() {
		ch.release()
		c.node.chains.Put(ch)
	}()
	c.mu.Lock()
	remote := c.lent.slots[s.eager]
	c.mu.Unlock()
	if err := c.gatherInto(ch, s, m, remote); err != nil {
		return err
	}
	s.parcel.pieces = [2]fabric.Sge{{Reg: c.arena.Region(), Buf: msg}}
	flags := fabric.FlagSignaled | fabric.FlagSolicited // so that the writes' places come back soon
	if len(msg) <= c.inlineMax {
		flags |= fabric.FlagInline
	}
	ch.wrs = append(ch.wrs, fabric.WR{
		Op: fabric.OpSend, Flags: flags, Context: kindPlain, Local: s.parcel.pieces[:1],
	})
	return c.post(ch.wrs)
}

// gatherInto builds the writes of the stream of m to consecutive bytes of remote.
func (c *Conn) gatherInto(ch *chain, s *slot, m *Memory, remote fabric.Remote) error {
	ch.wrs, ch.sges = ch.wrs[:0], ch.sges[:0]
	w := segment.Walk(&s.spaces[0], m.Access, 0)
	var at, off uint64
	from := 0
	flush := func() {
		ch.wrs = append(ch.wrs, fabric.WR{
			Op: fabric.OpWrite, Context: kindPlain, Local: ch.sges[from:len(ch.sges):len(ch.sges)],
			Remote: remote.Slice(off, at-off),
		})
		from, off = len(ch.sges), at
	}
	for {
		r, ok := w.Peek()
		if !ok {
			break
		}
		room := uint64(c.caps.MaxTransfer) - (at - off)
		if len(ch.sges)-from == c.caps.MaxSge || room == 0 {
			flush()
			continue
		}
		n := min(r.N, int64(room))
		win := &m.Windows[r.Win]
		reg, err := c.regionFor(win)
		if err != nil {
			return err
		}
		ch.sges = append(ch.sges, fabric.Sge{Reg: reg, Buf: win.Buf[r.Off : r.Off+n : r.Off+n]})
		at += uint64(n)
		w.Take(n)
	}
	if at > off {
		flush()
	}
	return nil
}

// fence waits until the provider has done with everything that was posted before: the memory of an
// eager write that is given up must not be read afterwards. It is not needed after a reply.
func (c *Conn) fence(s *slot) {
	select { // what an earlier one left behind
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
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.fenced:
			return
		case <-c.ended:
			return
		case <-tick.C:
			c.duty.Need() // nobody may be waiting for anything else
		}
	}
}
