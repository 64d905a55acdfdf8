package unifier

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/wire"
)

func TestReadThroughAndHit(t *testing.T) {
	r := newRig(t, Config{})
	want := ramp(10*testUnit, 1)
	r.ok(r.store.WriteAt(r.ctx, alpha, [][]byte{want}, 100, wire.Stamp{}, stripe.Volatile))
	r.holds(alpha, 100, want)
	if n := r.store.Calls(fault.Read); n != 1 {
		t.Fatalf("adjacent units took %d reads", n)
	}
	r.holds(alpha, 5000, want[4900:])
	r.holds(alpha, 3, append(make([]byte, 97), want[:50]...))
	if n := r.store.Calls(fault.Read); n != 1 {
		t.Fatalf("cached bytes were read again: %d reads", n)
	}
	r.holds(Key{File: 99}, 1<<40, make([]byte, 10000))
	if l, err := r.Read(r.ctx, alpha, seg.Contig(50, 0), Hint{}); err != nil || len(l.Sges()) != 0 {
		t.Fatalf("empty read: %v", err)
	} else {
		l.Release()
	}
}

func TestAdjacentMissingUnitsAreOneRead(t *testing.T) {
	r := newRig(t, Config{})
	r.read(alpha, 4*testUnit, testUnit) // an island
	before := r.store.Calls(fault.Read)
	r.read(alpha, 0, 10*testUnit)
	if n := r.store.Calls(fault.Read) - before; n != 2 {
		t.Fatalf("two gaps took %d reads", n)
	}
	if got := r.cached(alpha, 100, 20*testUnit); got != 10*testUnit-100 {
		t.Fatalf("Query tells %d bytes", got)
	}
}

func TestWholeUnitsAreExchangedWithoutACopy(t *testing.T) {
	r := newRig(t, Config{})
	p := ramp(4*testUnit, 7)
	copied, reads := mem.Copied(), r.store.Calls(fault.Read)
	r.write(alpha, 8*testUnit, p)
	if n := mem.Copied() - copied; n != 0 {
		t.Fatalf("%d bytes were copied", n)
	}
	r.holds(alpha, 8*testUnit, p)
	if n := r.store.Calls(fault.Read) - reads; n != 0 {
		t.Fatalf("what was just written was read %d times", n)
	}
	if s := r.Stats(); s.Exchanged != 4 || s.Bytes != 4*testUnit {
		t.Fatalf("%+v", s)
	}
}

func TestPartsAreMerged(t *testing.T) {
	r := newRig(t, Config{})
	want := ramp(6*testUnit, 1)
	r.write(alpha, 0, want)
	put := func(off int, p []byte) {
		r.write(alpha, int64(off), p)
		copy(want[off:], p)
		r.holds(alpha, 0, want)
	}
	put(10, fill1(20, 9))          // in place
	put(testUnit-5, fill1(10, 8))  // two units
	put(100, fill1(5*testUnit, 7)) // part, whole units, part
	// Somebody has the unit: a fresh version.
	l, err := r.Read(r.ctx, alpha, seg.Contig(0, 100), Hint{})
	r.ok(err)
	old := gathered(l.Sges())
	put(50, fill1(20, 6))
	if !bytes.Equal(old, gathered(l.Sges())) {
		t.Fatal("a loan changed")
	}
	l.Release()
	if n := r.store.Calls(fault.Read); n != 0 {
		t.Fatalf("%d reads of what was cached", n)
	}
	r.write(alpha, 100*testUnit+5, fill1(10, 5)) // not cached: stays so
	if got := r.cached(alpha, 100*testUnit, testUnit); got != 0 {
		t.Fatalf("a part of a unit was cached: %d bytes", got)
	}
	r.holds(alpha, 100*testUnit, append(make([]byte, 5), fill1(10, 5)...))
}

func TestListsLaterPiecesWin(t *testing.T) {
	r := newRig(t, Config{})
	r.write(alpha, 0, ramp(4*testUnit, 1))
	want := ramp(4*testUnit, 1)
	pieces := []seg.Piece{
		{Off: 3*testUnit + 5, Len: 10}, {Off: 0, Len: 2 * testUnit}, {Off: 100, Len: 50},
		{Off: 120, Len: 0}, {Off: 120, Len: testUnit}, {Off: 3 * testUnit, Len: 7},
	}
	var data []byte
	for i, p := range pieces {
		part := fill1(int(p.Len), byte(100+i))
		copy(want[p.Off:], part)
		data = append(data, part...)
	}
	r.ok(r.tryWrite(alpha, data, pieces...))
	r.holds(alpha, 0, want)
	r.drop(alpha, 0, stripe.MaxObjectBytes)
	if got := r.cached(alpha, 0, stripe.MaxObjectBytes); got != 0 {
		t.Fatalf("%d bytes are cached after Invalidate", got)
	}
	r.holds(alpha, 0, want)
}

func TestManySmallPiecesNeedLittleMemory(t *testing.T) {
	r := newRig(t, Config{}) // drafts have 16 units
	var pieces []seg.Piece
	for i := range 1000 {
		pieces = append(pieces, seg.Piece{Off: int64(i) * 3 * testUnit, Len: 60})
	}
	p := ramp(60_000, 3)
	r.ok(r.tryWrite(alpha, p, pieces...))
	for i := range 1000 {
		r.holds(alpha, int64(i)*3*testUnit, p[i*60:(i+1)*60])
	}
}

func TestDurableListIsSyncedOnce(t *testing.T) {
	r := newRig(t, Config{})
	two := seg.List([]seg.Piece{{Off: 0, Len: 10}, {Off: 100, Len: 10}})
	d, err := r.Draft(r.ctx, alpha, two, Hint{})
	r.ok(err)
	r.ok(only(d.Publish(r.ctx, wire.Stamp{}, stripe.Durable)))
	if n := r.store.Calls(fault.Sync); n != 1 {
		t.Fatalf("%d syncs", n)
	}
	d, err = r.Draft(r.ctx, alpha, seg.Contig(5, 10), Hint{})
	r.ok(err)
	r.ok(only(d.Publish(r.ctx, wire.Stamp{}, stripe.Durable)))
	if n := r.store.Calls(fault.Sync); n != 1 {
		t.Fatalf("one piece took a sync of its own: %d", n)
	}
}

func TestAbortedDraftsLeaveNothing(t *testing.T) {
	r := newRig(t, Config{})
	r.write(alpha, 0, fill1(testUnit, 1))
	for i := range 1000 {
		d, err := r.Draft(r.ctx, alpha, seg.Contig(int64(i%7)*1000, 3*testUnit), Hint{})
		r.ok(err)
		scatter(d.Sges(), fill1(3*testUnit, 0xee))
		d.Abort()
	}
	r.holds(alpha, 0, append(fill1(testUnit, 1), make([]byte, 3*testUnit)...))
	if n := r.Stats().Drafted; n != 0 {
		t.Fatalf("%d units leaked", n)
	}
}

func TestReadersShareOneFill(t *testing.T) {
	r := newRig(t, Config{})
	gate := make(chan struct{})
	defer r.store.Inject(fault.Rule{Ops: fault.Read, Gate: gate})()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if l, err := r.Read(r.ctx, alpha, seg.Contig(100, 2*testUnit), Hint{}); err != nil {
				t.Error(err)
			} else {
				l.Release()
			}
		})
	}
	waitFor(t, func() bool { return r.Stats().Misses == 30 })
	close(gate)
	wg.Wait()
	if n := r.store.Calls(fault.Read); n != 1 {
		t.Fatalf("ten readers took %d reads", n)
	}
}

// A reader that gives up while it fetches for others does not take them down with it.
func TestLeaderGivesUp(t *testing.T) {
	r := newRig(t, Config{})
	gate := make(chan struct{})
	r.store.Inject(fault.Rule{Ops: fault.Read, Gate: gate, Count: 1})
	ctx, cancel := context.WithCancel(r.ctx)
	lead := make(chan error)
	go func() {
		_, err := r.Read(ctx, alpha, seg.Contig(0, testUnit), Hint{})
		lead <- err
	}()
	waitFor(t, func() bool { return r.store.Calls(fault.Read) == 1 })
	follow := make(chan error)
	go func() {
		l, err := r.Read(r.ctx, alpha, seg.Contig(0, 2*testUnit), Hint{})
		if err == nil {
			l.Release()
		}
		follow <- err
	}()
	waitFor(t, func() bool { return r.Stats().Misses == 3 })
	cancel()
	if err := <-lead; !errors.Is(err, errs.Canceled) {
		t.Fatalf("leader: %v", err)
	}
	if err := <-follow; err != nil {
		t.Fatalf("follower: %v", err)
	}
}

func TestFullOfLoansWaitsInOrder(t *testing.T) {
	r := newRig(t, Config{})
	l, err := r.Read(r.ctx, alpha, seg.Contig(0, r.ReadShare()), Hint{})
	r.ok(err)
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Millisecond)
	defer cancel()
	other := Key{File: 9}
	_, err = r.Read(ctx, other, seg.Contig(0, 1), Hint{})
	if !errors.Is(err, errs.TimedOut) {
		t.Fatalf("got %v, want timed out", err)
	}
	got := make(chan error)
	go func() {
		l, err := r.Read(r.ctx, other, seg.Contig(0, testUnit), Hint{})
		if err == nil {
			l.Release()
		}
		got <- err
	}()
	waitFor(t, func() bool { return r.Stats().Waits >= 2 })
	l.Release()
	r.ok(<-got)
	// A writer does not wait for readers: it has a share of its own.
	l, err = r.Read(r.ctx, alpha, seg.Contig(0, r.ReadShare()), Hint{})
	r.ok(err)
	r.write(alpha, 5, fill1(100, 3))
	l.Release()
	r.holds(alpha, 0, append(make([]byte, 5), fill1(100, 3)...))
}

func TestLimits(t *testing.T) {
	r := newRig(t, Config{})
	for _, c := range []struct {
		off, n int64
		want   errs.Kind
	}{
		{-1, 1, errs.Invalid}, {0, -1, errs.Invalid}, {stripe.MaxObjectBytes, 1, errs.Invalid},
		{0, r.ReadShare() + 1, errs.TooBig}, {1, r.ReadShare(), errs.TooBig},
	} {
		if _, err := r.Read(r.ctx, alpha, seg.Contig(c.off, c.n), Hint{}); !errors.Is(err, c.want) {
			t.Errorf("Read(%d, %d): %v, want %v", c.off, c.n, err, c.want)
		}
		if _, err := r.Draft(r.ctx, alpha, seg.Contig(c.off, c.n), Hint{}); !errors.Is(err, c.want) {
			t.Errorf("Draft(%d, %d): %v, want %v", c.off, c.n, err, c.want)
		}
	}
	for _, off := range []int64{0, 1, testUnit - 1} {
		r.read(alpha, off, r.ChunkMax())
		r.write(alpha, off, ramp(int(r.ChunkMax()), 1))
	}
	for _, bad := range []Config{
		{UnitBytes: 5000}, {UnitBytes: 1 << 10}, {MemoryBytes: 100}, {DraftShare: 0.9},
		{DirtyBytes: -1}, {DirtyBytes: 1 << 40}, {ReadyBytes: 1 << 40}, {DirtyAge: -1},
	} {
		if _, err := New(bad, r.store); !errors.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v, want invalid", bad, err)
		}
	}
}

func TestCloseWaitsForNobodyButSaysSo(t *testing.T) {
	r := newRig(t, Config{})
	l, err := r.Read(r.ctx, alpha, seg.Contig(0, 10), Hint{})
	r.ok(err)
	if err := r.Close(); !errors.Is(err, errs.Busy) {
		t.Fatalf("got %v, want busy", err)
	}
	if _, err := r.Read(r.ctx, alpha, seg.Contig(0, 10), Hint{}); !errors.Is(err, errs.Closed) {
		t.Fatalf("got %v, want closed", err)
	}
	if _, err := r.Draft(r.ctx, alpha, seg.Contig(0, 10), Hint{}); !errors.Is(err, errs.Closed) {
		t.Fatalf("got %v, want closed", err)
	}
	l.Release()
}

// A stream that is larger than the cache, in small steps, leaves what is used again alone.
func TestScanDoesNotSweepTheCache(t *testing.T) {
	r := newRig(t, Config{})
	hot := Key{File: 5}
	for range 3 {
		r.read(hot, 0, 10*testUnit)
	}
	for off := int64(0); off < 500*testUnit; off += 512 {
		r.read(alpha, off, 512)
	}
	if got := r.cached(hot, 0, 10*testUnit); got != 10*testUnit {
		t.Fatalf("the scan left %d of %d bytes", got, 10*testUnit)
	}
	// What was hot gives way to what is: protection is not for ever.
	for off := int64(0); off < 800*testUnit; off += testUnit {
		r.read(alpha, off, testUnit)
		r.read(alpha, off, testUnit)
	}
	if got := r.cached(hot, 0, 10*testUnit); got != 0 {
		t.Fatalf("%d bytes stayed although unused", got)
	}
}

func TestNoAllocationPerCachedRead(t *testing.T) {
	r := newRig(t, Config{})
	r.read(alpha, 0, 20*testUnit)
	if n := alloctest.PerRun(0, 200, func() {
		l, err := r.Read(r.ctx, alpha, seg.Contig(100, 10*testUnit), Hint{})
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
	}); n > 0 {
		t.Fatalf("%v allocations per cached read", n)
	}
	if n := alloctest.PerRun(0, 200, func() {
		d, err := r.Draft(r.ctx, alpha, seg.Contig(100, 10*testUnit), Hint{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Publish(r.ctx, wire.Stamp{}, stripe.Volatile); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Fatalf("%v allocations per write", n)
	}
}
