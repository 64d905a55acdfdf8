package msg

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/msg/internal/marks"
	"github.com/sluice-storage/sluice/msg/segment"
	"github.com/sluice-storage/sluice/wire"
)

// plan says how a request's data will travel.
type plan struct {
	outInline, inInline bool
	eager               int // slot for the request data; -1 for none
	bytes               int // descriptions and inline data
}

// plan decides between inline, eager and rendezvous. Data rides inline when it is small enough
// and the message has room for it; reply data also needs room in a reply beside a body.
func (c *Conn) plan(req *Request) plan {
	p := plan{eager: -1}
	inline := int64(c.rung.limits.InlineMax)
	replyRoom := int64(c.msgBytes - replyBytes - minBody)
	p.inInline = req.In != nil && req.In.Len() <= min(inline, replyRoom)
	in := req.In.DescriptionBytes()
	if p.inInline {
		in = segment.FixedBytes
	}
	out := req.Out.DescriptionBytes()
	if req.Out == nil {
		p.bytes = in
		return p
	}
	if req.Out.Len() <= inline && req.By <= Inline {
		with := segment.FixedBytes + int(req.Out.Len())
		if with < out || with+in+req.bodyLen() <= c.MaxDescription() {
			p.outInline, out = true, with
		}
	}
	if !p.outInline && (req.By == ByLimits || req.By == Eager) {
		if p.eager = c.eagerFor(req.Out); p.eager >= 0 {
			out = segment.FixedBytes
		}
	}
	p.bytes = out + in
	return p
}

// encode writes the request into the slot's send buffer and grants what it describes.
func (c *Conn) encode(s *slot, h *wire.Header, req *Request, m marks.Marks) ([]byte, error) {
	for i, m := range [2]*Memory{req.Out, req.In} {
		if m == nil {
			continue
		}
		if err := m.Check(&s.spaces[i]); err != nil {
			return nil, err
		}
	}
	p := c.plan(req)
	if p.eager >= 0 {
		c.mu.Lock()
		s.eager = p.eager
		c.mu.Unlock()
	}
	if body := req.bodyLen(); p.bytes+body > c.MaxDescription() {
		return nil, errs.Newf(errs.TooBig, "msg.Call", c.name,
			"body of %d and descriptions of %d bytes, at most %d together", body, p.bytes,
			c.MaxDescription())
	}
	buf := c.bufs.Send(s.index)
	e := wire.Enc{B: buf[:wire.HeaderBytes]}
	if err := c.describe(s, &e, segment.Out, req.Out, p.outInline); err != nil {
		return nil, err
	}
	if err := c.describe(s, &e, segment.In, req.In, p.inInline); err != nil {
		return nil, err
	}
	e.Raw(req.Body)
	for _, b := range req.More {
		e.Raw(b)
	}
	h.BodyLen = uint32(len(e.B) - wire.HeaderBytes)
	if req.Out != nil {
		m.Segments++
	}
	if req.In != nil {
		m.Segments++
	}
	h.Pieces = m.Pack()
	end := len(e.B)
	if p.outInline {
		h.InlineLen = uint32(req.Out.Len())
		end += int(h.InlineLen)
		req.Out.CopyTo(&s.spaces[0], buf[len(e.B):end])
	}
	h.Append(buf[:0])
	return buf[:end], nil
}

// describe appends the description of one segment and grants its windows unless it is inline.
func (c *Conn) describe(s *slot, e *wire.Enc, role uint8, m *Memory, inline bool) error {
	if m == nil {
		return nil
	}
	if s.eager >= 0 && role == segment.Out {
		segment.AppendShort(e, role, segment.Eager, s.eager, m.Len())
		return nil
	}
	if inline {
		segment.AppendShort(e, role, segment.Inline, 0, m.Len())
		return nil
	}
	rights := fabric.RemoteRead
	if role == segment.In {
		rights = fabric.RemoteWrite
	}
	s.remotes = s.remotes[:0]
	for i := range m.Windows {
		r, err := c.grant(s, m, &m.Windows[i], rights)
		if err != nil {
			return err
		}
		s.remotes = append(s.remotes, r)
	}
	segment.AppendRemote(e, role, s.remotes, m.Access)
	return nil
}

// grant opens one window of m to the server. Memory without a region gets one for the length of
// the call.
func (c *Conn) grant(s *slot, m *Memory, w *fabric.Sge,
	rights fabric.Rights) (fabric.Remote, error) {
	if len(w.Buf) == 0 {
		return fabric.Remote{}, nil // an empty window keeps its index
	}
	off, own := 0, false
	region, err := c.windowRegion(m, w)
	if err != nil {
		return fabric.Remote{}, err
	}
	if region == nil {
		if region, err = c.rung.domain.Register(w.Buf); err != nil {
			return fabric.Remote{}, err
		}
		own = true
	} else if off = fabric.OffsetIn(region.Bytes(), w.Buf); off < 0 {
		return fabric.Remote{}, errs.Newf(errs.Invalid, "msg.Memory", c.name,
			"a window lies outside of its region")
	}
	s.grants = append(s.grants, grant{region: region, own: own})
	r, err := region.Grant(c.ep, off, len(w.Buf), rights)
	s.grants[len(s.grants)-1].remote = r
	return r, err
}

// revoke takes all rights of the slot's request back. When it returns the server cannot touch
// the caller's memory any more.
func (c *Conn) revoke(s *slot) {
	for i := range s.grants {
		g := &s.grants[i]
		g.region.Revoke(g.remote) // first, so that Close need not look for grants
		if g.own {
			_ = g.region.Close() // it does not fail otherwise
		}
	}
	clear(s.grants)
	s.grants = s.grants[:0]
}
