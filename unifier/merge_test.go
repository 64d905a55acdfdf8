package unifier

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/stripe/hook/fault"
	"github.com/sluice-storage/sluice/stripe/logstore"
	"github.com/sluice-storage/sluice/wire"
)

// A list has pieces on two members, and one of them dies before it has its part: the number, which
// comes with the last piece, must not be on the other.
func TestNumberComesAfterTheListOnAllMembers(t *testing.T) {
	const unit = 64 << 10
	ctx, opt := context.Background(), logstore.Options{LogBytes: 1 << 20, UnitBytes: unit}
	var disks [2]*devicetest.Overlay
	var faults [2]*devicetest.Fault
	for i := range disks {
		disks[i] = devicetest.NewOverlay(fmt.Sprint(i), make([]byte, 16<<20))
		faults[i] = &devicetest.Fault{Device: disks[i]}
		opt.Devices = append(opt.Devices, faults[i])
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := logstore.Create(opt)
	must(err)
	cfg := Config{MemoryBytes: 4 << 20, UnitBytes: testUnit, ReadaheadBytes: -1, DirtyBytes: 512 << 10,
		DirtyAge: time.Hour}
	s, err := logstore.Open(opt)
	must(err)
	c, err := New(cfg, s)
	must(err)
	life := s.Life()
	list := []seg.Piece{{Off: unit - 100, Len: 50}, {Off: unit + 50, Len: 50}}
	publish := func(c *Cache, again bool) bool {
		d, err := c.Draft(ctx, alpha, seg.List(list), Hint{})
		must(err)
		scatter(d.Sges(), fill1(100, 7))
		st := wire.Stamp{Session: 9, Slot: 1, Seq: 1}
		if again {
			st.Life = life
			d.Again()
		}
		repeated, err := d.Publish(ctx, st, stripe.Volatile)
		must(err)
		return repeated
	}
	publish(c, false)
	first, _ := s.Place(alpha, unit-100)
	faults[first].Fail(func(op *device.Op) error {
		if op.Kind == device.Write {
			return errs.IO
		}
		return nil
	})
	if c.Settle(ctx, alpha, 0, 2*unit) == nil {
		t.Fatal("a member that is dead has taken a write")
	}
	opt.Devices = nil
	for _, d := range disks {
		opt.Devices = append(opt.Devices, d.Fork("next"))
	}
	_, _ = c.Close(), s.Close()
	s, err = logstore.Open(opt)
	must(err)
	defer s.Close()
	c, err = New(cfg, s)
	must(err)
	defer c.Close()
	repeated := publish(c, true)
	for _, p := range list {
		have := make([]byte, p.Len)
		must(s.ReadAt(ctx, alpha, [][]byte{have}, p.Off))
		if !bytes.Equal(have, fill1(50, 7)) {
			t.Errorf("the store lacks the piece at %d; repeated: %v", p.Off, repeated)
		}
	}
}

// Writes that all overlap go to the store one by one: finding that out must not cost a look at all
// that is pending for each of them.
func TestManyOverlappingWrites(t *testing.T) {
	r := newRig(t, Config{MemoryBytes: 512 << 20, DirtyBytes: 128 << 20, DirtyAge: time.Hour})
	for _, x := range []struct {
		name string
		n    int
		at   func(i int) (off, length int64)
	}{
		{"one place", 12000, func(int) (int64, int64) { return 0, 8 }},
		{"backward", 1000, func(i int) (int64, int64) { return int64(2000 - i), int64(i + 1) }},
	} {
		for i := range x.n {
			off, n := x.at(i)
			r.write(alpha, off, fill1(int(n), byte(i)))
		}
		begun := time.Now()
		r.ok(r.Settle(r.ctx, Key{}, 0, 0))
		took := time.Since(begun)
		t.Log(x.name, x.n, took)
		if took > 30*time.Second { // half a second, where nothing else runs; looking at all took minutes
			t.Errorf("%s: %d writes took %v", x.name, x.n, took)
		}
	}
}

// What is in the gaps of a call cannot be read, and the host dies after the first piece was written
// alone: the later number of the slot, whose write lies in front, must not be there without the
// earlier one.
func TestNumbersKeepTheirOrderWithoutGaps(t *testing.T) {
	r := newBack(t)
	r.stamped(alpha, 1000, fill1(100, 1), slot(1, 1), stripe.Volatile)
	r.stamped(alpha, 500, fill1(100, 2), slot(1, 2), stripe.Volatile)
	defer r.store.Inject(fault.Rule{Ops: fault.Read, Err: errs.Corrupt, Count: 1})()
	r.host.dieIn(1)
	if r.Settle(r.ctx, alpha, 0, testUnit) == nil {
		t.Fatal("the host has not died")
	}
	if applied := r.crash(); !applied[slot(1, 1)] || applied[slot(1, 2)] {
		t.Fatalf("the store has %v", applied)
	}
}

// Two writes of one slot that lie apart, the later one in front: after a crash between the two the
// later number must not be there without the earlier one, which would be taken for a repeat.
func TestNumbersOfASlotKeepTheirOrder(t *testing.T) {
	r := newBack(t)
	r.stamped(alpha, 10*testUnit, fill1(100, 1), slot(1, 1), stripe.Volatile)
	r.stamped(alpha, 0, fill1(100, 2), slot(1, 2), stripe.Volatile)
	r.host.dieIn(1)
	if r.Settle(r.ctx, alpha, 0, 11*testUnit) == nil {
		t.Fatal("the host has not died")
	}
	if applied := r.crash(); !applied[slot(1, 1)] || applied[slot(1, 2)] {
		t.Fatalf("the store has %v", applied)
	}
}
