// Package segment describes the data of a request: memory of the client, in pieces, and how it
// looks to the server. A description names windows of memory that the server may reach, laid end to
// end, and the bytes among them that are meant; it is compact however many pieces there are.
//
// It moves nothing between processes and grants nothing: package msg does.
//
// Read memory.go first (the client's side), then describe.go (bytes on the wire, and the server's
// side), and walk.go (from a stream of bytes to stretches of memory).
package segment

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
)

// Memory describes local memory that a request lends to the server: windows, laid end to end
// into one address space that starts at 0, and the bytes of that space that are meant, in
// stream order. Byte k of a segment is byte k of the Access' stream. On the wire each window
// costs one fabric.Remote and the Access its own compact form, however many pieces it has.
type Memory struct {
	// Windows are pieces of memory. Reg may be nil where the provider's Caps.AnyMemory allows it, and
	// where msg.Node.Attach has made the memory known.
	Windows []fabric.Sge

	// Domain, if not nil, is the one that the windows' regions are of: a node with several domains
	// uses them on its connections by that one. Default nil: see msg.Node.Attach.
	Domain fabric.Domain

	// Operation, if not nil, is what the request is a part of, with buffers that the windows lie in,
	// in the same order.
	Operation *mem.Operation

	// Access is over the concatenation of the windows.
	Access seg.Access

	// Moved, if not nil, is where who moves the data notes how it was done. Default nil.
	Moved *mem.Moved
}

// Note notes how the data was moved, if somebody wants to know.
func (m *Memory) Note(provider string, method mem.Method, why string) {
	if m != nil && m.Moved != nil {
		*m.Moved = mem.Moved{Provider: provider, Method: method, Why: why}
	}
}

// Len is the number of bytes that the segment carries; 0 for a nil Memory.
func (m *Memory) Len() int64 {
	if m == nil {
		return 0
	}
	return m.Access.Len()
}

// DescriptionBytes is how many bytes the description of m takes in a request when its data does not
// ride inline; 0 for a nil Memory.
func (m *Memory) DescriptionBytes() int {
	if m == nil {
		return 0
	}
	return FixedBytes + remoteBytes*len(m.Windows) + m.Access.WireBytes()
}

// Check refuses memory that makes no sense, and fills sp with its windows.
func (m *Memory) Check(sp *Space) error {
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

// CopyTo copies the stream of m to dst.
func (m *Memory) CopyTo(sp *Space, dst []byte) {
	w := Walk(sp, m.Access, 0)
	for {
		r, ok := w.Peek()
		if !ok {
			return
		}
		dst = dst[mem.Copy(dst, m.Windows[r.Win].Buf[r.Off:r.Off+r.N]):]
		w.Take(r.N)
	}
}

// CopyFrom copies src to the front of m's stream.
func (m *Memory) CopyFrom(sp *Space, src []byte) {
	w := Walk(sp, m.Access, 0)
	for len(src) > 0 {
		r, ok := w.Peek()
		if !ok {
			return
		}
		n := mem.Copy(m.Windows[r.Win].Buf[r.Off:r.Off+r.N], src)
		src = src[n:]
		w.Take(int64(n))
	}
}

// Gather copies the bytes that m means, in stream order, to dst laid end to end, which has room for
// all of them.
func (m *Memory) Gather(dst []fabric.Sge) error {
	return m.exchange(dst, m.Len(), func(there, here []byte) int {
		return mem.CopyFor(mem.CopyCaller, there, here)
	})
}

// Scatter copies the first n bytes of src, laid end to end, to the bytes that m means.
func (m *Memory) Scatter(src []fabric.Sge, n int64) error {
	return m.exchange(src, n, func(there, here []byte) int {
		return mem.CopyFor(mem.CopyCaller, here, there)
	})
}

// exchange calls fn for pairs of equal stretches: of the other side, and of m.
func (m *Memory) exchange(other []fabric.Sge, n int64, fn func(there, here []byte) int) error {
	var sp Space
	if err := m.Check(&sp); err != nil {
		return err
	}
	if n > m.Len() || n > Total(other) {
		return errs.Newf(errs.Invalid, "msg.Memory", "", "%d bytes of %d to %d", n, m.Len(),
			Total(other))
	}
	w, rest := Walk(&sp, m.Access, 0), Pieces{List: other}
	var one [1]fabric.Sge
	for n > 0 {
		r, _ := w.Peek()
		there, got := rest.Take(one[:0], min(r.N, n), 1)
		fn(there[0].Buf, m.Windows[r.Win].Buf[r.Off:r.Off+got])
		w.Take(got)
		n -= got
	}
	return nil
}
