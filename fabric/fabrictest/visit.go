package fabrictest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Visit runs a set of named exchanges against what Serve serves at m.Addr, each on a connection of
// its own. The two must be of the same build.
func Visit(t *testing.T, m Meeting) {
	for _, c := range []struct {
		name string
		run  func(v *visitor)
	}{
		{"messages", (*visitor).messages},
		{"writes", (*visitor).writes},
		{"reads", (*visitor).reads},
		{"immediates", (*visitor).immediates},
		{"pushed", (*visitor).pushed},
		{"pulled", (*visitor).pulled},
		{"refused access", (*visitor).refusals},
		{"the server ends", (*visitor).farewell},
		{"the visitor ends", (*visitor).desert},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newVisitor(t, m)) })
	}
}

// visitor is the dialling side: a side whose memory is slots for messages, then data.
type visitor struct {
	*side
	addr string
}

func newVisitor(t *testing.T, m Meeting) *visitor {
	t.Helper()
	cfg := Config{Patience: m.Patience}.withDefaults()
	v := &visitor{side: &side{t: t, cfg: cfg, dom: m.Domain}, addr: m.Addr}
	v.mem = memory(t, m.Domain, dataStart+meetBytes)
	var err error
	v.cq, err = m.Domain.NewCQ(meetOptions())
	check(t, err)
	v.reg, err = m.Domain.Register(v.mem)
	check(t, err)
	v.dial()
	t.Cleanup(func() {
		check(t, v.ep.Close())
		check(t, v.reg.Close())
		check(t, v.cq.Close())
	})
	return v
}

// dial connects, again after an earlier connection ended.
func (v *visitor) dial() {
	v.t.Helper()
	ctx, cancel := v.cfg.limit()
	defer cancel()
	if v.ep != nil {
		check(v.t, v.ep.Close())
		var dst [3 * meetSlots]fabric.Completion
		v.cq.Poll(dst[:])
		v.seen = nil
	}
	var err error
	v.ep, err = v.dom.Connector().Dial(ctx, v.addr, meetConfig(v.cq))
	check(v.t, err)
	for i := range uint64(meetSlots) {
		v.slotRecv(i)
	}
}

// Slots of receives come first, then those of messages to be sent.
func (v *visitor) slot(i uint64) []byte { return v.piece(int(i)*meetSlot, meetSlot) }
func (v *visitor) data() []byte         { return v.mem[dataStart:] }

func (v *visitor) slotRecv(i uint64) {
	v.t.Helper()
	check(v.t, v.ep.PostRecv([]fabric.Recv{{Context: i, Reg: v.reg, Buf: v.slot(i)}}))
}

// ask sends a request and returns the answer, which is good until the next message comes.
func (v *visitor) ask(verb uint32, seed, length int, rem fabric.Remote) []byte {
	v.t.Helper()
	out := v.slot(meetSlots)[:0]
	out = binary.BigEndian.AppendUint32(out, uint32(seed))
	out = binary.BigEndian.AppendUint32(out, uint32(length))
	for _, n := range []uint64{rem.Key, rem.Addr, rem.Len} {
		out = binary.BigEndian.AppendUint64(out, n)
	}
	v.post(fabric.WR{
		Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: 99, Imm: verb,
		Local: []fabric.Sge{{Reg: v.reg, Buf: out}},
	})
	c := v.waitFor("the request", func(c fabric.Completion) bool { return c.Context == 99 })
	check(v.t, c.Err)
	return v.answer()
}

func (v *visitor) answer() []byte {
	v.t.Helper()
	c := v.waitRecv()
	check(v.t, c.Err)
	v.slotRecv(c.Context) // lockstep: it is used again only 16 messages later
	return v.slot(c.Context)[:c.Len]
}

// window has the server open length bytes that are filled with seed.
func (v *visitor) window(seed, length int) fabric.Remote {
	v.t.Helper()
	a := v.ask(verbGrant, seed, length, fabric.Remote{})
	return fabric.Remote{
		Key: binary.BigEndian.Uint64(a), Addr: binary.BigEndian.Uint64(a[8:]),
		Len: binary.BigEndian.Uint64(a[16:]),
	}
}

// same compares a checksum from the server with memory here.
func (v *visitor) same(answer, want []byte) {
	v.t.Helper()
	if len(answer) != 8 || binary.BigEndian.Uint64(answer) != sumOf(want) {
		v.t.Fatalf("the server's %d bytes are not the visitor's", len(want))
	}
}

// request is one that moves data() at off from or to rem.
func (v *visitor) request(op fabric.Op, off int, rem fabric.Remote) fabric.WR {
	buf := v.data()[off : off+int(rem.Len)]
	return fabric.WR{
		Op: op, Flags: fabric.FlagSignaled, Context: 7, Remote: rem,
		Local: []fabric.Sge{{Reg: v.reg, Buf: buf}},
	}
}

// messages has as many under way as there are slots.
func (v *visitor) messages() {
	list := sizes(min(meetSlot, v.dom.Caps().MaxMessage))
	list = append(list, list...)
	send := func(number int) {
		buf := v.slot(meetSlots + uint64(number)%meetSlots)[:list[number]]
		fill(buf, number)
		v.post(fabric.WR{
			Op: fabric.OpSend, Flags: fabric.FlagSignaled, Imm: verbEcho,
			Local: []fabric.Sge{{Reg: v.reg, Buf: buf}},
		})
	}
	for i := range meetSlots {
		send(i)
	}
	want := make([]byte, meetSlot)
	for i, size := range list {
		c := v.waitRecv()
		check(v.t, c.Err)
		fill(want[:size], i)
		if c.Len != size || !bytes.Equal(v.slot(c.Context)[:size], want[:size]) {
			v.t.Fatalf("message %d of %d bytes came back with %d, or damaged", i, size, c.Len)
		}
		v.slotRecv(c.Context)
		v.done(0, errs.OK)
		if i+meetSlots < len(list) {
			send(i + meetSlots)
		}
	}
}

func (v *visitor) writes() {
	rem := v.window(1, meetBytes)
	mirror := make([]byte, meetBytes)
	fill(mirror, 1)
	fill(v.data(), 2)
	at := 13
	for _, size := range append(sizes(64<<10), 1<<20) {
		from := at * 7 % (meetBytes / 4)
		v.post(v.request(fabric.OpWrite, from, rem.Slice(uint64(at), uint64(size))))
		v.done(7, errs.OK)
		copy(mirror[at:], v.data()[from:from+size])
		at += size/2 + 1
	}
	v.same(v.ask(verbSum, 0, meetBytes, rem), mirror)
	v.post(v.request(fabric.OpWrite, 0, rem))
	v.same(v.ask(verbSum, 0, meetBytes, rem), v.data()) // the message comes behind the write
	v.done(7, errs.OK)
}

func (v *visitor) reads() {
	rem := v.window(3, meetBytes)
	want := make([]byte, meetBytes)
	fill(want, 3)
	at := uint64(1)
	for _, size := range append(sizes(64<<10), 1<<20, meetBytes-1) {
		if at+uint64(size) > meetBytes {
			at = 1
		}
		v.post(v.request(fabric.OpRead, 5*(1-size/(meetBytes-1)), rem.Slice(at, uint64(size))))
		v.done(7, errs.OK)
		got := v.data()[5*(1-size/(meetBytes-1)):][:size]
		if !bytes.Equal(got, want[at:at+uint64(size)]) {
			v.t.Fatalf("read %d bytes at %d: they differ", size, at)
		}
		at += uint64(size)
	}
}

func (v *visitor) immediates() {
	rem := v.window(4, 64<<10)
	mirror := make([]byte, 64<<10)
	fill(mirror, 4)
	for i, size := range sizes(16 << 10) {
		fill(v.data()[:size], 100+i)
		wr := v.request(fabric.OpWriteImm, 0, rem.Slice(uint64(i*1000), uint64(size)))
		wr.Imm = uint32(0xfffffff0 + i)
		v.post(wr)
		if a := v.answer(); len(a) != 4 || binary.BigEndian.Uint32(a) != wr.Imm {
			v.t.Fatalf("answer %x to immediate %x", a, wr.Imm)
		}
		v.done(7, errs.OK)
		copy(mirror[i*1000:], v.data()[:size])
		v.same(v.ask(verbSum, 0, len(mirror), rem), mirror)
	}
}

func (v *visitor) pushed() {
	want := make([]byte, meetBytes)
	for i, size := range append(sizes(64<<10), meetBytes) {
		v.window(i, size)
		fill(want[:size], i)
		off := 2 * meetSlots * meetSlot
		rem := v.grant(off, size, fabric.RemoteWrite)
		v.ask(verbPush, 0, size, rem)
		if !bytes.Equal(v.data()[:size], want[:size]) {
			v.t.Fatalf("the answer overtook %d bytes, or they are damaged", size)
		}
		v.reg.Revoke(rem)
	}
}

func (v *visitor) pulled() {
	for i, size := range append(sizes(64<<10), meetBytes) {
		fill(v.data()[:size], i)
		rem := v.grant(dataStart, size, fabric.RemoteRead)
		v.same(v.ask(verbPull, 0, size, rem), v.data()[:size])
		v.reg.Revoke(rem)
	}
}

// refusals tries what is not allowed: the server's memory stays, and it serves on.
func (v *visitor) refusals() {
	const size = 10000
	want := make([]byte, size+around)
	fill(want, 9)
	for i, change := range []func(*fabric.Remote){
		func(rem *fabric.Remote) { rem.Addr++ },
		func(rem *fabric.Remote) { rem.Addr-- },
		func(rem *fabric.Remote) { rem.Key += 12345 },
		func(rem *fabric.Remote) { v.ask(verbRevoke, 0, 0, *rem) },
	} {
		for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
			rem := v.window(9, size)
			v.post(v.request(op, 0, rem))
			if op == fabric.OpWrite {
				rem = v.window(9, size)
			}
			v.done(7, errs.OK)
			change(&rem)
			clear(v.data()[:size])
			v.post(v.request(op, 0, rem))
			v.done(7, errs.Perm)
			if bytes.Count(v.data()[:size], []byte{0}) != size {
				v.t.Fatalf("access %d: memory here was touched", i)
			}
			if v.dom.Caps().RefusalEnds {
				v.dies(errs.Disconnected)
				v.dial()
				continue
			}
			v.same(v.ask(verbSum, 0, len(want), rem), want)
		}
	}
	v.window(1, 1)
}

func (v *visitor) farewell() {
	out := v.slot(meetSlots)[:askBytes]
	clear(out)
	v.post(fabric.WR{Op: fabric.OpSend, Imm: verbBye, Local: []fabric.Sge{{Reg: v.reg, Buf: out}}})
	for i := range uint64(meetSlots) {
		if c := v.waitRecv(); c.Context != i || c.ErrKind() != errs.Disconnected {
			v.t.Fatalf("receive %d: %+v", i, c)
		}
	}
	v.dies(errs.Disconnected)
	v.dial()
	v.window(1, 1)
}

// desert leaves again and again with everything in flight; the server serves on.
func (v *visitor) desert() {
	for range 5 {
		rem := v.window(1, meetBytes)
		for range meetSlots {
			v.post(v.request(fabric.OpRead, 0, rem.Slice(0, 100000)))
		}
		v.dial()
	}
	v.window(1, 1)
}
