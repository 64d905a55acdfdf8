package msg

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// A request's body opens with header.Pieces descriptions of segments (none, one or two), each
// role at most once and Out before In; the caller's body follows.
//
//	0     1     2        4       12
//	|role |form |windows |length | windows x |key u64 |addr u64 |len u64 | access, see package seg |
//
// role: 1 Out, 2 In. form: 0 for memory that the server reaches by one-sided operations; 1
// for data that rides inline, behind the body of the request (Out) or of the reply (In): it
// has no windows and no access, and its stream is the inline data itself; 2 for data (Out) that is
// in an eager slot of the server, whose number stands in place of the number of windows. length is
// that of the stream.

// Limits of what a request may describe. A server refuses more before it believes any of it.
const (
	// MaxWindows is how many windows one segment may have.
	MaxWindows = 1024

	// MaxExpansion is how many pieces one segment may have after its compact form is expanded.
	MaxExpansion = 1 << 20
)

const (
	roleOut = 1
	roleIn  = 2

	formRemote = 0
	formInline = 1
	formEager  = 2

	describeBytes = 12
	remoteBytes   = 24
)

// segment is a description as the server sees it.
type segment struct {
	present bool
	inline  bool
	eager   bool
	slot    int // eager
	length  int64
	windows []fabric.Remote
	space   space
	access  seg.Access
}

func (s *segment) reset() {
	if !s.present { // decode sets it first
		return
	}
	s.windows = s.windows[:0]
	s.space.reset()
	s.present, s.inline, s.eager, s.length, s.access = false, false, false, 0, seg.Access{}
}

// DescriptionBytes is how many bytes the description of m takes in a request when its data
// does not ride inline. See Conn.MaxDescription for what there is room for.
func DescriptionBytes(m *Memory) int {
	if m == nil {
		return 0
	}
	return describeBytes + remoteBytes*len(m.Windows) + m.Access.WireBytes()
}

// appendShort describes data that is not reached by windows.
func appendShort(e *wire.Enc, role, form uint8, slot int, length int64) {
	e.U8(role)
	e.U8(form)
	e.U16(uint16(slot))
	e.I64(length)
}

func appendRemote(e *wire.Enc, role uint8, windows []fabric.Remote, a seg.Access) {
	e.U8(role)
	e.U8(formRemote)
	e.U16(uint16(len(windows)))
	e.I64(a.Len())
	for i := range windows {
		e.U64(windows[i].Key)
		e.U64(windows[i].Addr)
		e.U64(windows[i].Len)
	}
	a.Append(e)
}

// decodeSegments takes count descriptions off the front of a request's body and returns the
// rest. inline is the length of the request's inline data, room what a reply can carry
// inline.
func decodeSegments(body []byte, count uint32, inline, room int64, out, in *segment) (
	[]byte, error,
) {
	out.reset()
	in.reset()
	if count > 2 {
		return nil, badDescription("more than two segments")
	}
	d := wire.NewDec(body)
	last := uint8(0)
	for range count {
		role := d.U8()
		if d.Err() == nil && (role <= last || role > roleIn) {
			return nil, badDescription("segments repeated, unknown or out of order")
		}
		last = role
		s := out
		if role == roleIn {
			s = in
		}
		if err := s.decode(&d); err != nil {
			return nil, err
		}
	}
	if in.eager {
		return nil, badDescription("reply data in an eager slot")
	}
	if out.inline && out.length != inline || !out.inline && inline != 0 {
		return nil, badDescription("inline data and its description differ in length")
	}
	if in.inline && in.length > room {
		return nil, badDescription("inline reply data that no reply has room for")
	}
	return d.Rest(), nil
}

// decode takes one description behind its role. Everything is checked against the limits
// before it is used, and a compact access is never expanded for that.
func (s *segment) decode(d *wire.Dec) error {
	form := d.U8()
	n := int(d.U16())
	s.present, s.length = true, d.Size()
	switch {
	case d.Err() != nil:
		return d.Err()
	case form == formInline && n == 0:
		s.inline = true
		return nil
	case form == formEager:
		s.eager, s.slot = true, n
		return nil
	case form != formRemote:
		return badDescription("unknown form of segment")
	case n > MaxWindows:
		return badDescription("too many windows")
	}
	for range n {
		r := fabric.Remote{Key: d.U64(), Addr: d.U64(), Len: d.U64()}
		if r.Addr+r.Len < r.Addr || !s.space.add(r.Len) {
			return badDescription("windows overflow the address space")
		}
		s.windows = append(s.windows, r)
	}
	s.access = seg.Decode(d)
	if err := d.Err(); err != nil {
		return err
	}
	if err := s.access.Validate(MaxExpansion, s.space.size()); err != nil {
		return errs.Wrap("msg.Describe", "", err)
	}
	if s.access.Len() != s.length {
		return badDescription("access and length differ")
	}
	return nil
}

func badDescription(why string) error {
	return errs.Newf(errs.Protocol, "msg.Describe", "", "%s", why)
}

// check refuses memory that makes no sense before anything is granted, and fills sp with its
// windows.
func (m *Memory) check(sp *space) error {
	sp.reset()
	if len(m.Windows) > MaxWindows {
		return errs.Newf(errs.TooBig, "msg.Memory", "", "%d windows, at most %d", len(m.Windows),
			MaxWindows)
	}
	for i := range m.Windows {
		sp.add(uint64(len(m.Windows[i].Buf)))
	}
	return m.Access.Validate(MaxExpansion, sp.size())
}

// gather copies the stream of m to dst.
func (m *Memory) gather(sp *space, dst []byte) {
	w := walk(sp, m.Access, 0)
	for {
		r, ok := w.peek()
		if !ok {
			return
		}
		dst = dst[mem.Copy(dst, m.Windows[r.win].Buf[r.off:r.off+r.n]):]
		w.take(r.n)
	}
}

// scatter copies src to the front of m's stream.
func (m *Memory) scatter(sp *space, src []byte) {
	w := walk(sp, m.Access, 0)
	for len(src) > 0 {
		r, ok := w.peek()
		if !ok {
			return
		}
		n := mem.Copy(m.Windows[r.win].Buf[r.off:r.off+r.n], src)
		src = src[n:]
		w.take(int64(n))
	}
}
