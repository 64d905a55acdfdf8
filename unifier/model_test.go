package unifier

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/wire"
)

// envInt reads a number that a soak run may set.
func envInt(name string, def int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return def
}

// TestModel runs random operations against plain bytes. UNIFIER_SEED repeats one run,
// UNIFIER_SEEDS sets how many there are.
func TestModel(t *testing.T) {
	first, seeds := int(rand.Uint32()), envInt("UNIFIER_SEEDS", 20)
	if v := envInt("UNIFIER_SEED", -1); v >= 0 {
		first, seeds = v, 1
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			w := &walk{rig: newRig(t, 24), rnd: rand.New(rand.NewPCG(uint64(seed), 0))}
			for range 400 {
				w.step()
			}
			for len(w.out) > 0 {
				w.giveBack()
			}
			w.checkAll()
		})
	}
}

const modelBytes = 60 * testUnit // more than twice the memory

// walk is one random run. out are loans that are held, with what they showed at first.
type walk struct {
	*rig
	rnd   *rand.Rand
	model [2][modelBytes]byte
	out   []held
}

type held struct {
	loan *Loan
	was  []byte
}

func (w *walk) object() (Key, []byte) {
	i := w.rnd.IntN(2)
	return Key{File: uint64(i + 1)}, w.model[i][:]
}

// piece is a random range: small or large, aligned or not.
func (w *walk) piece(most int64) seg.Piece {
	p := seg.Piece{Off: w.rnd.Int64N(modelBytes), Len: 1 + w.rnd.Int64N(most)}
	if w.rnd.IntN(2) == 0 {
		p.Off = p.Off / testUnit * testUnit
		p.Len = max(p.Len/testUnit*testUnit, 1)
	}
	p.Len = min(p.Len, modelBytes-p.Off)
	return p
}

func (w *walk) step() {
	switch n := w.rnd.IntN(100); {
	case n < 40:
		w.stepRead()
	case n < 75:
		w.stepWrite()
	case n < 80:
		w.giveBack()
	case n < 85:
		w.stepBehind()
	case n < 88:
		id, _ := w.object()
		p := w.piece(modelBytes)
		w.Invalidate(id, p.Off, p.Len)
	case n < 92:
		pieces := []seg.Piece{w.piece(2 * testUnit), w.piece(100)}
		d, err := w.Draft(w.ctx, alpha, seg.List(pieces), Hint{})
		w.ok(err)
		for _, s := range d.Sges() {
			clear(s.Buf)
		}
		d.Abort()
	case n < 99:
		w.stepFault()
	default:
		w.checkAll()
	}
}

func (w *walk) stepRead() {
	id, model := w.object()
	p := w.piece(3 * testUnit)
	if len(w.out) > 1 { // a few loans must not fill the readers' share
		w.giveBack()
	}
	l, err := w.Read(w.ctx, id, seg.Contig(p.Off, p.Len), Hint{})
	w.ok(err)
	got := gather(l.Sges())
	if !bytes.Equal(got, model[p.Off:p.End()]) {
		w.Fatalf("object %v: %+v differs from the model", id, p)
	}
	w.out = append(w.out, held{l, got})
}

// giveBack ends the oldest loan, which must show what it showed at first.
func (w *walk) giveBack() {
	if len(w.out) == 0 {
		return
	}
	h := w.out[0]
	w.out = w.out[1:]
	if !bytes.Equal(gather(h.loan.Sges()), h.was) {
		w.Fatal("a loan changed while it was out")
	}
	h.loan.Release()
}

func (w *walk) someWrite() (Key, []byte, []seg.Piece, []byte) {
	id, model := w.object()
	var pieces []seg.Piece
	var data []byte
	for range 1 + w.rnd.IntN(3)*w.rnd.IntN(3) {
		p := w.piece(1 + w.rnd.Int64N(testUnit*3/2))
		pieces = append(pieces, p)
		data = append(data, ramp(int(p.Len), byte(w.rnd.Uint32()))...)
	}
	return id, model, pieces, data
}

func (w *walk) stepWrite() {
	id, model, pieces, data := w.someWrite()
	d, err := w.Draft(w.ctx, id, seg.List(pieces), Hint{})
	if errors.Is(err, errs.TooBig) {
		return
	}
	w.ok(err)
	scatter(d.Sges(), data)
	w.ok(only(d.Publish(w.ctx, wire.Stamp{}, stripe.Durability(w.rnd.IntN(2)))))
	for _, p := range pieces {
		copy(model[p.Off:p.End()], data)
		data = data[p.Len:]
	}
}

// stepBehind changes the backing behind the cache and invalidates.
func (w *walk) stepBehind() {
	id, model := w.object()
	p := w.piece(5 * testUnit)
	w.ok(w.store.Punch(w.ctx, id, p.Off, p.Len, wire.Stamp{}, stripe.Volatile))
	w.Invalidate(id, p.Off, p.Len)
	clear(model[p.Off:p.End()])
}

// stepFault lets a write or a read fail. What the backing holds then is what counts.
func (w *walk) stepFault() {
	rule := fault.Rule{
		Ops: fault.Write | fault.Sync | fault.Read, Err: errs.IO, Late: w.rnd.IntN(2) == 0,
		Skip: w.rnd.IntN(3), Count: 1,
	}
	remove := w.store.Inject(rule)
	id, model, pieces, data := w.someWrite()
	if d, err := w.Draft(w.ctx, id, seg.List(pieces), Hint{}); err == nil {
		scatter(d.Sges(), data)
		_, _ = d.Publish(w.ctx, wire.Stamp{}, stripe.Durable) // may fail or not
	}
	if l, err := w.Read(w.ctx, id, seg.Contig(0, 2*testUnit), Hint{}); err == nil {
		l.Release()
	}
	remove()
	w.ok(w.store.ReadAt(w.ctx, id, [][]byte{model}, 0))
}

// checkAll reads everything through the cache.
func (w *walk) checkAll() {
	w.Helper()
	for i := range w.model {
		for off := int64(0); off < modelBytes; off += 4 * testUnit {
			w.holds(Key{File: uint64(i + 1)}, off, w.model[i][off:off+4*testUnit])
		}
	}
}
