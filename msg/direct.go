package msg

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Direct tells whether the server reaches m without a detour: it rides inside the message, or lies
// in arenas that Node.Attach was told of, or the provider moves any memory equally well. A
// caller that has memory of another kind does better to copy it into an arena, or must, where the
// provider takes registered memory only.
func (c *Conn) Direct(m *Memory) bool {
	if c.caps.AnyMemory && !c.caps.AnyMemoryCopied || m.Len() <= int64(c.rung.limits.InlineMax) {
		return true
	}
	for i := range m.Windows {
		if len(m.Windows[i].Buf) > 0 && !c.node.knows(m.Windows[i].Buf) {
			return false
		}
	}
	return true
}

// knows tells whether memory lies in an arena that was attached.
func (n *Node) knows(b []byte) bool {
	for _, a := range n.attached() {
		if offsetIn(a.Bytes(), b) >= 0 {
			return true
		}
	}
	return false
}

// AnyMemory tells whether the connection's provider moves memory that is not registered.
func (c *Conn) AnyMemory() bool { return c.caps.AnyMemory }

// AnyMemory tells whether the provider that the call came by moves memory that is not registered.
func (c *Call) AnyMemory() bool { return c.s.caps.AnyMemory }

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
	var sp space
	if err := m.check(&sp); err != nil {
		return err
	}
	if n > m.Len() || n > total(other) {
		return errs.Newf(errs.Invalid, "msg.Memory", "", "%d bytes of %d to %d", n, m.Len(),
			total(other))
	}
	w, rest := walk(&sp, m.Access, 0), pieces{list: other}
	var one [1]fabric.Sge
	for n > 0 {
		r, _ := w.peek()
		there, got := rest.take(one[:0], min(r.n, n), 1)
		fn(there[0].Buf, m.Windows[r.win].Buf[r.off:r.off+got])
		w.take(got)
		n -= got
	}
	return nil
}

// Via counts the server's connections by provider.
func (s *Server) Via() map[string]int {
	via := map[string]int{}
	for _, p := range s.ports {
		via[p.rung.caps.Provider] = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		via[c.rung.caps.Provider]++
	}
	return via
}
