package unifier

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/unifier/internal/memory"
)

// Readers hold all that loans may hold, and do not let go. Writers of the same units go on.
func TestSlowReadersDoNotBlockWriters(t *testing.T) {
	for _, back := range []int64{0, 256 << 10} {
		for _, unit := range []int{4 << 10, 64 << 10} {
			r := newRig(t, Config{UnitBytes: unit, MemoryBytes: 1280 << 10, DirtyBytes: back,
				DirtyAge: time.Millisecond})
			r.write(alpha, 0, fill1(1<<17, 1))
			l, err := r.Read(r.ctx, alpha, seg.Contig(0, r.ReadShare()), Hint{})
			r.ok(err)
			old := gathered(l.Sges())
			for i := range int64(300) {
				r.write(alpha, i*100%(1<<17), fill1(100, 2))
				r.write(alpha, 1<<16, fill1(64<<10, byte(i)))
			}
			now := gathered(l.Sges())
			if string(old) != string(now) {
				t.Fatal("a loan changed")
			}
			l.Release()
			r.holds(alpha, 0, fill1(100, 2))
		}
	}
}

// A writer that finds no free memory waits for the reader, but not for long.
func TestPatience(t *testing.T) {
	r := newRig(t, Config{})
	r.write(alpha, 0, fill1(testUnit, 1))
	for off := int64(testUnit); off < 2<<20; off += 64 << 10 { // all memory is used
		r.read(alpha, off, 64<<10)
	}
	l, err := r.Read(r.ctx, alpha, seg.Contig(0, 100), Hint{})
	r.ok(err)
	room, err := r.Take(r.ctx, int(r.TakeShare()))
	r.ok(err)
	waits := r.Stats().ReaderWaits
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.write(alpha, 10, fill1(10, 2))
	}()
	<-done // the reader is still there
	if r.Stats().ReaderWaits == waits && !r.index.Memory.HasFree(memory.BlockShift) {
		t.Error("nobody waited although no memory was free")
	}
	if l.Sges()[0].Buf[10] != 1 {
		t.Fatal("a loan changed")
	}
	l.Release()
	room.Return()
	r.holds(alpha, 9, append([]byte{1}, fill1(10, 2)...))
}

// The second reader of a unit waits for the first one's read, whatever else is asked for.
func TestListsAreReadAsTheyLie(t *testing.T) {
	r := newRig(t, Config{})
	r.write(alpha, 0, ramp(20*testUnit, 1))
	r.drop(alpha, 0, 20*testUnit)
	pieces := []seg.Piece{{Off: 9 * testUnit, Len: 10}, {Off: 2*testUnit + 5, Len: testUnit},
		{Off: 9*testUnit + 5, Len: 10}, {Off: 0, Len: 1}}
	before := r.store.Calls(fault.Read)
	l, err := r.Read(r.ctx, alpha, seg.List(pieces), Hint{})
	r.ok(err)
	p, want := gathered(l.Sges()), ramp(20*testUnit, 1)
	for _, x := range pieces {
		if string(p[:x.Len]) != string(want[x.Off:x.End()]) {
			t.Fatalf("%+v differs", x)
		}
		p = p[x.Len:]
	}
	l.Release()
	if n := r.store.Calls(fault.Read) - before; n != 3 {
		t.Fatalf("%d reads of three places", n)
	}
}

// The places of a list are read at the same time.
func TestPlacesAreReadInParallel(t *testing.T) {
	r := newRig(t, Config{})
	gate := make(chan struct{})
	remove := r.store.Inject(fault.Rule{Ops: fault.Read, Gate: gate})
	var pieces []seg.Piece
	for i := range int64(5) {
		pieces = append(pieces, seg.Piece{Off: i * 10 * testUnit, Len: 10})
	}
	done := make(chan error)
	go func() {
		l, err := r.Read(r.ctx, alpha, seg.List(pieces), Hint{})
		if err == nil {
			l.Release()
		}
		done <- err
	}()
	waitFor(t, func() bool { return r.store.Calls(fault.Read) == 5 })
	close(gate)
	r.ok(<-done)
	remove()
	r.store.Inject(fault.Rule{Ops: fault.Read, Err: errs.IO, Skip: 2, Count: 1})
	for i := range pieces {
		pieces[i].Off += 1 << 20
	}
	if _, err := r.Read(r.ctx, alpha, seg.List(pieces), Hint{}); !errors.Is(err, errs.IO) {
		t.Fatalf("got %v, want i/o error", err)
	}
}

// Whoever waits for a read that fails tries for himself: perhaps he needs other bytes of it.
func TestFailureOfAnother(t *testing.T) {
	r := newRig(t, Config{})
	gate := make(chan struct{})
	r.store.Inject(fault.Rule{Ops: fault.Read, Gate: gate, Err: errs.Corrupt, Count: 1})
	first, second := make(chan error), make(chan error)
	read := func(n int64, end chan error) {
		l, err := r.Read(r.ctx, alpha, seg.Contig(0, n), Hint{})
		if err == nil {
			l.Release()
		}
		end <- err
	}
	go read(8*testUnit, first)
	waitFor(t, func() bool { return r.store.Calls(fault.Read) == 1 })
	go read(testUnit, second)
	waitFor(t, func() bool { return r.Stats().Misses == 9 })
	close(gate)
	if err := <-first; !errors.Is(err, errs.Corrupt) {
		t.Fatalf("got %v, want corrupt", err)
	}
	r.ok(<-second)
}

// Lend gives what is there, whole, and begins nothing where it is not.
func TestLend(t *testing.T) {
	r := newRig(t, Config{})
	want := bytes.Repeat([]byte("lend"), 3*testUnit/4)
	r.write(alpha, 0, want)
	r.drop(alpha, 0, int64(len(want)))
	a := seg.Contig(100, 2*testUnit)
	if r.Lend(alpha, a, Hint{}) != nil || r.Lend(Key{File: 9}, a, Hint{}) != nil {
		t.Fatal("what is not there was lent")
	}
	if n := r.store.Calls(fault.Read); n != 0 {
		t.Fatalf("%d reads were begun", n)
	}
	r.read(alpha, 0, testUnit)
	if r.Lend(alpha, a, Hint{}) != nil {
		t.Fatal("a third of it is there, and all of it was lent")
	}
	r.read(alpha, testUnit, 2*testUnit)
	hits := r.Stats().Hits
	l := r.Lend(alpha, a, Hint{})
	if l == nil || !bytes.Equal(gathered(l.Sges()), want[100:100+2*testUnit]) {
		t.Fatal("what is there was not lent, or is something else")
	}
	if got := r.Stats().Hits - hits; got != 3 {
		t.Fatalf("%d hits were counted for three units", got)
	}
	r.write(alpha, 100, bytes.Repeat([]byte{7}, 50))
	if !bytes.Equal(gathered(l.Sges()), want[100:100+2*testUnit]) {
		t.Fatal("a write changed what was lent")
	}
	l.Release()
	if r.Lend(alpha, a, Hint{Unit: 2 * testUnit}) != nil {
		t.Fatal("units of another size were lent")
	}
}

// What somebody else is still fetching is not there.
func TestLendWhileItIsFetched(t *testing.T) {
	r := newRig(t, Config{})
	gate, done := make(chan struct{}), make(chan struct{})
	r.store.Inject(fault.Rule{Ops: fault.Read, Gate: gate, Count: 1})
	go func() {
		defer close(done)
		r.read(alpha, 0, testUnit)
	}()
	waitFor(t, func() bool { return r.store.Calls(fault.Read) == 1 })
	if r.Lend(alpha, seg.Contig(0, 100), Hint{}) != nil {
		t.Error("bytes were lent that are on their way")
	}
	close(gate)
	<-done
}
