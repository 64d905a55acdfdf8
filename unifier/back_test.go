package unifier

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/wire"
)

// newBack writes back, and not by age.
func newBack(t testing.TB) *rig {
	return newRig(t, Config{MemoryBytes: 2 << 20, DirtyBytes: 512 << 10, DirtyAge: time.Hour})
}

func (r *rig) stamped(id Key, off int64, p []byte, st wire.Stamp, dur stripe.Durability) bool {
	r.Helper()
	d, err := r.Draft(r.ctx, id, seg.Contig(off, int64(len(p))), Hint{})
	r.ok(err)
	scatter(d.Sges(), p)
	repeated, err := d.Publish(r.ctx, st, dur)
	r.ok(err)
	return repeated
}

func slot(n uint16, seq uint32) wire.Stamp { return wire.Stamp{Session: 9, Slot: n, Seq: seq} }

func (r *rig) stored(id Key, off int64, n int) []byte {
	r.Helper()
	p := make([]byte, n)
	r.ok(r.store.ReadAt(r.ctx, id, [][]byte{p}, off))
	return p
}

func TestPendingWritesAreReadAndThenWritten(t *testing.T) {
	r := newBack(t)
	r.write(alpha, 100, fill1(3*testUnit, 1)) // two parts, two whole units
	r.write(alpha, 9*testUnit, fill1(testUnit, 2))
	if n := r.store.Calls(fault.Write); n != 0 {
		t.Fatalf("%d writes reached the store", n)
	}
	r.holds(alpha, 9*testUnit, fill1(testUnit, 2))
	if n := r.store.Calls(fault.Write); n != 0 {
		t.Fatalf("%d writes reached the store for a hit", n)
	}
	// The first unit is cached nowhere: whoever reads it finds the store up to date.
	r.holds(alpha, 0, append(make([]byte, 100), fill1(3*testUnit, 1)...))
	if r.Stats().Dirty != 0 {
		t.Fatal("the object was settled in part")
	}
	r.write(alpha, 0, fill1(testUnit, 3))
	r.ok(r.Sync(r.ctx, alpha))
	if got := r.stored(alpha, 0, 1)[0]; got != 3 || r.store.Calls(fault.Sync) != 1 {
		t.Fatalf("the store has %d", got)
	}
}

func TestPendingWritesAge(t *testing.T) {
	r := newRig(t, Config{MemoryBytes: 2 << 20, DirtyBytes: 512 << 10, DirtyAge: time.Millisecond})
	r.write(alpha, 0, fill1(10, 1))
	waitFor(t, func() bool { return r.Stats().Dirty == 0 })
	if r.stored(alpha, 0, 1)[0] != 1 {
		t.Fatal("it did not reach the store")
	}
}

func TestNeighboursAreWrittenTogether(t *testing.T) {
	r := newBack(t)
	for i := range 8 {
		if r.stamped(alpha, int64(i)*testUnit, fill1(testUnit, byte(i+1)), slot(uint16(i), 1), 0) {
			t.Fatal("no repeat")
		}
	}
	r.ok(r.Settle(r.ctx, alpha, 0, 1))
	if n := r.store.Calls(fault.Write); n != 1 || r.store.stamps.Load() != 8 {
		t.Fatalf("%d writes with %d stamps", n, r.store.stamps.Load())
	}
	if st := r.Stats(); st.Flushes != 1 || st.Flushed != 8 {
		t.Fatalf("%+v", st)
	}
	r.crash()
	for i := range 8 {
		if !r.stamped(alpha, int64(i)*testUnit, fill1(testUnit, 99), slot(uint16(i), 1), 0) {
			t.Fatalf("request %d was applied again", i)
		}
	}
	r.holds(alpha, 7*testUnit, fill1(testUnit, 8))
}

func TestRepeatsOfPendingWrites(t *testing.T) {
	r := newBack(t)
	if r.stamped(alpha, 0, fill1(10, 1), slot(1, 5), stripe.Volatile) {
		t.Fatal("no repeat")
	}
	r.write(alpha, 0, fill1(10, 2))
	if !r.stamped(alpha, 0, fill1(10, 1), slot(1, 5), stripe.Volatile) {
		t.Fatal("a repeat")
	}
	if !r.stamped(alpha, 0, fill1(10, 1), slot(1, 5), stripe.Durable) {
		t.Fatal("a repeat")
	}
	r.holds(alpha, 0, fill1(10, 2))
}

// A slot's numbers reach the store in their order, of whatever objects they are.
func TestSlotsKeepTheirOrder(t *testing.T) {
	r := newBack(t)
	beta := Key{File: 2, Gen: 1}
	r.stamped(alpha, 0, fill1(10, 1), slot(1, 1), stripe.Volatile)
	r.stamped(beta, 0, fill1(10, 2), slot(1, 2), stripe.Volatile)
	r.ok(r.Sync(r.ctx, beta))
	if r.stored(alpha, 0, 1)[0] != 1 {
		t.Fatal("request 2 of the slot reached the store before request 1")
	}
	r.stamped(alpha, 0, fill1(10, 3), slot(1, 3), stripe.Volatile)
	r.stamped(beta, 100, fill1(10, 4), slot(1, 4), stripe.Durable)
	if r.stored(alpha, 0, 1)[0] != 3 {
		t.Fatal("a durable request overtook an earlier one of its slot")
	}
	r.stamped(alpha, 0, fill1(10, 5), slot(1, 5), stripe.Volatile)
	r.ok(r.SettleStamp(r.ctx, slot(2, 9)))
	if r.stored(alpha, 0, 1)[0] != 3 {
		t.Fatal("another slot was settled")
	}
	r.ok(r.SettleStamp(r.ctx, slot(1, 6)))
	if r.stored(alpha, 0, 1)[0] != 5 {
		t.Fatal("the slot was not settled")
	}
}

// What is pending of a file is settled, of all its objects, and nothing else is.
func TestOneFileIsSettled(t *testing.T) {
	r := newBack(t)
	second := Key{File: alpha.File, Gen: alpha.Gen + 1, Stripe: 3}
	for i := range 50 {
		r.write(Key{File: 1000 + uint64(i), Gen: 1}, 0, fill1(10, 9))
	}
	r.write(alpha, 0, fill1(10, 1))
	r.write(second, 0, fill1(10, 2))
	before := r.store.Calls(fault.Write)
	r.ok(r.SettleFile(r.ctx, alpha.File))
	if r.stored(alpha, 0, 1)[0] != 1 || r.stored(second, 0, 1)[0] != 2 {
		t.Fatal("the file was not settled")
	}
	if n := r.store.Calls(fault.Write) - before; n > 10 {
		t.Fatalf("%d writes to settle two objects", n)
	}
	r.ok(r.SettleFile(r.ctx, 77))
}

func TestTooMuchIsDirty(t *testing.T) {
	r := newBack(t)
	gate := make(chan struct{})
	remove := r.store.Inject(fault.Rule{Ops: fault.Write, Gate: gate})
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
	defer cancel()
	var err error
	for i := int64(0); err == nil; i++ {
		d, e := r.Draft(r.ctx, alpha, seg.Contig(i*2*testUnit, testUnit), Hint{})
		r.ok(e)
		_, err = d.Publish(ctx, wire.Stamp{}, stripe.Volatile)
		if i > 10000 {
			t.Fatal("no end to what may be dirty")
		}
	}
	if st := r.Stats(); !errors.Is(err, errs.TimedOut) || st.Dirty > 512<<10 {
		t.Fatalf("%v, %+v", err, st)
	}
	close(gate)
	remove()
	r.write(alpha, 0, fill1(testUnit, 1))
	r.ok(r.Settle(r.ctx, Key{}, 0, 0))
}

func TestLossIsTold(t *testing.T) {
	var told Key
	r := newRig(t, Config{MemoryBytes: 2 << 20, DirtyBytes: 512 << 10, DirtyAge: time.Hour,
		OnLoss: func(id Key, err error) { told = id }})
	beta := Key{File: 2, Gen: 1}
	r.write(alpha, 0, fill1(2*testUnit, 1))
	r.ok(r.Sync(r.ctx, alpha))
	r.stamped(alpha, 0, fill1(testUnit, 2), slot(1, 1), stripe.Volatile)
	r.stamped(alpha, testUnit, fill1(10, 2), slot(2, 1), stripe.Volatile)
	r.stamped(beta, 0, fill1(10, 2), slot(1, 2), stripe.Volatile)
	r.store.Inject(fault.Rule{Ops: fault.Write, Err: errs.IO, Count: 1})
	if err := r.Sync(r.ctx, alpha); !errors.Is(err, errs.IO) {
		t.Fatalf("got %v, want i/o error", err)
	}
	if r.Losses() != 1 || told != alpha || r.Stats().Dirty != 0 {
		t.Fatalf("%d losses, of %v; %d dirty", r.Losses(), told, r.Stats().Dirty)
	}
	r.holds(alpha, 0, fill1(2*testUnit, 1)) // what the store has is what counts
	r.holds(beta, 0, make([]byte, 10))
	// All of it is sent again, and is no repeat; what failed once goes through.
	writes := r.store.Calls(fault.Write)
	for i, again := range []bool{
		r.stamped(alpha, 0, fill1(testUnit, 2), slot(1, 1), stripe.Volatile),
		r.stamped(alpha, testUnit, fill1(10, 2), slot(2, 1), stripe.Volatile),
		r.stamped(beta, 0, fill1(10, 2), slot(1, 2), stripe.Volatile),
	} {
		if again {
			t.Errorf("request %d was lost, and is taken for a repeat", i)
		}
	}
	if n := r.store.Calls(fault.Write) - writes; n != 2 {
		t.Errorf("%d writes went through", n)
	}
	r.holds(alpha, 0, append(fill1(testUnit, 2), fill1(10, 2)...))
	r.holds(beta, 0, fill1(10, 2))
}

// The store says in advance that it is full: the write is told the truth by trying.
func TestNoSpaceIsToldAtOnce(t *testing.T) {
	r := newBack(t)
	r.store.Inject(fault.Rule{Ops: fault.Admit, Err: errs.NoSpace, Count: 2})
	r.write(alpha, 0, fill1(10, 1))
	if r.stored(alpha, 0, 1)[0] != 1 {
		t.Fatal("it did not go through")
	}
	r.store.Inject(fault.Rule{Ops: fault.Write, Err: errs.NoSpace, Count: 1})
	err := r.tryWrite(alpha, fill1(10, 2), seg.Piece{Off: 0, Len: 10})
	if !errors.Is(err, errs.NoSpace) || r.Losses() != 0 {
		t.Fatalf("got %v, want no space", err)
	}
	r.store.Inject(fault.Rule{Ops: fault.Admit, Err: errs.Stale, Count: 1})
	err = r.tryWrite(alpha, fill1(10, 2), seg.Piece{Off: 0, Len: 10})
	if !errors.Is(err, errs.Stale) {
		t.Fatalf("got %v, want stale", err)
	}
	r.holds(alpha, 0, fill1(10, 1))
}

// What is pending was promised space: a write that goes through, because there may not be enough
// for both or because it is durable, comes after it.
func TestPendingWritesKeepTheirSpace(t *testing.T) {
	beta := Key{File: 2, Gen: 1}
	for _, dur := range []stripe.Durability{stripe.Volatile, stripe.Durable} {
		r := newBack(t)
		r.write(alpha, 0, fill1(10, 1))
		if r.stored(alpha, 0, 1)[0] != 0 {
			t.Fatal("nothing is pending")
		}
		r.store.Inject(fault.Rule{Ops: fault.Admit, Err: errs.NoSpace, Count: 1})
		r.stamped(beta, 0, fill1(10, 2), wire.Stamp{}, dur)
		if r.stored(beta, 0, 1)[0] != 2 {
			t.Fatal("it did not go through")
		}
		if r.stored(alpha, 0, 1)[0] != 1 {
			t.Errorf("durability %d: it used space that a pending write was promised", dur)
		}
		r.ok(r.Sync(r.ctx, alpha))
		if n := r.Stats().Promised; n != 0 {
			t.Errorf("%d bytes are promised to nobody", n)
		}
	}
}

func TestChangeSettlesAndDrops(t *testing.T) {
	r := newBack(t)
	r.write(alpha, 0, fill1(4*testUnit, 1))
	r.ok(r.Change(r.ctx, alpha, testUnit, testUnit, func() error {
		if r.stored(alpha, 0, 1)[0] != 1 {
			t.Error("the store was not up to date")
		}
		return r.store.Punch(r.ctx, alpha, testUnit, testUnit, wire.Stamp{}, stripe.Volatile)
	}))
	if n := r.cached(alpha, 0, 4*testUnit); n != 3*testUnit {
		t.Fatalf("%d bytes are cached", n)
	}
	r.holds(alpha, testUnit-1, append(append([]byte{1}, make([]byte, testUnit)...), 1))
	failed := errs.New(errs.IO, "", "", nil)
	if err := r.Change(r.ctx, alpha, 0, 1, func() error { return failed }); err != failed {
		t.Fatalf("got %v", err)
	}
	if n := r.cached(alpha, 0, testUnit); n != 0 {
		t.Fatalf("%d bytes are cached after a change that failed", n)
	}
}

func TestDiscardForgetsWhatIsPending(t *testing.T) {
	r := newBack(t)
	r.write(alpha, 0, fill1(4*testUnit, 1))
	r.ok(r.Discard(r.ctx, alpha, func() error { return r.store.Remove(r.ctx, alpha) }))
	r.ok(r.Settle(r.ctx, Key{}, 0, 0))
	if n := r.store.Calls(fault.Write); n != 0 {
		t.Fatalf("%d writes of a removed object", n)
	}
	r.holds(alpha, 0, make([]byte, 100))
}

func TestCloseWritesBack(t *testing.T) {
	r := newBack(t)
	r.write(alpha, 0, fill1(100, 7))
	r.ok(r.Close())
	if r.stored(alpha, 0, 1)[0] != 7 {
		t.Fatal("it was lost")
	}
}

func TestVerify(t *testing.T) {
	for name, a := range map[string]seg.Access{
		"blocks":    seg.Contig(testUnit, 5*testUnit),
		"unaligned": seg.Contig(100, 5*testUnit),
		"list": seg.List([]seg.Piece{{Off: 50, Len: 100}, {Off: 8 * testUnit, Len: 2 * testUnit},
			{Off: 3, Len: 7}}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			p := ramp(int(a.Len()), 3)
			d, err := r.Draft(r.ctx, alpha, a, Hint{})
			r.ok(err)
			scatter(d.Sges(), p)
			sums := sumsOf(p, 2*testUnit)
			r.ok(d.Verify(sums, 2*testUnit))
			sums[len(sums)-1]++
			if err := d.Verify(sums, 2*testUnit); !errors.Is(err, errs.Corrupt) {
				t.Fatalf("got %v, want corrupt", err)
			}
			if err := d.Verify(sums[1:], 2*testUnit); !errors.Is(err, errs.Corrupt) {
				t.Fatalf("got %v, want corrupt", err)
			}
			d.Abort()
			if n := r.store.Calls(fault.Write); n != 0 || r.cached(alpha, 0, 1<<30) != 0 {
				t.Fatalf("%d writes", n)
			}
		})
	}
}

func TestLookSettlesAndKeeps(t *testing.T) {
	r := newBack(t)
	r.write(alpha, 0, fill1(2*testUnit, 1))
	wrote := make(chan struct{})
	r.ok(r.Look(r.ctx, alpha, 0, testUnit, func() error {
		if r.stored(alpha, 0, 1)[0] != 1 {
			t.Error("the store was not up to date")
		}
		go func() {
			defer close(wrote)
			r.write(alpha, 0, fill1(10, 2))
		}()
		waitFor(t, func() bool { // the writer stands behind
			r.index.Lock()
			defer r.index.Unlock()
			return r.index.Stats().RangeLocks == 2
		})
		r.holds(alpha, 0, fill1(10, 1)) // nobody waits to read
		return nil
	}))
	<-wrote
	if n := r.cached(alpha, 0, 2*testUnit); n != 2*testUnit {
		t.Fatalf("%d bytes are cached", n)
	}
	r.holds(alpha, 0, fill1(10, 2))
}

// What was fenced while it was pending is gone, and nobody else has lost anything.
func TestFencedWhilePending(t *testing.T) {
	r := newBack(t)
	beta := Key{File: 2, Gen: 1}
	r.write(alpha, 0, fill1(10, 1))
	r.write(beta, 0, fill1(10, 2))
	r.store.Inject(fault.Rule{Ops: fault.Write, Object: alpha, Err: errs.Fenced, Count: 1})
	r.ok(r.Settle(r.ctx, Key{}, 0, 0))
	if r.Losses() != 0 || r.stored(beta, 0, 1)[0] != 2 {
		t.Fatalf("%d losses", r.Losses())
	}
	r.holds(alpha, 0, make([]byte, 10))
}

// A volatile write that is too large to be pending does not overtake those that are.
func TestWritesThroughComeBehindPendingOnes(t *testing.T) {
	r := newBack(t)
	r.stamped(alpha, 1<<20, fill1(10, 1), slot(1, 1), stripe.Volatile)
	r.stamped(alpha, 0, fill1(200<<10, 2), slot(2, 1), stripe.Volatile)
	if r.stored(alpha, 1<<20, 1)[0] != 1 || r.stored(alpha, 0, 1)[0] != 2 {
		t.Fatal("the large write is in the store, the small one before it is not")
	}
}
