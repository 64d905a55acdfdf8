package stripetest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// modelObject is what an object must be: its bytes up to its size, and its truncate sequence.
type modelObject struct {
	data []byte
	seq  uint64
}

// model is a store of the simplest kind.
type model struct {
	objects map[stripe.ObjectID]*modelObject
	minGen  map[uint64]uint32
	epochs  map[uint64]uint32
}

const modelSpan = 300_000 // offsets of the random operations stay below

func modelCase(t testing.TB, c Config) {
	first := rand.Uint64() >> 1
	seeds := c.Seeds
	if v, err := strconv.ParseUint(os.Getenv("STRIPETEST_SEED"), 10, 64); err == nil {
		first, seeds = v, 1
	}
	for i := range uint64(seeds) {
		t.Logf("seed %d (again with STRIPETEST_SEED=%d)", first+i, first+i)
		newWalk(t, c, first+i).run(300)
	}
}

// walk is one random run.
type walk struct {
	*rig
	rnd *rand.Rand
	m   model
}

func newWalk(t testing.TB, c Config, seed uint64) *walk {
	return &walk{
		rig: newRig(t, c),
		rnd: rand.New(rand.NewPCG(seed, 0)),
		m: model{map[stripe.ObjectID]*modelObject{}, map[uint64]uint32{},
			map[uint64]uint32{}},
	}
}

func (w *walk) run(steps int) {
	w.Helper()
	for range steps {
		w.step()
	}
	w.reopen()
	w.checkAll()
	w.ok(w.e.Close())
}

func (w *walk) step() {
	id := stripe.ObjectID{
		File: 1 + w.rnd.Uint64N(3), Gen: 1 + w.rnd.Uint32N(2), Stripe: w.rnd.Uint32N(2),
	}
	switch n := w.rnd.IntN(100); {
	case n < 35:
		w.stepWrite(id)
	case n < 60:
		w.stepRead(id)
	case n < 70:
		w.stepTruncate(id)
	case n < 75:
		w.stepPunch(id)
	case n < 77:
		w.stepZero(id)
	case n < 79:
		w.stepBlank(id)
	case n < 83:
		w.stepReserve(id)
	case n < 88:
		w.stepMap(id)
	case n < 92:
		w.ok(w.e.Remove(w.ctx, id))
		delete(w.m.objects, id)
	case n < 95:
		w.expect(w.e.Sync(w.ctx, id), w.fence(id))
	case n < 97:
		w.checkAll()
	case n < 98 && w.rnd.IntN(2) == 0:
		epoch := w.m.epochs[id.File] + w.rnd.Uint32N(2)
		w.ok(w.e.SetMinEpoch(w.ctx, id.File, epoch))
		w.m.epochs[id.File] = epoch
	case n < 98:
		gen := w.rnd.Uint32N(3)
		w.ok(w.e.SetMinGeneration(w.ctx, id.File, gen))
		w.m.minGen[id.File] = max(w.m.minGen[id.File], gen)
	default:
		w.reopen()
	}
}

// expect compares the outcome with what the model says and tells whether the request was applied.
func (w *walk) expect(err error, want errs.Kind) bool {
	w.Helper()
	if got := errs.KindOf(err); got != want {
		w.Fatalf("got %v, want kind %q", err, want)
	}
	return want == errs.OK
}

func (w *walk) fence(id stripe.ObjectID) errs.Kind {
	if id.Gen < w.m.minGen[id.File] {
		return errs.Fenced
	}
	return errs.OK
}

// verdict is what the model says to a request with the sequence.
func (w *walk) verdict(id stripe.ObjectID, seq uint64) errs.Kind {
	if k := w.fence(id); k != errs.OK {
		return k
	}
	if o := w.m.objects[id]; o != nil && seq < o.seq {
		return errs.Stale
	}
	return errs.OK
}

// writerVerdict is the same for a writer, whose epoch may be fenced.
func (w *walk) writerVerdict(id stripe.ObjectID, st wire.Stamp) errs.Kind {
	if st.Epoch < w.m.epochs[id.File] {
		return errs.Fenced
	}
	return w.verdict(id, st.TruncSeq)
}

// someStamp is mostly one that is as it should be, at times that of a fenced epoch.
func (w *walk) someStamp(id stripe.ObjectID) wire.Stamp {
	st := seq(w.someSeq(id))
	st.Epoch = w.m.epochs[id.File]
	if w.rnd.IntN(10) == 0 {
		st.Epoch = max(st.Epoch, 1) - 1
	}
	return st
}

// someSeq is mostly the object's own sequence, at times an older or a newer one.
func (w *walk) someSeq(id stripe.ObjectID) uint64 {
	var have uint64
	if o := w.m.objects[id]; o != nil {
		have = o.seq
	}
	switch w.rnd.IntN(10) {
	case 0:
		return max(have, 1) - 1
	case 1:
		return have + 1
	}
	return have
}

func (w *walk) someRange() (off, n int64) {
	off = w.rnd.Int64N(modelSpan)
	n = w.rnd.Int64N(modelSpan - off)
	if w.rnd.IntN(2) == 0 { // aligned ends are worth more than their share
		off, n = off&^4095, n&^4095
	}
	if w.rnd.IntN(2) == 0 {
		n = min(n, 5000)
	}
	return off, n
}

// split cuts p into a few buffers.
func (w *walk) split(p []byte) [][]byte {
	var bufs [][]byte
	for len(p) > 0 && len(bufs) < 4 {
		n := w.rnd.IntN(len(p) + 1)
		bufs = append(bufs, p[:n])
		p = p[n:]
	}
	return append(bufs, p)
}

func (w *walk) stepWrite(id stripe.ObjectID) {
	off, n := w.someRange()
	st := w.someStamp(id)
	p := fill(int(n), byte(w.rnd.Uint32()))
	d := stripe.Durability(max(w.rnd.IntN(9)-6, 0))
	var err error
	if off%4096 == 0 && n%4096 == 0 && w.rnd.IntN(2) == 0 {
		err = w.e.WriteSums(w.ctx, id, w.split(p), off, sumsOf(p), []wire.Stamp{st}, d)
	} else {
		err = w.e.WriteAt(w.ctx, id, w.split(p), off, st, d)
	}
	if !w.expect(err, w.writerVerdict(id, st)) {
		return
	}
	o := w.m.objects[id]
	if o == nil {
		o = &modelObject{}
		w.m.objects[id] = o
	}
	if n > 0 {
		o.resize(max(int64(len(o.data)), off+n))
		copy(o.data[off:], p)
	}
}

func (o *modelObject) resize(size int64) {
	if size <= int64(len(o.data)) {
		o.data = o.data[:size:size]
		return
	}
	o.data = append(o.data, make([]byte, size-int64(len(o.data)))...)
}

// want is what the model says a read returns.
func (w *walk) want(id stripe.ObjectID, off, n int64) []byte {
	p := make([]byte, n)
	if o := w.m.objects[id]; o != nil && off < int64(len(o.data)) {
		copy(p, o.data[off:])
	}
	return p
}

func (w *walk) stepRead(id stripe.ObjectID) {
	off, n := w.someRange()
	if off%4096 == 0 && n%4096 == 0 && w.fence(id) == errs.OK && w.rnd.IntN(2) == 0 {
		w.holdsSums(id, off, w.want(id, off, n))
		return
	}
	p := fill(int(n), 0x33)
	if !w.expect(w.e.ReadAt(w.ctx, id, w.split(p), off), w.fence(id)) {
		return
	}
	if !bytes.Equal(p, w.want(id, off, n)) {
		w.Fatalf("object %v: [%d, +%d) differs from the model", id, off, n)
	}
}

func (w *walk) stepTruncate(id stripe.ObjectID) {
	size, _ := w.someRange()
	st := seq(w.someSeq(id))
	if w.rnd.IntN(2) == 0 {
		st.TruncSeq++
	}
	if !w.expect(w.e.Truncate(w.ctx, id, size, st), w.verdict(id, st.TruncSeq)) {
		return
	}
	o := w.m.objects[id]
	if o == nil && st.TruncSeq == 0 {
		return
	}
	if o == nil {
		o = &modelObject{}
		w.m.objects[id] = o
	}
	if st.TruncSeq == 0 || st.TruncSeq != o.seq {
		o.resize(size)
		o.seq = st.TruncSeq
	}
}

func (w *walk) stepPunch(id stripe.ObjectID) {
	off, n := w.someRange()
	st := w.someStamp(id)
	err := w.e.Punch(w.ctx, id, off, n, st, stripe.Volatile)
	if !w.expect(err, w.writerVerdict(id, st)) {
		return
	}
	if o := w.m.objects[id]; o != nil && off < int64(len(o.data)) {
		clear(o.data[off:min(off+n, int64(len(o.data)))])
	}
}

func (w *walk) stepBlank(id stripe.ObjectID) {
	off, n := w.someRange()
	st := w.someStamp(id)
	before := int64(0)
	if w.fence(id) == errs.OK {
		before = w.stat(id).Allocated
	}
	err := w.e.Blank(w.ctx, id, off, n, st, stripe.Volatile)
	if !w.expect(err, w.writerVerdict(id, st)) {
		return
	}
	if after := w.stat(id).Allocated; after != before {
		w.Fatalf("object %v: blanking [%d, +%d) made %d bytes of %d", id, off, n, after, before)
	}
	if o := w.m.objects[id]; o != nil && off < int64(len(o.data)) {
		clear(o.data[off:min(off+n, int64(len(o.data)))])
	}
}

// stepReserve reserves a range and, now and then, gives it back.
func (w *walk) stepReserve(id stripe.ObjectID) {
	off, n := w.someRange()
	st := w.someStamp(id)
	var before stripe.Info
	if w.fence(id) == errs.OK {
		before = w.stat(id)
	}
	extend, undo := w.rnd.IntN(2) == 0, w.rnd.IntN(3) == 0
	_, fresh, err := w.e.Reserve(w.ctx, id, stripe.Reservation{Off: off, Len: n, PiecesMax: 1 << 20,
		Extend: extend}, st)
	if !w.expect(err, w.writerVerdict(id, st)) {
		return
	}
	o := w.m.objects[id]
	if o == nil {
		o = &modelObject{}
		w.m.objects[id] = o
	}
	if extend {
		o.resize(max(int64(len(o.data)), off+n))
	}
	w.haveSpace(id, off, n)
	if undo {
		for _, p := range fresh {
			w.ok(w.e.Release(w.ctx, id, p.Off, p.Len, st))
		}
		if got := w.stat(id).Allocated; got != before.Allocated {
			w.Fatalf("object %v: reserving [%d, +%d) and undoing it made %d bytes of %d", id, off, n,
				got, before.Allocated)
		}
	}
}

func (w *walk) stepZero(id stripe.ObjectID) {
	off, n := w.someRange()
	st := w.someStamp(id)
	err := w.e.Zero(w.ctx, id, off, n, st, stripe.Volatile)
	if !w.expect(err, w.writerVerdict(id, st)) {
		return
	}
	o := w.m.objects[id]
	if o == nil {
		o = &modelObject{}
		w.m.objects[id] = o
	}
	if n > 0 {
		o.resize(max(int64(len(o.data)), off+n))
		clear(o.data[off : off+n])
	}
}

func (w *walk) stepMap(id stripe.ObjectID) {
	if w.fence(id) != errs.OK {
		return
	}
	off, n := w.someRange()
	for _, x := range w.extents(id, off, n) {
		if x.Hole && len(bytes.Trim(w.want(id, x.Off, x.Len), "\x00")) > 0 {
			w.Fatalf("object %v: %+v is called a hole, the model has data", id, x)
		}
	}
}

// checkAll compares the list of objects, their sizes and all their bytes with the model.
func (w *walk) checkAll() {
	w.Helper()
	got := w.list()
	for id, o := range w.m.objects {
		in, there := got[id]
		if !there || in.Size != int64(len(o.data)) || in.TruncSeq != o.seq {
			w.Fatalf("object %v: listed %v as %+v, the model has size %d, sequence %d",
				id, there, in, len(o.data), o.seq)
		}
		if w.fence(id) == errs.OK {
			w.size(id, int64(len(o.data)))
			w.holds(id, 0, append(bytes.Clone(o.data), 0, 0, 0))
		}
	}
	if len(got) != len(w.m.objects) {
		w.Fatalf("%d objects are listed, the model has %d", len(got), len(w.m.objects))
	}
}
