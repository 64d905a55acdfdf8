package mover

import (
	"math"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// prepare chooses the method and makes the list of requests. release frees what it takes for that.
func (p *Plan) prepare(opts *Run) error {
	if err := opts.Notice.validate(); err != nil {
		return err
	}
	if err := p.choose(opts); err != nil {
		return err
	}
	if p.run.method == Pack {
		p.run.list = p.packed(opts.Slot)
	} else {
		p.run.list = p.wrs
	}
	return p.addNotice(&opts.Notice)
}

// choose chooses Gather, or Pack with the data copied into buffers.
func (p *Plan) choose(opts *Run) error {
	p.run.method = opts.Method
	why := p.cannotPack(opts)
	switch {
	case opts.Method > Pack:
		return errs.Newf(errs.Invalid, "mover.Start", "", "no such method")
	case opts.Method == Pack && why != "":
		return errs.Newf(errs.Invalid, "mover.Start", "", "cannot pack: %s", why)
	case opts.Method == Auto:
		p.run.method = Gather
		if why == "" {
			p.run.method = p.m.opts.Table.Method(p.Fragments(), p.total)
		}
	}
	if p.run.method != Pack || p.stage() {
		return nil
	}
	if opts.Method == Pack {
		return errs.Newf(errs.Again, "mover.Start", "", "no buffers for %d bytes", p.total)
	}
	p.m.counts.noStaging.Add(1)
	p.run.method = Gather
	return nil
}

// cannotPack returns why the move cannot be packed, or nothing.
func (p *Plan) cannotPack(opts *Run) string {
	switch {
	case p.dir != Put:
		return "only a Put is packed"
	case p.m.opts.Staging == nil:
		return "the mover has no staging"
	case opts.Notice.How == None:
		return "without a notice the peer does not unpack"
	case p.total == 0:
		return "there is nothing to pack"
	case p.total > math.MaxInt || uint64(p.total) > opts.Slot.Len:
		return "the slot is too small"
	}
	return ""
}

// stage copies the pieces into buffers, which are registered; false if there are none.
func (p *Plan) stage() bool {
	bufs, ok := p.m.opts.Staging.TryTake(int(p.total), p.pack.bufs[:0])
	p.pack.bufs = bufs
	if !ok {
		return false
	}
	left := int(p.total)
	p.pack.sges = p.pack.sges[:0]
	from, at := p.sges, 0 // the next byte is byte at of from[0]
	for _, b := range bufs {
		to := b.Bytes()[:min(left, b.Len())]
		p.cut(b, len(to))
		left -= len(to)
		for len(to) > 0 {
			n := mem.CopyFor(mem.CopyPack, to, from[0].Buf[at:])
			to, at = to[n:], at+n
			if at == len(from[0].Buf) {
				from, at = from[1:], 0
			}
		}
	}
	return true
}

// cut adds the first n bytes of a buffer to what is written, in pieces that one transfer takes.
func (p *Plan) cut(b *mem.Buf, n int) {
	for off := 0; off < n; off += p.m.caps.MaxTransfer {
		length := min(n-off, p.m.caps.MaxTransfer)
		p.pack.sges = append(p.pack.sges, b.SgeOf(p.m.opts.Domain, off, length))
	}
}

// packed is the write of the buffers to the slot: one request, or more where limits cut it.
func (p *Plan) packed(slot fabric.Remote) []fabric.WR {
	wrs, sges, done := p.pack.wrs[:0], p.pack.sges, uint64(0)
	for len(sges) > 0 {
		n, bytes := 0, 0
		for n < min(len(sges), p.m.caps.MaxSge) &&
			len(sges[n].Buf) <= p.m.caps.MaxTransfer-bytes {
			bytes += len(sges[n].Buf)
			n++
		}
		wrs = append(wrs, fabric.WR{
			Op: fabric.OpWrite, Local: sges[:n:n], Remote: slot.Slice(done, uint64(bytes)),
		})
		sges, done = sges[n:], done+uint64(bytes)
	}
	p.pack.wrs = append(wrs, fabric.WR{})[:len(wrs)] // room for the notice
	return p.pack.wrs
}

// addNotice appends the notice to the list: an immediate on the last write where possible, else a
// request of its own. After Reads it is fenced until they have completed.
func (p *Plan) addNotice(n *Notice) error {
	list := p.run.list
	if len(list) > 0 { // it may have been changed in an earlier run
		last := &list[len(list)-1]
		last.Op, last.Flags, last.Imm = p.op(), 0, 0
	}
	flags := fabric.FlagSolicited
	if p.dir == Get {
		flags |= fabric.FlagFence
	}
	packed := p.run.method == Pack
	switch {
	case n.How == None:
	case n.How == Message:
		local, err := p.writeNotice(n)
		if err != nil {
			return err
		}
		list = append(list, fabric.WR{Op: fabric.OpSend, Flags: flags, Local: local})
	case p.dir == Put && len(list) > 0:
		last := &list[len(list)-1]
		last.Op, last.Flags, last.Imm = fabric.OpWriteImm, flags, imm(n.Tag, packed)
	default:
		list = append(list, fabric.WR{
			Op: fabric.OpWriteImm, Flags: flags, Imm: imm(n.Tag, packed),
		})
	}
	p.run.list = list
	return nil
}

// writeNotice makes the message in a buffer of its own: the plan's own memory is not registered.
func (p *Plan) writeNotice(n *Notice) ([]fabric.Sge, error) {
	var lengths []uint64
	if n.Lengths {
		lengths = p.lengths
	}
	size, pool := noticeBytes(len(lengths)), p.m.opts.Notices
	if pool == nil {
		return nil, errs.Newf(errs.Invalid, "mover.Start", "", "the mover has no pool for notices")
	}
	limit := min(pool.Stats().BufBytes, p.m.caps.MaxMessage, int(p.m.peer.MaxMessage))
	if size > limit {
		return nil, errs.Newf(errs.TooBig, "mover.Start", "",
			"a notice of %d bytes, at most %d", size, limit)
	}
	b := pool.TryTake()
	if b == nil {
		return nil, errs.Newf(errs.Again, "mover.Start", "", "no buffer for the notice")
	}
	p.pack.notice = b
	appendNotice(b.Bytes()[:0], p.run.method == Pack, n.Tag, uint64(p.total), lengths)
	p.pack.word[0] = b.SgeOf(p.m.opts.Domain, 0, size)
	return p.pack.word[:], nil
}

// release frees what prepare took.
func (p *Plan) release() {
	for i, b := range p.pack.bufs {
		b.Return()
		p.pack.bufs[i] = nil
	}
	p.pack.bufs = p.pack.bufs[:0]
	if p.pack.notice != nil {
		p.pack.notice.Return()
		p.pack.notice = nil
	}
}

// FromPool packs into buffers of a pool, as many as needed.
func FromPool(p *mem.Pool) Staging { return poolStaging{p} }

type poolStaging struct{ pool *mem.Pool }

// TryTake implements Staging.
func (s poolStaging) TryTake(n int, dst []*mem.Buf) ([]*mem.Buf, bool) {
	had := len(dst)
	for n > 0 {
		b := s.pool.TryTake()
		if b == nil {
			for _, b := range dst[had:] {
				b.Return()
			}
			return dst[:had], false
		}
		dst = append(dst, b)
		n -= b.Len()
	}
	return dst, true
}
