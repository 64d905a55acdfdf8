package mover

import (
	"fmt"
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
)

// Direction is which way the data goes.
type Direction uint8

// The directions, as this side sees them.
const (
	Put Direction = iota + 1 // local pieces to remote segments
	Get                      // remote segments to local pieces
)

// Plan is which bytes go where, computed once and moved any number of times. It refers to the
// pieces that it was made from until the next Reset. It is used by one goroutine at a time.
type Plan struct {
	m       *Mover
	dir     Direction
	total   int64
	lengths []uint64     // of the remote segments, for the notice
	wrs     []fabric.WR  // of a gather or scatter; there is room for one more
	parts   []part       // what each of them is about
	sges    []fabric.Sge // the pieces of all requests, in the order of the stream

	pack  packing
	run   run
	token chan struct{} // holds one when the last run is over; see Done
	batch []fabric.Completion
}

// part says which segment a request serves, and which of the plan's sges it has.
type part struct{ segment, from, to int }

// NewPlan computes how to move the local pieces to the remote segments (Put) or back (Get). Pieces
// and segments of no length are allowed and mean nothing. Both lists are the caller's again when it
// returns. Totals that differ, or memory that the endpoint cannot use, are errs.Invalid; too many
// pieces, errs.TooBig.
func (m *Mover) NewPlan(dir Direction, local []fabric.Sge, remote []fabric.Remote) (*Plan, error) {
	p := &Plan{m: m, token: make(chan struct{}, 1), batch: make([]fabric.Completion, 16)}
	if err := p.Reset(dir, local, remote); err != nil {
		return nil, err
	}
	return p, nil
}

// Reset makes another plan of p, in its memory: it allocates only where that is too small. While a
// move of p is under way it is errs.Busy; after any other error p is empty.
func (p *Plan) Reset(dir Direction, local []fabric.Sge, remote []fabric.Remote) error {
	if err := p.lock(); err != nil {
		return err
	}
	defer p.unlock()
	clear(p.sges)
	clear(p.wrs)
	p.dir, p.total = dir, 0
	p.lengths, p.wrs, p.parts, p.sges = p.lengths[:0], p.wrs[:0], p.parts[:0], p.sges[:0]
	total, err := p.m.check(dir, local, remote)
	if err != nil {
		return err
	}
	if err := p.build(local, remote); err != nil {
		p.wrs, p.parts, p.sges, p.lengths = p.wrs[:0], p.parts[:0], p.sges[:0], p.lengths[:0]
		return err
	}
	p.total = total
	return nil
}

// Bytes is how much a move of the plan moves.
func (p *Plan) Bytes() int64 { return p.total }

// Requests is how many work requests gathering or scattering takes, the notice not counted.
func (p *Plan) Requests() int { return len(p.wrs) }

// Fragments is how many runs of bytes there are that are contiguous at both sides.
func (p *Plan) Fragments() int { return len(p.sges) }

// check returns the length of the streams.
func (m *Mover) check(dir Direction, local []fabric.Sge, remote []fabric.Remote) (int64, error) {
	const op = "mover.Plan"
	if dir != Put && dir != Get {
		return 0, errs.Newf(errs.Invalid, op, "", "no such direction")
	}
	if n := max(len(local), len(remote)); n > m.opts.MaxPieces {
		return 0, errs.Newf(errs.TooBig, op, "", "%d pieces, at most %d", n, m.opts.MaxPieces)
	}
	var here, there uint64
	for i := range local {
		here += uint64(len(local[i].Buf)) // pieces may overlap, but 2^16 of 2^47 bytes fit
	}
	for i := range remote {
		if remote[i].Len > math.MaxInt64-there {
			return 0, errs.Newf(errs.Invalid, op, "", "the segments are longer than 2^63 bytes")
		}
		there += remote[i].Len
	}
	if here != there {
		return 0, errs.Newf(errs.Invalid, op, "", "%d bytes in pieces, %d in segments", here, there)
	}
	return int64(here), nil
}

// build walks both streams, which are equally long. Each segment takes requests until it is full; a
// request ends where the segment, MaxSge or MaxTransfer does.
func (p *Plan) build(local []fabric.Sge, remote []fabric.Remote) error {
	caps, at, in := &p.m.caps, 0, 0 // the next byte is byte in of local[at]
	for i := range remote {
		p.lengths = append(p.lengths, remote[i].Len)
		for done := uint64(0); done < remote[i].Len; {
			from, n := len(p.sges), uint64(0)
			room := min(remote[i].Len-done, uint64(caps.MaxTransfer))
			for n < room && len(p.sges)-from < caps.MaxSge {
				rest := local[at].Buf[in:]
				if len(rest) == 0 {
					at, in = at+1, 0
					continue
				}
				take := min(uint64(len(rest)), room-n)
				piece := fabric.Sge{Reg: local[at].Reg, Buf: rest[:take:take]}
				p.sges = append(p.sges, piece)
				in += int(take)
				n += take
			}
			p.parts = append(p.parts, part{segment: i, from: from, to: len(p.sges)})
			p.wrs = append(p.wrs, fabric.WR{Op: p.op(), Remote: remote[i].Slice(done, n)})
			done += n
			if len(p.wrs) == 1<<requestBits { // leave a number for the notice
				return errs.Newf(errs.TooBig, "mover.Plan", "", "%d requests", len(p.wrs))
			}
		}
	}
	for i := range p.parts { // now that p.sges does not grow any more
		p.wrs[i].Local = p.sges[p.parts[i].from:p.parts[i].to:p.parts[i].to]
	}
	p.wrs = append(p.wrs, fabric.WR{})[:len(p.wrs)] // room for the notice
	return fabric.CheckPost(caps, &p.m.peer, p.wrs)
}

func (p *Plan) op() fabric.Op {
	if p.dir == Get {
		return fabric.OpRead
	}
	return fabric.OpWrite
}

// PieceError says for which remote segment a move failed: its index in the list that the plan was
// made from, or -1 for the slot that packed data goes to and for the notice.
type PieceError struct {
	Segment int
	Err     error
}

func (e *PieceError) Error() string {
	if e.Segment < 0 {
		return fmt.Sprintf("mover: slot or notice: %v", e.Err)
	}
	return fmt.Sprintf("mover: segment %d: %v", e.Segment, e.Err)
}

// Unwrap gives errors.Is and errs.KindOf access to the cause.
func (e *PieceError) Unwrap() error { return e.Err }

// Pieces appends the pieces of mem that an access names, in its order. mem lies in reg.
func Pieces(
	dst []fabric.Sge, reg fabric.Region, mem []byte, a seg.Access,
) ([]fabric.Sge, error) {
	if err := a.Validate(seg.MaxPieces, int64(len(mem))); err != nil {
		return dst, errs.Wrap("mover.Pieces", "", err)
	}
	c := a.Cursor()
	for left := c.Left(); left > 0; left = c.Left() {
		at, _ := c.Next(left)
		dst = append(dst, fabric.Sge{Reg: reg, Buf: mem[at.Off:at.End():at.End()]})
	}
	return dst, nil
}

// Segments appends the parts of one grant that an access names, in its order.
func Segments(dst []fabric.Remote, grant fabric.Remote, a seg.Access) ([]fabric.Remote, error) {
	end := int64(min(grant.Len, math.MaxInt64))
	if err := a.Validate(seg.MaxPieces, end); err != nil {
		return dst, errs.Wrap("mover.Segments", "", err)
	}
	c := a.Cursor()
	for left := c.Left(); left > 0; left = c.Left() {
		at, _ := c.Next(left)
		dst = append(dst, grant.Slice(uint64(at.Off), uint64(at.Len)))
	}
	return dst, nil
}

// packing is the memory of a packed run.
type packing struct {
	bufs   []*mem.Buf
	wrs    []fabric.WR
	sges   []fabric.Sge
	notice *mem.Buf
	word   [1]fabric.Sge // the notice, as a gather list
}
