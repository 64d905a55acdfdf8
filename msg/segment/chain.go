package segment

import "github.com/sluice-storage/sluice/fabric"

// ChainMax is how many work requests one call posts at once, before other calls get their turn.
const ChainMax = 32

// Chain is a list of work requests that is being built, and the pieces that they point at.
type Chain struct {
	WRs   []fabric.WR
	Bytes int64
	sges  []fabric.Sge
}

// Reset empties the chain, and forgets the memory that it points at.
func (ch *Chain) Reset() {
	clear(ch.WRs[:cap(ch.WRs)])
	clear(ch.sges[:cap(ch.sges)])
	ch.WRs, ch.sges, ch.Bytes = ch.WRs[:0], ch.sges[:0], 0
}

// Fill builds the next chain, of up to unit bytes, between a segment's stream and local memory: one
// work request per run of remote memory, each gathering or scattering as many local pieces as the
// provider takes. It stops at the end of either side.
func (ch *Chain) Fill(op fabric.Op, caps *fabric.Caps, unit int64, s *Description, w *Walker,
	local *Pieces,
) {
	ch.WRs, ch.sges, ch.Bytes = ch.WRs[:0], ch.sges[:0], 0
	for len(ch.WRs) < ChainMax && ch.Bytes < unit {
		r, ok := w.Peek()
		if !ok {
			return
		}
		limit := min(r.N, int64(caps.MaxTransfer), unit-ch.Bytes)
		from := len(ch.sges)
		var n int64
		ch.sges, n = local.Take(ch.sges, limit, caps.MaxSge)
		if n == 0 {
			return
		}
		w.Take(n)
		ch.Bytes += n
		ch.WRs = append(ch.WRs, fabric.WR{
			Op: op, Local: ch.sges[from:len(ch.sges):len(ch.sges)],
			Remote: s.Windows[r.Win].Slice(uint64(r.Off), uint64(n)),
		})
	}
}

// Gather builds the writes of the stream of m to consecutive bytes of remote.
func (ch *Chain) Gather(caps *fabric.Caps, context uint64, sp *Space, m *Memory,
	remote fabric.Remote,
) {
	ch.WRs, ch.sges, ch.Bytes = ch.WRs[:0], ch.sges[:0], 0
	w := Walk(sp, m.Access, 0)
	var at, off uint64
	from := 0
	flush := func() {
		ch.WRs = append(ch.WRs, fabric.WR{
			Op: fabric.OpWrite, Context: context, Local: ch.sges[from:len(ch.sges):len(ch.sges)],
			Remote: remote.Slice(off, at-off),
		})
		from, off = len(ch.sges), at
	}
	for {
		r, ok := w.Peek()
		if !ok {
			break
		}
		room := uint64(caps.MaxTransfer) - (at - off)
		if len(ch.sges)-from == caps.MaxSge || room == 0 {
			flush()
			continue
		}
		n := min(r.N, int64(room))
		win := &m.Windows[r.Win]
		ch.sges = append(ch.sges, fabric.Sge{Reg: win.Reg, Buf: win.Buf[r.Off : r.Off+n : r.Off+n]})
		at += uint64(n)
		w.Take(n)
	}
	if at > off {
		flush()
	}
	ch.Bytes = int64(at)
}
