package unifier

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

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
	first, seeds := int(rand.Uint32()), 12
	if testing.Short() {
		seeds = 5 // under the race detector
	}
	seeds = envInt("UNIFIER_SEEDS", seeds)
	if v := envInt("UNIFIER_SEED", -1); v >= 0 {
		first, seeds = v, 1
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { modelRun(t, seed) })
	}
}

func modelRun(t testing.TB, seed int) {
	rnd := rand.New(rand.NewPCG(uint64(seed), 0))
	cfg := Config{MemoryBytes: 4 << 20, UnitBytes: blockBytes << rnd.IntN(5),
		ReadyBytes: int64(rnd.IntN(3)-1) << 18}
	if rnd.IntN(4) > 0 {
		cfg.DirtyBytes, cfg.DirtyAge = 256<<10, time.Duration(rnd.IntN(3))*time.Millisecond+1
		if rnd.IntN(2) == 0 {
			cfg.DirtyAge = time.Hour
		}
	}
	if rnd.IntN(2) == 0 {
		cfg.ReadaheadBytes = 64 << 10
	}
	w := &walk{rig: newRig(t, cfg), rnd: rnd}
	for i := range w.tale {
		w.tale[i].now = make([]byte, modelBytes)
		w.tale[i].synced()
	}
	for range 400 {
		w.step()
	}
	for len(w.out) > 0 {
		w.giveBack()
	}
	w.checkAll()
}

const modelBytes = 2560 << 10 // two of them are more than the memory

// walk is one random run. out are loans that are held, with what they showed at first.
type walk struct {
	*rig
	rnd  *rand.Rand
	tale [2]tale
	out  []held
	seq  uint32
}

type held struct {
	loan *Loan
	was  []byte
}

// tale is what an object holds, and what a crash may leave of it: the state at the last sync, and
// after each write since.
type tale struct {
	now   []byte
	base  []byte
	since []told
}

// told is one write since the last sync.
type told struct {
	pieces []seg.Piece
	data   []byte
	stamp  wire.Stamp
}

func (t *tale) synced() { t.base, t.since = slices.Clone(t.now), nil }

func (t told) apply(to []byte) {
	data := t.data
	for _, p := range t.pieces {
		copy(to[p.Off:p.End()], data)
		data = data[p.Len:]
	}
}

// applyCut applies the pieces that the store has of a list whose writing back was cut off by a
// crash: each piece is old or new, and the number comes with the last one. Pieces that overlap are
// written in their order, and the first ones may have bytes of later ones already.
func (t told) applyCut(to, have []byte) {
	for n := len(t.pieces) - 1; n > 0; n-- {
		first, all := slices.Clone(to), slices.Clone(to)
		told{pieces: t.pieces[:n], data: t.data}.apply(first)
		t.apply(all)
		if same(t.pieces[:n], first, have) || same(t.pieces[:n], all, have) {
			for _, p := range t.pieces[:n] {
				copy(to[p.Off:p.End()], have[p.Off:])
			}
			return
		}
	}
	data := t.data
	for _, p := range t.pieces[:len(t.pieces)-1] {
		if bytes.Equal(have[p.Off:p.End()], data[:p.Len]) {
			copy(to[p.Off:p.End()], data)
		}
		data = data[p.Len:]
	}
}

// same compares pieces of two objects.
func same(pieces []seg.Piece, a, b []byte) bool {
	return !slices.ContainsFunc(pieces, func(p seg.Piece) bool {
		return !bytes.Equal(a[p.Off:p.End()], b[p.Off:p.End()])
	})
}

func (w *walk) object() (Key, *tale) {
	i := w.rnd.IntN(2)
	return Key{File: uint64(i + 1)}, &w.tale[i]
}

// hint changes now and then.
func (w *walk) hint() Hint {
	h := Hint{Policy: Policy(w.rnd.IntN(int(policies)))}
	if w.rnd.IntN(20) == 0 {
		h.Unit = blockBytes << w.rnd.IntN(5)
	}
	return h
}

// piece is a random range: small or large, aligned or not.
func (w *walk) piece(most int64) seg.Piece {
	p := seg.Piece{Off: w.rnd.Int64N(modelBytes), Len: 1 + w.rnd.Int64N(most)}
	if w.rnd.IntN(3) > 0 {
		p.Off = p.Off / testUnit * testUnit
		p.Len = max(p.Len/testUnit*testUnit, 1)
	}
	if w.rnd.IntN(3) == 0 {
		p.Off %= 64 << 10 // a corner that is used often
	}
	p.Len = min(p.Len, modelBytes-p.Off)
	return p
}

func (w *walk) step() {
	switch n := w.rnd.IntN(100); {
	case n < 35:
		w.stepRead()
	case n < 65:
		id, t := w.object()
		w.stepWrite(id, t, w.someWrite())
	case n < 75:
		w.stepBurst()
	case n < 83:
		w.giveBack()
	case n < 87:
		w.stepChange()
	case n < 91:
		id, t := w.object()
		w.ok(w.Sync(w.ctx, id))
		t.synced()
	case n < 94:
		pieces := []seg.Piece{w.piece(2 * testUnit), w.piece(100)}
		d, err := w.Draft(w.ctx, alpha, seg.List(pieces), Hint{})
		w.ok(err)
		for _, s := range d.Sges() {
			clear(s.Buf)
		}
		d.Abort()
	case n < 96:
		w.stepFault()
	case n < 98:
		w.stepCrash()
	case n < 99:
		w.stepTiles()
	default:
		w.checkAll()
	}
}

func (w *walk) stepRead() {
	id, t := w.object()
	if len(w.out) > 1 { // a few loans must not fill the readers' share
		w.giveBack()
	}
	pieces := []seg.Piece{w.piece(40 << 10)}
	if w.rnd.IntN(3) == 0 {
		pieces = append(pieces, w.piece(10), w.piece(testUnit))
	}
	l := w.lendOrRead(id, seg.List(pieces))
	got := gathered(l.Sges())
	var want []byte
	for _, p := range pieces {
		want = append(want, t.now[p.Off:p.End()]...)
	}
	if !bytes.Equal(got, want) {
		w.Fatalf("object %v: %+v differs from the model", id, pieces)
	}
	chunk := testUnit << w.rnd.IntN(5)
	if !slices.Equal(l.Sums(nil, int64(chunk)), sumsOf(got, chunk)) {
		w.Fatalf("object %v: %+v: wrong sums of %d bytes each", id, pieces, chunk)
	}
	w.out = append(w.out, held{l, got})
}

// lendOrRead takes one of the two ways, and the long one where the short one does not lead on.
func (w *walk) lendOrRead(id Key, a seg.Access) *Loan {
	h := w.hint()
	if w.rnd.IntN(2) == 0 {
		if l := w.Lend(id, a, h); l != nil {
			return l
		}
	}
	l, err := w.Read(w.ctx, id, a, h)
	w.ok(err)
	return l
}

// giveBack ends the oldest loan, which must show what it showed at first.
func (w *walk) giveBack() {
	if len(w.out) == 0 {
		return
	}
	h := w.out[0]
	w.out = w.out[1:]
	if !bytes.Equal(gathered(h.loan.Sges()), h.was) {
		w.Fatal("a loan changed while it was out")
	}
	h.loan.Release()
}

// someWrite makes up a request.
func (w *walk) someWrite() told {
	var x told
	for range 1 + w.rnd.IntN(3)*w.rnd.IntN(3) {
		p := w.piece(1 + w.rnd.Int64N(40<<10))
		x.pieces = append(x.pieces, p)
		x.data = append(x.data, ramp(int(p.Len), byte(w.rnd.Uint32()))...)
	}
	w.seq++
	x.stamp = wire.Stamp{Session: 7, Slot: uint16(w.rnd.IntN(3)), Seq: w.seq}
	return x
}

func (w *walk) send(id Key, x told, dur stripe.Durability) (repeated bool, err error) {
	d, err := w.Draft(w.ctx, id, seg.List(x.pieces), w.hint())
	if err != nil {
		return false, err
	}
	scatter(d.Sges(), x.data)
	if w.rnd.IntN(2) == 0 {
		chunk := testUnit << w.rnd.IntN(5)
		w.ok(d.Verify(sumsOf(x.data, chunk), int64(chunk)))
	}
	return d.Publish(w.ctx, x.stamp, dur)
}

// stepBurst writes a few neighbours.
func (w *walk) stepBurst() {
	id, t := w.object()
	p := w.piece(2 * testUnit)
	for range 1 + w.rnd.IntN(6) {
		if p.Len = min(p.Len, modelBytes-p.Off); p.Len == 0 {
			return
		}
		x := w.someWrite()
		x.pieces, x.data = []seg.Piece{p}, ramp(int(p.Len), byte(w.rnd.Uint32()))
		w.stepWrite(id, t, x)
		p.Off = p.End()
	}
}

func (w *walk) stepWrite(id Key, t *tale, x told) {
	dur := stripe.Durability(w.rnd.IntN(8) / 6)
	repeated, err := w.send(id, x, dur)
	if errors.Is(err, errs.TooBig) {
		return
	}
	w.ok(err)
	if repeated {
		w.Fatalf("%+v is no repeat", x.stamp)
	}
	x.apply(t.now)
	t.since = append(t.since, x)
	if w.rnd.IntN(10) == 0 { // a lost answer: it is sent again
		if repeated, err = w.send(id, x, dur); err != nil || !repeated {
			w.Fatalf("a repeat was not recognised: %v", err)
		}
	}
}

// stepChange changes the backing past the cache.
func (w *walk) stepChange() {
	id, t := w.object()
	p := w.piece(100 << 10)
	w.ok(w.Change(w.ctx, id, p.Off, p.Len, func() error {
		return w.store.Punch(w.ctx, id, p.Off, p.Len, wire.Stamp{}, stripe.Volatile)
	}))
	x := told{pieces: []seg.Piece{p}, data: make([]byte, p.Len)}
	x.apply(t.now)
	t.since = append(t.since, x)
}

// stepFault lets a write or a read fail. What the backing holds then is what counts.
func (w *walk) stepFault() {
	for i := range w.tale {
		w.ok(w.Sync(w.ctx, Key{File: uint64(i + 1)}))
		w.tale[i].synced()
	}
	id, t := w.object()
	remove := w.store.Inject(fault.Rule{
		Ops: fault.Write | fault.Sync | fault.Read, Err: errs.IO, Late: w.rnd.IntN(2) == 0,
		Skip: w.rnd.IntN(3), Count: 1,
	})
	for range 3 {
		_, _ = w.send(id, w.someWrite(), stripe.Durability(w.rnd.IntN(2))) // may fail or not
	}
	if l, err := w.Read(w.ctx, id, seg.Contig(0, 2*testUnit), Hint{}); err == nil {
		l.Release()
	}
	_ = w.Settle(w.ctx, id, 0, modelBytes)
	remove()
	w.ok(w.Settle(w.ctx, id, 0, modelBytes))
	w.ok(w.store.ReadAt(w.ctx, id, [][]byte{t.now}, 0))
	t.synced()
}

// stepTiles writes what several writers share, each of whom leaves gaps for the others.
func (w *walk) stepTiles() {
	id, t := w.object()
	row, writers := 1+w.rnd.Int64N(3*testUnit), 2+w.rnd.Int64N(3)
	if w.rnd.IntN(2) == 0 {
		row = (row + testUnit - 1) / testUnit * testUnit
	}
	rows, apart := 1+w.rnd.Int64N(5), writers+w.rnd.Int64N(2)
	base := w.rnd.Int64N(modelBytes - row*rows*apart)
	for i := range writers {
		x := w.someWrite()
		x.pieces, x.data = nil, nil
		for k := range rows {
			p := seg.Piece{Off: base + (k*apart+i)*row, Len: row}
			x.pieces = append(x.pieces, p)
			x.data = append(x.data, ramp(int(p.Len), byte(w.rnd.Uint32()))...)
		}
		w.stepWrite(id, t, x)
	}
}

// stepCrash throws the cache away and opens another one on the same store, which has exactly what
// it was told the number of. All writes since the last sync are sent again, and those are applied.
func (w *walk) stepCrash() {
	for len(w.out) > 0 {
		w.giveBack()
	}
	if w.rnd.IntN(2) == 0 {
		w.stepTiles()
	}
	if id, _ := w.object(); w.rnd.IntN(2) == 0 { // in the middle of writing back
		w.host.dieIn(w.rnd.IntN(6))
		_ = w.Settle(w.ctx, id, 0, modelBytes)
	}
	applied := w.crash()
	for i := range w.tale {
		id, t := Key{File: uint64(i + 1)}, &w.tale[i]
		have, want := make([]byte, modelBytes), slices.Clone(t.base)
		w.ok(w.store.ReadAt(w.ctx, id, [][]byte{have}, 0))
		for _, x := range t.since {
			if applied[x.stamp] || !stripe.Numbered(x.stamp) {
				x.apply(want)
			} else {
				x.applyCut(want, have)
			}
		}
		if !bytes.Equal(want, have) {
			w.Fatalf("object %v lacks more, or less, than what was pending", id)
		}
	}
	w.sendAgain(applied)
	w.checkAll()
}

// sendAgain sends in the order in which all was sent at first: a lower number of a slot that comes
// later would look like a repeat.
func (w *walk) sendAgain(applied map[wire.Stamp]bool) {
	type sent struct {
		id Key
		told
	}
	var all []sent
	for i := range w.tale {
		for _, x := range w.tale[i].since {
			if stripe.Numbered(x.stamp) {
				all = append(all, sent{Key{File: uint64(i + 1)}, x})
			}
		}
	}
	slices.SortFunc(all, func(a, b sent) int { return cmp.Compare(a.stamp.Seq, b.stamp.Seq) })
	for _, x := range all {
		repeated, err := w.send(x.id, x.told, stripe.Volatile)
		w.ok(err)
		if repeated != applied[x.stamp] {
			w.Fatalf("object %v: applied %v, but repeated %v", x.id, applied[x.stamp], repeated)
		}
	}
}

// crash ends a cache without writing back, and opens another one. It tells which requests have
// reached the store.
func (r *rig) crash() (applied map[wire.Stamp]bool) {
	r.Helper()
	r.back.Stop() // no call is cut in the middle: what a store does then is its own business
	r.host.die()
	r.store.mu.Lock()
	applied = maps.Clone(r.store.applied)
	r.store.mu.Unlock()
	if err := r.Cache.Close(); errs.KindOf(err) == errs.Busy {
		r.Fatal(err)
	}
	r.open()
	return applied
}

// checkAll reads everything through the cache.
func (w *walk) checkAll() {
	w.Helper()
	for i := range w.tale {
		w.holdsAll(Key{File: uint64(i + 1)}, &w.tale[i])
	}
}

func (w *walk) holdsAll(id Key, t *tale) {
	w.Helper()
	for off := int64(0); off < modelBytes; off += 32 << 10 {
		w.holds(id, off, t.now[off:off+32<<10])
	}
}
