package fabrictest

import (
	"context"
	"encoding/binary"
	"hash/crc64"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Meeting is one side of an exchange between two domains that may live in two processes or on two
// hosts: one side calls Serve, the other one Visit.
type Meeting struct {
	Domain fabric.Domain // stays the caller's
	Addr   string        // Serve: where to listen; Visit: what Serve told

	// Patience bounds every wait of Visit. Default a minute.
	Patience time.Duration
}

// What a visitor asks for is the immediate of its message. Every message is answered by one, in
// order, from the memory that it came in. Behind verbEcho come any bytes; behind the others
//
//	0    4      8       32
//	|seed|length|remote |   big-endian
const (
	verbEcho   = iota + 1 // the same bytes come back
	verbGrant             // fill length bytes with seed and open them: the answer is a Remote
	verbSum               // the answer is the checksum of length bytes of it
	verbRevoke            // end the grant
	verbPush              // write length bytes of it to the visitor's memory before the answer
	verbPull              // read length bytes into it from there; the answer is their checksum
	verbBye               // close the connection
)

const (
	meetSlots = 16       // messages under way
	meetSlot  = 32 << 10 // bytes of a message at most
	meetBytes = 4 << 20  // of memory to write and read
	dataStart = 2 * meetSlots * meetSlot
	askBytes  = 32
	around    = 4096 // bytes behind what is opened, which nobody may touch
)

func sumOf(b []byte) uint64 { return crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)) }

// meetConfig is the same at both sides.
func meetConfig(q fabric.CQ) fabric.EndpointConfig {
	return fabric.EndpointConfig{
		SendCQ: q, RecvCQ: q, SendDepth: 2 * meetSlots, RecvDepth: meetSlots,
	}
}

func meetOptions() fabric.CQOptions { return fabric.CQOptions{Depth: 3 * meetSlots} }

// Serve serves visitors until ctx ends. It calls tell with its address when they may come. What a
// visitor does wrong ends its connection only.
func Serve(ctx context.Context, m Meeting, tell func(addr string)) error {
	l, err := m.Domain.Connector().Listen(m.Addr)
	if err != nil {
		return err
	}
	defer l.Close()
	tell(l.Addr().String())
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		h, err := newHost(m.Domain)
		if err != nil {
			return err
		}
		h.ep, err = l.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return meetConfig(h.cq), nil
		})
		if err != nil {
			h.close()
			if errs.KindOf(err) == errs.Closed {
				return err
			}
			continue
		}
		wg.Go(func() {
			defer h.close()
			_ = h.serve(ctx) // the visitor sees it as the end of the connection
		})
	}
	return nil
}

// host serves one visitor. A message is taken out of its receive, which is posted again before the
// answer leaves: so a visitor may have as many under way as there are slots.
type host struct {
	cq   fabric.CQ
	ep   fabric.Endpoint
	reg  fabric.Region
	mem  []byte // slots of receives, slots of answers, then the meetBytes that are opened
	free func() error
	open fabric.Remote
	busy [meetSlots]bool               // the answer to receive i has not left
	held [meetSlots]*fabric.Completion // came in receive i meanwhile
}

func newHost(dom fabric.Domain) (*host, error) {
	h := &host{}
	var err error
	if h.mem, h.free, err = allocate(dom, dataStart+meetBytes); err != nil {
		return nil, err
	}
	if h.reg, err = dom.Register(h.mem); err == nil {
		h.cq, err = dom.NewCQ(meetOptions())
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *host) close() {
	if h.ep != nil {
		_ = h.ep.Close()
	}
	if h.cq != nil {
		_ = h.cq.Close()
	}
	if h.reg != nil {
		_ = h.reg.Close()
	}
	_ = h.free()
}

func (h *host) slot(i uint64) []byte { return h.mem[i*meetSlot : (i+1)*meetSlot] }
func (h *host) out(i uint64) []byte  { return h.slot(meetSlots + i) }
func (h *host) data() []byte         { return h.mem[dataStart:] }

func (h *host) recv(i uint64) fabric.Recv {
	return fabric.Recv{Context: i, Reg: h.reg, Buf: h.slot(i)}
}

func (h *host) serve(ctx context.Context) error {
	var recvs []fabric.Recv // all at once: messages may come when the first is posted
	for i := range uint64(meetSlots) {
		recvs = append(recvs, h.recv(i))
	}
	if err := h.ep.PostRecv(recvs); err != nil {
		return err
	}
	for {
		var c [1]fabric.Completion
		n, err := h.cq.Wait(ctx, c[:])
		if n == 0 && err == nil {
			continue
		}
		if err == nil {
			err = c[0].Err
		}
		if err != nil {
			return err
		}
		switch i := c[0].Context; c[0].Op {
		case fabric.OpSend: // the answer has left
			h.busy[i] = false
			if next := h.held[i]; next != nil {
				h.held[i], err = nil, h.act(i, next)
			}
		case fabric.OpRead: // what was pulled is here
			ask := h.out(i)
			length := binary.BigEndian.Uint32(ask[4:])
			err = h.answer(i, binary.BigEndian.AppendUint64(ask[:0], sumOf(h.data()[:length])))
		case fabric.OpRecv:
			if h.busy[i] {
				h.held[i] = &c[0]
				continue
			}
			err = h.act(i, &c[0])
		}
		if err != nil {
			return err
		}
	}
}

// answer sends bytes of out(i), behind what else is posted with it.
func (h *host) answer(i uint64, data []byte, before ...fabric.WR) error {
	return h.ep.Post(append(before, fabric.WR{
		Op: fabric.OpSend, Flags: fabric.FlagSignaled, Context: i,
		Local: []fabric.Sge{{Reg: h.reg, Buf: data}},
	}))
}

// act does what the message in slot i asks for.
func (h *host) act(i uint64, c *fabric.Completion) error {
	slot := h.out(i)
	if !c.WithImm {
		copy(slot, h.slot(i)[:c.Len])
	}
	h.busy[i] = true
	if err := h.ep.PostRecv([]fabric.Recv{h.recv(i)}); err != nil {
		return err
	}
	if c.WithImm { // the answer to an immediate is the immediate
		return h.answer(i, binary.BigEndian.AppendUint32(slot[:0], c.Imm))
	}
	if c.Imm == verbEcho {
		return h.answer(i, slot[:c.Len])
	}
	if c.Len != askBytes {
		return errs.Newf(errs.Protocol, "fabrictest.Serve", "", "%d bytes of request", c.Len)
	}
	length := int(binary.BigEndian.Uint32(slot[4:]))
	if length > meetBytes {
		return errs.Newf(errs.Protocol, "fabrictest.Serve", "", "%d bytes asked for", length)
	}
	local := []fabric.Sge{{Reg: h.reg, Buf: h.data()[:length]}}
	to := fabric.Remote{
		Key: binary.BigEndian.Uint64(slot[8:]), Addr: binary.BigEndian.Uint64(slot[16:]),
		Len: binary.BigEndian.Uint64(slot[24:]),
	}
	switch c.Imm {
	case verbGrant:
		return h.grant(i, int(binary.BigEndian.Uint32(slot)), length)
	case verbSum:
		return h.answer(i, binary.BigEndian.AppendUint64(slot[:0], sumOf(local[0].Buf)))
	case verbRevoke:
		h.reg.Revoke(h.open)
		return h.answer(i, nil)
	case verbPush:
		return h.answer(i, nil, fabric.WR{Op: fabric.OpWrite, Local: local, Remote: to})
	case verbPull:
		return h.ep.Post([]fabric.WR{{
			Op: fabric.OpRead, Flags: fabric.FlagSignaled, Context: i, Local: local, Remote: to,
		}})
	}
	return errs.Newf(errs.Closed, "fabrictest.Serve", "", "verb %d", c.Imm) // verbBye, and nonsense
}

func (h *host) grant(i uint64, seed, length int) error {
	fill(h.data()[:min(length+around, meetBytes)], seed)
	var err error
	const both = fabric.RemoteRead | fabric.RemoteWrite
	if h.open, err = h.reg.Grant(h.ep, dataStart, length, both); err != nil {
		return err
	}
	out := h.out(i)[:0]
	for _, v := range []uint64{h.open.Key, h.open.Addr, h.open.Len} {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return h.answer(i, out)
}
