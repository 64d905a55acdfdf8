package msg

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Attach makes an arena known: it is registered with every domain of the node, and pieces of
// requests, and of Pull and Push, that lie in it need no Reg: the connection's own is found. A
// node with several domains needs this for memory that it uses with any but the last, where a
// provider takes registered memory only. Detach must come before the arena is closed, and after
// the last request that uses it.
func (n *Node) Attach(a *mem.Arena) error {
	for _, r := range n.rungs {
		if a.RegionOf(r.domain) != nil {
			continue
		}
		if err := a.Attach(r.domain); err != nil {
			return errs.Wrap("msg.Attach", r.caps.Provider, err)
		}
	}
	n.arenas.Add(a)
	return nil
}

// Detach makes the node forget an arena. Its registrations end when it is closed.
func (n *Node) Detach(a *mem.Arena) { n.arenas.Remove(a) }

// regionFor is the registration of a piece of memory with the link's domain; nil where none is
// needed.
func (l *link) regionFor(p *fabric.Sge) (fabric.Region, error) {
	n := l.node
	if p.Reg != nil && len(n.rungs) == 1 || len(p.Buf) == 0 {
		return p.Reg, nil
	}
	if a := n.arenas.Find(p.Buf); a != nil {
		return a.RegionOf(l.rung.domain), nil
	}
	if l.rung == n.rungs[len(n.rungs)-1] && p.Reg != nil {
		return p.Reg, nil // memory that is not attached was registered with the last domain
	}
	if !l.caps.AnyMemory {
		return nil, errs.Newf(errs.Invalid, "msg.Memory", l.name,
			"memory without a region, and %s needs one: see Node.Attach", l.caps.Provider)
	}
	return nil, nil
}

// windowRegion is regionFor for a window of m.
func (c *Conn) windowRegion(m *Memory, w *fabric.Sge) (fabric.Region, error) {
	if m.Domain != nil && m.Domain == c.rung.domain {
		return w.Reg, nil
	}
	return c.regionFor(w)
}

// localize gives local pieces of work requests the regions of the link's domain.
func (l *link) localize(wrs []fabric.WR) error {
	if len(l.node.rungs) == 1 && l.caps.AnyMemory {
		return nil
	}
	for i := range wrs {
		for j := range wrs[i].Local {
			p := &wrs[i].Local[j]
			reg, err := l.regionFor(p)
			if err != nil {
				return err
			}
			p.Reg = reg
		}
	}
	return nil
}

// Direct tells whether m moves without an extra copy: it rides inside the message, or lies in
// attached arenas (Node.Attach), or the provider moves any memory equally well. Other memory is
// better copied into an arena, and must be where the provider takes registered memory only. in: the
// server writes to it.
func (c *Conn) Direct(m *Memory, in bool) bool {
	if c.caps.AnyMemory && !c.caps.AnyMemoryCopied || m.Len() <= int64(c.rung.limits.InlineMax) {
		return true
	}
	return in && c.borrows(m.Len()) || c.attached(m)
}

// Lent tells whether what a server writes to m is copied from memory that it lends.
func (c *Conn) Lent(m *Memory) bool { return c.borrows(m.Len()) && !c.attached(m) }

// borrows tells whether n bytes of the server's memory can be reached from here.
func (c *Conn) borrows(n int64) bool {
	b, ok := c.ep.(fabric.Borrower)
	return ok && b.Borrows(n)
}

// attached tells whether all of m lies in attached arenas.
func (c *Conn) attached(m *Memory) bool {
	for i := range m.Windows {
		if len(m.Windows[i].Buf) > 0 && c.node.arenas.Find(m.Windows[i].Buf) == nil {
			return false
		}
	}
	return true
}

// AnyMemory tells whether the connection's provider moves memory that is not registered.
func (c *Conn) AnyMemory() bool { return c.caps.AnyMemory }

// AnyMemory tells whether the provider that the call came by moves memory that is not registered.
func (c *Call) AnyMemory() bool { return c.s.caps.AnyMemory }
