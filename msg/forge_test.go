package msg

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// raw is a peer that sends what it likes.
type raw struct {
	t  testing.TB
	ep fabric.Endpoint
	cq fabric.CQ
	in [][]byte
}

func newRaw(t testing.TB, r *rig, receives bool) *raw {
	t.Helper()
	cfg, err := r.client.config(r.client.rungs[0], 8)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := r.cdom.Connector().Dial(context.Background(), r.srv.Addr(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &raw{t: t, ep: ep, cq: cfg.RecvCQ}
	for i := range 16 {
		s := memory(t, r.cdom, 16<<10)
		p.in = append(p.in, s.Buf)
		if receives {
			err := ep.PostRecv([]fabric.Recv{{Context: uint64(i), Reg: s.Reg, Buf: s.Buf}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		_ = ep.Close()
		_ = p.cq.Close()
	})
	return p
}

func (p *raw) send(msg []byte) {
	p.t.Helper()
	err := p.ep.Post([]fabric.WR{{Op: fabric.OpSend, Local: []fabric.Sge{{Buf: msg}}}})
	if err != nil {
		p.t.Fatal(err)
	}
}

// answer is the next message, or the error that ended the connection.
func (p *raw) answer() (wire.Header, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var c [1]fabric.Completion
	for {
		if _, err := p.cq.Wait(ctx, c[:]); err != nil {
			return wire.Header{}, err
		}
		if c[0].Err != nil {
			return wire.Header{}, c[0].Err
		}
		if c[0].Op == fabric.OpRecv {
			var h wire.Header
			_, _, err := h.Parse(p.in[c[0].Context][:c[0].Len])
			return h, err
		}
	}
}

func rawRequest(id uint64, pieces uint32, body, inline []byte) []byte {
	h := wire.Header{
		Kind: wire.KindRequest, RequestID: id, Pieces: pieces,
		BodyLen: uint32(len(body)), InlineLen: uint32(len(inline)),
	}
	return append(append(h.Append(nil), body...), inline...)
}

func describeOne(role uint8, r fabric.Remote, a seg.Access) []byte {
	var e wire.Enc
	segment.AppendRemote(&e, role, []fabric.Remote{r}, a)
	return e.B
}

// forged are descriptions that must be refused, each in a request of its own.
func forged() map[string]struct {
	body   []byte
	pieces uint32
	want   errs.Kind
} {
	type row = struct {
		body   []byte
		pieces uint32
		want   errs.Kind
	}
	win := fabric.Remote{Key: 1, Addr: 2, Len: 4096}
	billion := seg.Strided(seg.Vector{Block: 1, Dims: []seg.Dim{{Count: 1e9, Stride: 0}}})
	manyDims := seg.Strided(seg.Vector{Block: 1, Dims: []seg.Dim{
		{Count: math.MaxInt32, Stride: 0}, {Count: math.MaxInt32, Stride: 0},
		{Count: math.MaxInt32, Stride: 0},
	}})
	wrongLen := describeOne(segment.Out, win, seg.Contig(0, 4096))
	wrongLen[11] ^= 1
	inlineTooLong := wire.Enc{}
	segment.AppendShort(&inlineTooLong, segment.In, segment.Inline, 0, 1<<40)
	noInline := wire.Enc{}
	segment.AppendShort(&noInline, segment.Out, segment.Inline, 0, 100)
	noSlot, inSlot := wire.Enc{}, wire.Enc{}
	segment.AppendShort(&noSlot, segment.Out, segment.Eager, 3, 100)
	segment.AppendShort(&inSlot, segment.In, segment.Eager, 0, 100)
	overflow := wire.Enc{}
	segment.AppendRemote(&overflow, segment.Out, []fabric.Remote{{Len: 1 << 62}, {Len: 1 << 62}},
		seg.Contig(0, 10))
	wraps := describeOne(segment.Out, fabric.Remote{Addr: math.MaxUint64 - 5, Len: 10},
		seg.Contig(0, 10))
	out := describeOne(segment.Out, win, seg.Contig(0, 10))
	return map[string]row{
		"beyond the window":   {describeOne(segment.Out, win, seg.Contig(0, 4097)), 1, errs.Invalid},
		"far beyond":          {describeOne(segment.In, win, seg.Contig(1<<60, 10)), 1, errs.Invalid},
		"a billion pieces":    {describeOne(segment.In, win, billion), 1, errs.TooBig},
		"overflowing product": {describeOne(segment.In, win, manyDims), 1, errs.TooBig},
		"length differs":      {wrongLen, 1, errs.Protocol},
		"truncated":           {out[:20], 1, errs.Protocol},
		"nothing there":       {nil, 2, errs.Protocol},
		"three segments":      {bytes.Repeat(out, 3), 3, errs.Protocol},
		"the same twice":      {bytes.Repeat(out, 2), 2, errs.Protocol},
		"In before Out": {append(describeOne(segment.In, win, seg.Contig(0, 1)), out...), 2,
			errs.Protocol},
		"no room for inline": {inlineTooLong.B, 1, errs.Protocol},
		"inline missing":     {noInline.B, 1, errs.Protocol},
		"a slot of nobody":   {noSlot.B, 1, errs.Protocol},
		"In by a slot":       {inSlot.B, 1, errs.Protocol},
		"windows overflow":   {overflow.B, 1, errs.Protocol},
		"window wraps":       {wraps, 1, errs.Protocol},
	}
}

func TestForgedDescriptionsAreRefused(t *testing.T) {
	r := newRigFor(t, simProviders()[0], echo, nil)
	for name, f := range forged() {
		t.Run(name, func(t *testing.T) {
			p := newRaw(t, r, true)
			p.send(rawRequest(5, f.pieces, f.body, nil))
			h, err := p.answer()
			if err != nil || h.Status != f.want || h.RequestID != 5 || h.Credits != 1 {
				t.Fatalf("answer %+v, %v; want status %v", h, err, f.want)
			}
			// The forger is served on, and so is everybody else.
			p.send(rawRequest(6, 0, nil, nil))
			if h, err := p.answer(); err != nil || h.Status != errs.OK {
				t.Fatalf("after it: %+v, %v", h, err)
			}
			if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
				t.Fatalf("another client: %v", err)
			}
		})
	}
}

// TestForgedKeysMoveNothing: a description may be well formed and still name memory that was
// not granted.
func TestForgedKeysMoveNothing(t *testing.T) {
	r := newRigFor(t, simProviders()[0], echo, nil)
	p := newRaw(t, r, true)
	win := fabric.Remote{Key: 12345, Addr: 99, Len: 1 << 20}
	var e wire.Enc
	segment.AppendRemote(&e, segment.Out, []fabric.Remote{win}, seg.Contig(0, 1<<20))
	segment.AppendRemote(&e, segment.In, []fabric.Remote{win}, seg.Contig(0, 1<<20))
	p.send(rawRequest(5, 2, e.B, nil))
	if h, err := p.answer(); err != nil || h.Status != errs.Perm {
		t.Fatalf("answer %+v, %v", h, err)
	}
}

// TestForgedMessagesEndTheConnection covers what is not a request at all.
func TestForgedMessagesEndTheConnection(t *testing.T) {
	r := newRigFor(t, simProviders()[0], echo, nil)
	control := wire.Header{Kind: wire.KindControl, Op: 99}
	reply := wire.Header{Kind: wire.KindReply}
	for name, msg := range map[string][]byte{
		"noise":           []byte("GET / HTTP/1.1\r\n\r\n"),
		"unknown control": control.Append(nil),
		"a reply":         reply.Append(nil),
	} {
		p := newRaw(t, r, true)
		p.send(msg)
		if _, err := p.answer(); !errors.Is(err, errs.Disconnected) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := call(r.conn, 20*time.Second, &Request{}); err != nil {
		t.Fatalf("another client: %v", err)
	}
}

func FuzzDecodeSegments(f *testing.F) {
	for _, row := range forged() {
		f.Add(row.body, row.pieces, uint32(0))
	}
	var e wire.Enc
	segment.AppendShort(&e, segment.Out, segment.Inline, 0, 3)
	windows := []fabric.Remote{{Key: 1, Addr: 5, Len: 70}, {Key: 2, Len: 30}}
	segment.AppendRemote(&e, segment.In, windows,
		seg.Strided(seg.Vector{Off: 1, Block: 2, Dims: []seg.Dim{{Count: 9, Stride: 10}}}))
	e.Raw([]byte("body"))
	f.Add(e.B, uint32(2), uint32(3))
	f.Fuzz(func(t *testing.T, body []byte, pieces, inline uint32) {
		var out, in segment.Description
		const room = 1 << 14
		rest, err := segment.Decode(body, pieces, int64(inline), room, &out, &in)
		if err != nil {
			return
		}
		if len(rest) > len(body) {
			t.Fatal("more body than there was")
		}
		for _, s := range []*segment.Description{&out, &in} {
			checkWalk(t, s)
		}
	})
}

// checkWalk walks an accepted segment: every run lies in its window, and together they are
// the stream.
func checkWalk(t *testing.T, s *segment.Description) {
	if !s.Present || s.Inline || s.Eager {
		return
	}
	w := s.Walk(0)
	var sum int64
	for {
		r, ok := w.Peek()
		if !ok {
			break
		}
		if r.N <= 0 || r.Off < 0 || uint64(r.Off+r.N) > s.Windows[r.Win].Len {
			t.Fatalf("run %+v leaves window %+v", r, s.Windows[r.Win])
		}
		w.Take(r.N)
		sum += r.N
	}
	if sum != s.Length {
		t.Fatalf("runs hold %d bytes, the segment says %d", sum, s.Length)
	}
}
