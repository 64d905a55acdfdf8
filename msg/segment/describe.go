package segment

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// A request's body opens with descriptions of segments (none, one or two; the header's marks say
// how many), each role at most once and Out before In; the caller's body follows.
//
//	0     1     2        4       12
//	|role |form |windows |length | windows x |key u64 |addr u64 |len u64 | access, see package seg |
//
// role: 1 Out, 2 In. form: 0 for memory that the server reaches by one-sided operations; 1
// for data that rides inline, behind the body of the request (Out) or of the reply (In): it
// has no windows and no access, and its stream is the inline data itself; 2 for data (Out) that is
// in an eager slot of the server, whose number stands in place of the number of windows. length is
// that of the stream.

// Limits of what a request may describe. A server refuses more before it uses any of it.
const (
	// MaxWindows is how many windows one segment may have.
	MaxWindows = 1024

	// MaxExpansion is how many Pieces one segment may have after its compact form is expanded.
	MaxExpansion = 1 << 20
)

// The roles of a segment in a request.
const (
	Out uint8 = 1 // the server may read it
	In  uint8 = 2 // the server may write it
)

// The forms of data that is not reached by windows.
const (
	formRemote uint8 = 0
	Inline     uint8 = 1 // it rides in the message
	Eager      uint8 = 2 // it is in an eager slot
)

// FixedBytes is how long a description without windows and access is.
const FixedBytes = 12

const remoteBytes = 24

// Description is a segment as the server sees it.
type Description struct {
	Present bool
	Inline  bool
	Eager   bool
	Slot    int // where it is Eager
	Length  int64
	Windows []fabric.Remote
	space   Space
	access  seg.Access
}

// Walk goes over the stream from byte pos on.
func (s *Description) Walk(pos int64) Walker { return Walk(&s.space, s.access, pos) }

func (s *Description) reset() {
	if !s.Present { // decode sets it first
		return
	}
	s.Windows = s.Windows[:0]
	s.space.reset()
	s.Present, s.Inline, s.Eager, s.Length, s.access = false, false, false, 0, seg.Access{}
}

// AppendShort describes data that is not reached by windows.
func AppendShort(e *wire.Enc, role, form uint8, slot int, length int64) {
	e.U8(role)
	e.U8(form)
	e.U16(uint16(slot))
	e.I64(length)
}

// AppendRemote describes data that the server reaches by windows.
func AppendRemote(e *wire.Enc, role uint8, windows []fabric.Remote, a seg.Access) {
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

// Decode takes count descriptions off the front of a request's body and returns the
// rest. inline is the length of the request's inline data, room what a reply can carry
// inline.
func Decode(body []byte, count uint32, inline, room int64, out, in *Description) (
	[]byte, error,
) {
	out.reset()
	in.reset()
	if count > 2 {
		return nil, Malformed("more than two segments")
	}
	d := wire.NewDec(body)
	last := uint8(0)
	for range count {
		role := d.U8()
		if d.Err() == nil && (role <= last || role > In) {
			return nil, Malformed("segments repeated, unknown or out of order")
		}
		last = role
		s := out
		if role == In {
			s = in
		}
		if err := s.decode(&d); err != nil {
			return nil, err
		}
	}
	if in.Eager {
		return nil, Malformed("reply data in an eager slot")
	}
	if out.Inline && out.Length != inline || !out.Inline && inline != 0 {
		return nil, Malformed("inline data and its description differ in length")
	}
	if in.Inline && in.Length > room {
		return nil, Malformed("inline reply data that no reply has room for")
	}
	return d.Rest(), nil
}

// decode takes one description behind its role. Everything is checked against the limits
// before it is used, and a compact access is never expanded for that.
func (s *Description) decode(d *wire.Dec) error {
	form := d.U8()
	n := int(d.U16())
	s.Present, s.Length = true, d.Size()
	switch {
	case d.Err() != nil:
		return d.Err()
	case form == Inline && n == 0:
		s.Inline = true
		return nil
	case form == Eager:
		s.Eager, s.Slot = true, n
		return nil
	case form != formRemote:
		return Malformed("unknown form of segment")
	case n > MaxWindows:
		return Malformed("too many windows")
	}
	for range n {
		r := fabric.Remote{Key: d.U64(), Addr: d.U64(), Len: d.U64()}
		if r.Addr+r.Len < r.Addr || !s.space.add(r.Len) {
			return Malformed("windows overflow the address space")
		}
		s.Windows = append(s.Windows, r)
	}
	s.access = seg.Decode(d)
	if err := d.Err(); err != nil {
		return err
	}
	if err := s.access.Validate(MaxExpansion, s.space.size()); err != nil {
		return errs.Wrap("msg.Describe", "", err)
	}
	if s.access.Len() != s.Length {
		return Malformed("access and length differ")
	}
	return nil
}

// Malformed refuses a request's descriptions.
func Malformed(why string) error {
	return errs.Newf(errs.Protocol, "msg.Describe", "", "%s", why)
}
