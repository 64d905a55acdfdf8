package unifier

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// still is a backing that does nothing, so that what is measured is the cache alone.
type still struct{}

func (still) ReadSums(context.Context, Key, [][]byte, int64, []uint32) error { return nil }

func (still) WriteSums(context.Context, Key, [][]byte, int64, []uint32, []wire.Stamp,
	stripe.Durability) error {
	return nil
}

func (still) Sync(context.Context, Key) error { return nil }

func (still) Admit(context.Context, Key, int64, int64, wire.Stamp, int64) (bool, error) {
	return false, nil
}

func newStill(t testing.TB, cfg Config) *rig { return newOn(t, cfg, still{}) }

func newOn(t testing.TB, cfg Config, backing Backing) *rig {
	r := &rig{TB: t, ctx: context.Background()}
	c, err := New(cfg, backing)
	r.ok(err)
	t.Cleanup(func() { r.ok(c.Close()) })
	r.Cache = c
	return r
}

// Nothing is allocated per request: not for hits, nor for misses that evict, nor for writes,
// through or back, nor for direct transfers.
func TestNothingIsAllocatedPerRequest(t *testing.T) {
	cases := map[string]func(r *rig, i int64){
		"hit":       func(r *rig, i int64) { r.lend(i%4*1000, 100<<10, Hint{}) },
		"hit list":  func(r *rig, i int64) { r.lendList(alpha) },
		"miss":      func(r *rig, i int64) { r.lend(i<<20, 200<<10, Hint{}) },
		"miss list": func(r *rig, i int64) { r.lendList(Key{File: uint64(i)}) },
		"none":      func(r *rig, i int64) { r.lend(0, 200<<10, Hint{Policy: None}) },
		"publish":   func(r *rig, i int64) { r.put(i%8*(200<<10), 200<<10, i) },
		"part":      func(r *rig, i int64) { r.put(i%999, 3000, i) },
		"room":      func(r *rig, i int64) { r.room() },
		"query":     func(r *rig, i int64) { r.Query(alpha, seg.Contig(0, 1<<20)) },
		"change":    func(r *rig, i int64) { r.ok(r.Change(r.ctx, alpha, 5, 10, nil)) },
	}
	for name, fn := range cases {
		for mode, cfg := range map[string]Config{
			"through": {MemoryBytes: 4 << 20, ReadaheadBytes: -1},
			"back": {MemoryBytes: 4 << 20, DirtyBytes: 1 << 20, ReadaheadBytes: -1, UnitBytes: 16 << 10,
				DirtyAge: time.Hour},
		} {
			r := newStill(t, cfg)
			i := int64(0)
			step := func() {
				fn(r, i)
				if i++; i%2 == 0 { // before flushers get to work, whom a writer might wait for
					r.ok(r.Settle(r.ctx, Key{}, 0, 0))
				}
			}
			for range 500 {
				step()
			}
			if n := alloctest.PerRun(0, 500, step); n >= 1 {
				t.Errorf("%s, %s: %v allocations per request", name, mode, n)
			}
		}
	}
}

func (r *rig) lend(off, n int64, h Hint) {
	l, err := r.Read(r.ctx, alpha, seg.Contig(off, n), h)
	r.ok(err)
	l.Release()
}

func (r *rig) lendList(id Key) {
	l, err := r.Read(r.ctx, id, fewPieces, Hint{})
	r.ok(err)
	l.Sums(sumRoom[:0], 64<<10)
	l.Release()
}

func (r *rig) put(off, n, i int64) {
	d, err := r.Draft(r.ctx, alpha, seg.Contig(off, n), Hint{})
	r.ok(err)
	st := wire.Stamp{Session: 3, Slot: uint16(i % 16), Seq: uint32(i/16 + 1)}
	_, err = d.Publish(r.ctx, st, stripe.Volatile)
	r.ok(err)
}

func (r *rig) room() {
	room, err := r.Take(r.ctx, 128<<10)
	r.ok(err)
	room.Return()
}

var (
	fewPieces = seg.List([]seg.Piece{
		{Off: 0, Len: 100}, {Off: 5000, Len: 9000}, {Off: 1 << 20, Len: 64 << 10}})
	sumRoom [16]uint32
)
