package iodtest

import (
	"context"
	"math/rand/v2"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// hand makes one random request after the other for a client.
type hand struct {
	*Crowd
	Client
	id      int
	session uint64
	vanish  func()
	rng     *rand.Rand
	ctx     context.Context // ends with the client
	buf     []byte
}

// another is a further hand of the same client.
func (h *hand) another(seed uint64) *hand {
	return &hand{Crowd: h.Crowd, Client: h.Client, id: h.id, session: h.session, vanish: h.vanish,
		rng: rand.New(rand.NewPCG(seed, 0)), ctx: h.ctx}
}

const (
	both   = capability.Read | capability.Write
	manage = capability.Manage
)

// bulkBytes is what stores divide among their members, and so in pieces.
const bulkBytes = 64 << 10

func (h *hand) step() {
	f := h.Files[h.rng.IntN(len(h.Files))]
	if h.rng.IntN(400) == 0 {
		h.remove(f)
		return
	}
	if h.site.Flush != nil && h.rng.IntN(10) == 0 {
		h.site.Flush()
		return
	}
	f.alone.RLock()
	defer f.alone.RUnlock()
	switch n := h.rng.IntN(100); {
	case n < 45:
		h.write(f, h.pick(f))
	case n < 85:
		h.read(f, h.pick(f))
	case n < 93:
		h.sync(f)
	case n < 97:
		h.punch(f)
	case n < 99 || h.rng.IntN(4) > 0:
		h.truncate(f)
	default:
		h.fence(f)
	}
}

// how chooses a mode and hints.
func (h *hand) how() iod.How {
	var how iod.How
	if h.rng.IntN(2) == 0 {
		how.Mode = iod.Mode(h.rng.IntN(3))
		how.Policy = uint8(h.rng.IntN(5))
		how.Streams = uint8(h.rng.IntN(4))
		how.NoSums = h.rng.IntN(8) == 0
	}
	if h.rng.IntN(4) == 0 {
		how.UnitBytes = 4 << 10 << h.rng.IntN(5)
		how.ChunkBytes = 4 << 10 << h.rng.IntN(6)
	}
	return how
}

// pick chooses cells: often one run, sometimes several, mostly short ones.
func (h *hand) pick(f *File) []int {
	var cells []int
	taken := map[int]bool{}
	for range 1 + max(h.rng.IntN(6)-3, 0) {
		n := 1 + h.rng.IntN(1+h.rng.IntN(min(f.Cells, 30)))
		if h.rng.IntN(30) == 0 {
			n = 1 + h.rng.IntN(f.Cells)
		}
		first := h.rng.IntN(f.Cells - n + 1)
		for c := first; c < first+n; c++ {
			if !taken[c] { // a request's own pieces do not overlap: their order is not defined
				taken[c] = true
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// access is the cells as a request names them.
func access(l *Ledger, cells []int) seg.Access {
	size := int64(l.CellBytes())
	var list []seg.Piece
	for _, c := range cells {
		list = seg.Join(list, seg.Piece{Off: int64(c) * size, Len: size})
	}
	return seg.List(list)
}

// memory is a buffer in one to three windows.
func (h *hand) memory(n int) (*msg.Memory, []byte) {
	if cap(h.buf) < n {
		h.buf = make([]byte, n)
	}
	p := h.buf[:n]
	m := &msg.Memory{Access: seg.Contig(0, int64(n))}
	for rest := p; len(rest) > 0; {
		cut := len(rest)
		if h.rng.IntN(3) == 0 && len(m.Windows) < 3 {
			cut = 1 + h.rng.IntN(len(rest))
		}
		m.Windows = append(m.Windows, fabric.Sge{Buf: rest[:cut]})
		rest = rest[cut:]
	}
	return m, p
}

// stale repeats a request that did not know of a truncation yet.
func (h *hand) stale(v *view, r capability.Rights, fn func(iod.Target) error) error {
	for {
		err := fn(h.target(v, r))
		if errs.KindOf(err) != errs.Stale || h.ctx.Err() != nil {
			return err
		}
		// The one who truncates has not said so yet, or has by now.
	}
}

func (h *hand) write(f *File, cells []int) {
	v := f.view.Load()
	fenced := v.fenced.Load()
	d := stripe.Volatile
	if h.rng.IntN(3) == 0 {
		d = stripe.Durability(h.rng.IntN(2))
	}
	op := v.Write(h.id, cells)
	m, p := h.memory(len(cells) * v.CellBytes())
	op.Fill(p)
	at := access(v.Ledger, cells)
	how := h.how()
	op.About("durability %d, session %d, %+v, %v", d, h.session, how, at)
	if at.Pieces() > 1 || len(p) >= bulkBytes || how.Mode == iod.Direct {
		op.Pieces()
	}
	err := h.stale(v, both, func(t iod.Target) error {
		t.How = how
		_, err := h.Client.Write(h.ctx, t, at, m, d)
		return err
	})
	if err != nil {
		op.Failed()
		h.buf = nil // a request that was given up may still be under way
		h.failed(v, "write", err)
		return
	}
	h.allowed(v, fenced, "write")
	op.Written(d != stripe.Volatile)
}

func (h *hand) read(f *File, cells []int) {
	v := f.view.Load()
	fenced := v.fenced.Load()
	op := v.Ask(h.id, cells)
	m, p := h.memory(len(cells) * v.CellBytes())
	for i := range p {
		p[i] = 0xa5 // what does not come is noticed
	}
	t := h.target(v, both)
	t.How = h.how()
	_, err := h.Client.Read(h.ctx, t, access(v.Ledger, cells), m)
	for errs.KindOf(err) == errs.Expired && h.ctx.Err() == nil {
		// It is from before a restart of the server, and nothing is there.
		t.Cap = h.target(v, both).Cap
		_, err = h.Client.Read(h.ctx, t, access(v.Ledger, cells), m)
	}
	if err != nil {
		op.Failed()
		h.buf = nil
		h.failed(v, "read", err)
		return
	}
	h.allowed(v, fenced, "read")
	if err := op.Seen(p); err != nil {
		h.violated("object %v: %v", v.id, err)
	}
}

func (h *hand) sync(f *File) bool {
	v := f.view.Load()
	op := v.Ask(h.id, nil)
	_, err := h.Client.Sync(h.ctx, h.target(v, both))
	if errs.KindOf(err) == errs.IO && (op.Told() || v.fencing.Load()) {
		return false // a truncation, or a fence, came before something was sent again
	}
	if err != nil {
		op.Failed()
		h.failed(v, "sync", err)
		return false
	}
	op.Synced()
	return true
}

func (h *hand) punch(f *File) {
	v := f.view.Load()
	fenced := v.fenced.Load()
	n := 1 + h.rng.IntN(v.Cells()/4)
	first := h.rng.IntN(v.Cells() - n + 1)
	cells := span(first, n)
	d := stripe.Durability(h.rng.IntN(2))
	op := v.Zero(h.id, cells)
	size := int64(v.CellBytes())
	off, length := int64(first)*size, int64(n)*size
	blank, reserve := d != stripe.Volatile && h.rng.IntN(2) == 0, h.rng.IntN(2) == 0
	err := h.stale(v, both, func(t iod.Target) (err error) {
		if reserve { // which changes no byte
			_, _, err = h.Client.ReserveSpace(h.ctx, t, off, length, false)
		}
		switch {
		case err != nil:
		case blank:
			_, err = h.Client.Blank(h.ctx, t, off, length)
		default:
			_, err = h.Client.Punch(h.ctx, t, off, length, d)
		}
		return err
	})
	if err != nil {
		op.Failed()
		h.failed(v, "punch", err)
		return
	}
	h.allowed(v, fenced, "punch")
	op.Written(d != stripe.Volatile)
}

// truncate cuts an object, or lets it grow, as the metadata service does: one at a time, each with
// the next number.
func (h *hand) truncate(f *File) {
	f.manage.Lock()
	defer f.manage.Unlock()
	v := f.view.Load()
	keep := h.rng.IntN(v.Cells() + 1)
	op := v.Truncate(h.id, span(keep, v.Cells()-keep))
	t := h.target(v, manage)
	t.Stamp.TruncSeq++
	err := h.Client.Truncate(h.Crowd.ctx, t, int64(keep)*int64(v.CellBytes()))
	if err != nil {
		op.Failed()
		if h.Crowd.ctx.Err() == nil {
			h.failed(v, "truncate", err)
		}
		return
	}
	v.trunc.Store(t.Stamp.TruncSeq)
	op.Written(true)
}

// fence raises the generation: from then on the object is another one, which was never written.
func (h *hand) fence(f *File) {
	f.manage.Lock()
	defer f.manage.Unlock()
	old := f.view.Load()
	old.fencing.Store(true)
	id := old.id
	id.Gen++
	t := h.site.Target(h.session, id, manage, 0)
	if err := h.Client.Fence(h.Crowd.ctx, t); err != nil {
		if h.Crowd.ctx.Err() == nil {
			h.failed(old, "fence", err)
		}
		return
	}
	old.fenced.Store(true)
	h.renew(f, id.Gen)
}

// remove forgets an object when nobody uses it and nothing of it is unsynced: as the metadata
// service does with files that nobody has open. Its generation is not used again.
func (h *hand) remove(f *File) {
	f.alone.Lock()
	defer f.alone.Unlock()
	for _, other := range h.present() {
		if !other.sync(f) {
			return
		}
	}
	v := f.view.Load()
	v.fencing.Store(true)
	if err := h.Client.Remove(h.Crowd.ctx, h.target(v, manage)); err != nil {
		if h.Crowd.ctx.Err() == nil {
			h.failed(v, "remove", err)
		}
		return
	}
	_, err := h.Client.Read(h.ctx, h.target(v, both), seg.Contig(0, 1), h.one())
	if k := errs.KindOf(err); k != errs.NotFound && k != errs.Expired && h.ctx.Err() == nil {
		h.violated("client %d: read of %v, which was removed: %v", h.id, v.id, err)
	}
	h.renew(f, v.id.Gen+1)
}

// one is memory for a byte.
func (h *hand) one() *msg.Memory {
	m, _ := h.memory(1)
	return m
}
