package regcache

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

func TestSecondUseCostsNothing(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	if r.Registered(r.at(0, 8)) {
		t.Fatal("registered before anybody asked")
	}
	if _, ok := r.TryGet(r.at(0, 8)); ok {
		t.Fatal("TryGet registered")
	}
	r.wantMade(t, "queries", 0, 0)
	r.get(t, r.at(0, 8)).Put()
	r.wantMade(t, "after Put", 1, 1)
	inner := r.get(t, r.at(2, 3))
	if s := inner.Sge(); len(s.Buf) != 3*page || &s.Buf[0] != &r.mem[2*page] {
		t.Fatal("Sge is not the piece")
	}
	again, ok := r.TryGet(r.at(7, 1))
	if !ok || !r.Registered(r.at(0, 8)) || r.Registered(r.at(7, 2)) {
		t.Fatal("what is inside is registered, what leaves it is not")
	}
	again.Put()
	inner.Put()
	r.wantMade(t, "pieces of it", 1, 1)
	if s := r.Stats(); s.Hits != 2 || s.Misses != 1 || s.Bytes != 8*page || s.InUse != 0 {
		t.Fatalf("%+v", s)
	}
	if empty := r.get0(t); empty.Region() != nil || empty.Sge().Reg != nil {
		t.Fatal("nothing needs no registration")
	}
	r.close(t)
	_, err := r.Get(context.Background(), r.at(0, 1))
	wantKind(t, "Get after Close", err, errs.Closed)
}

func (r *rig) get0(t *testing.T) Ref {
	ref, err := r.Get(context.Background(), nil)
	if err != nil || !r.Registered(nil) {
		t.Fatal(err)
	}
	ref.Put()
	return ref
}

func TestOneParentCostsOneRegistration(t *testing.T) {
	r := newRig(t, Options{}, 128*page)
	r.Hint(r.mem)
	for i := range 100 {
		r.get(t, r.mem[i*page+10:i*page+700]).Put()
	}
	r.wantMade(t, "100 pieces of a hinted parent", 1, 1)
	r.close(t)

	r = newRig(t, Options{}, 128*page)
	for i := range 100 {
		r.get(t, r.mem[i*page+10:i*page+700]).Put()
	}
	r.wantMade(t, "100 pieces of memory nobody spoke of", 100, 100)
	r.close(t)
}

func TestLargerCoversSmaller(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	held := r.get(t, r.at(4, 2))
	r.get(t, r.at(8, 2)).Put()
	all := r.get(t, r.at(0, 16))
	r.wantMade(t, "the idle one is ended, the held one stays", 3, 2)
	held.Put()
	r.wantMade(t, "and ends with its Put", 3, 1)
	all.Put()
	if s := r.Stats(); s.Covered != 2 || s.Count != 1 || s.Bytes != 16*page {
		t.Fatalf("%+v", s)
	}
	r.close(t)
}

func TestOldestIsEvicted(t *testing.T) {
	r := newRig(t, Options{Bytes: 8 * page, Count: 3}, 64*page)
	for i := range 3 {
		r.get(t, r.at(i*2, 1)).Put()
	}
	r.get(t, r.at(0, 1)).Put() // used again: the second is the oldest now
	r.get(t, r.at(10, 1)).Put()
	if r.Registered(r.at(2, 1)) || !r.Registered(r.at(0, 1)) || !r.Registered(r.at(4, 1)) {
		t.Fatal("not the oldest was evicted for their number")
	}
	big := r.get(t, r.at(20, 7))
	if r.Registered(r.at(4, 1)) || r.Registered(r.at(0, 1)) || !r.Registered(r.at(10, 1)) {
		t.Fatal("not the oldest were evicted for their bytes")
	}
	_, err := r.Get(context.Background(), r.at(40, 2))
	wantKind(t, "no room beside what is held", err, errs.Again)
	if !r.Registered(r.at(10, 1)) {
		t.Fatal("evicted in vain")
	}
	_, err = r.Get(context.Background(), r.at(0, 9))
	wantKind(t, "larger than the bound", err, errs.NoMemory)
	big.Put()
	r.get(t, r.at(40, 2)).Put()
	if s := r.Stats(); s.HighBytes > 8*page || s.Refused != 1 || s.Evicted != 5 {
		t.Fatalf("%+v", s)
	}
	if n := r.Trim(); n != 1 || r.Stats().Bytes != 0 {
		t.Fatalf("Trim ended %d, %+v", n, r.Stats())
	}
	r.close(t)
}

func TestTwoGetsOfOneRangeRegisterOnce(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	r.m.gate, r.m.entered = make(chan struct{}), make(chan struct{}, 8)
	got := make(chan Ref, 4)
	for range 4 {
		go func() {
			ref, err := r.Get(context.Background(), r.at(0, 4))
			if err != nil {
				t.Error(err)
			}
			got <- ref
		}()
	}
	<-r.m.entered
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := r.Get(ctx, r.at(1, 1))
	wantKind(t, "one who does not want to wait", err, errs.TimedOut)
	close(r.m.gate)
	for range 4 {
		(<-got).Put()
	}
	r.wantMade(t, "four at once", 1, 1)
	r.close(t)
}

func TestHostAllowsLessThanTheBound(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	r.m.refuse = func(ext extent) error {
		if r.m.bytesLocked()+int64(ext.pages())*page > 8*page {
			return errs.New(errs.NoMemory, "register", "", nil)
		}
		return nil
	}
	r.get(t, r.at(0, 4)).Put()
	r.get(t, r.at(4, 4)).Put()
	r.get(t, r.at(8, 4)).Put()
	r.wantMade(t, "idle ones make way", 3, 1)
	held := r.get(t, r.at(16, 4))
	_, err := r.Get(context.Background(), r.at(24, 5))
	wantKind(t, "nothing is left to end", err, errs.NoMemory)
	held.Put()
	r.close(t)
}

func TestParentThatCannotBeRegistered(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	r.m.refuse = func(ext extent) error {
		if ext.pages() > 4 {
			return errs.New(errs.Invalid, "register", "", nil)
		}
		return nil
	}
	r.Hint(r.mem)
	r.get(t, r.at(1, 2)).Put()
	r.get(t, r.at(9, 2)).Put()
	if s := r.Stats(); s.Retreats != 1 || s.Hints != 0 || s.Count != 2 {
		t.Fatalf("%+v", s)
	}
	_, err := r.Get(context.Background(), r.at(1, 5))
	wantKind(t, "the piece itself", err, errs.Invalid)
	if s := r.Stats(); s.Bytes != 4*page || s.InUse != 0 {
		t.Fatalf("a failure leaves something behind: %+v", s)
	}
	r.close(t)
}

func TestMisuse(t *testing.T) {
	r := newRig(t, Options{}, 64*page)
	ref := r.get(t, r.at(0, 1))
	ref.Put()
	mustPanic(t, "Put twice", ref.Put)
	if enabled() {
		one, two := r.get(t, r.at(0, 1)), r.get(t, r.at(0, 1))
		one.Put()
		mustPanic(t, "Put twice while another holds it", one.Put)
		mustPanic(t, "Close while one is held", func() { _ = r.Close() })
		two.Put()
		return
	}
	ref = r.get(t, r.at(0, 1))
	wantKind(t, "Close while one is held", r.Close(), errs.Busy)
	r.wantMade(t, "before its Put", 1, 1)
	ref.Put()
	r.wantMade(t, "after its Put", 1, 0)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	m := newMeter(t)
	for _, opts := range []Options{
		{Bytes: 100}, {Count: -1}, {Hints: -1}, {SpanBytes: -1}, {Bytes: 8 * page, SpanBytes: 9 * page},
		{Costs: Costs{Each: 1}},
	} {
		if _, err := New(m, opts); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if gap := DefaultCosts().gapPages(); gap != 29 {
		t.Errorf("the default costs allow gaps of %d pages", gap)
	}
}

func TestOldHintsAreForgotten(t *testing.T) {
	r := newRig(t, Options{Hints: 2}, 64*page)
	r.Hint(nil)
	for i := range 3 {
		r.Hint(r.at(i*10, 4))
	}
	r.Hint(r.at(11, 2)) // inside one that is known
	if s := r.Stats(); s.Hints != 2 {
		t.Fatalf("%+v", s)
	}
	r.get(t, r.at(0, 1)).Put()
	r.get(t, r.at(10, 1)).Put()
	if r.Registered(r.at(0, 2)) || !r.Registered(r.at(10, 4)) {
		t.Fatal("the oldest hint was to go, and only that")
	}
	r.close(t)
}

func TestMeasure(t *testing.T) {
	m := newMeter(t)
	m.perEach, m.perPages = 200*time.Microsecond, 5*time.Microsecond
	r := newRig(t, Options{}, 64*page)
	costs, err := Measure(m, r.mem)
	if err != nil {
		t.Fatal(err)
	}
	if costs.Each < 100*time.Microsecond || costs.Page < 4*time.Microsecond {
		t.Fatalf("%+v, lower than they are", costs)
	}
	_, err = Measure(m, r.at(0, 1))
	wantKind(t, "too little scratch", err, errs.Invalid)
	m.refuse = func(extent) error { return errs.New(errs.NoMemory, "register", "", nil) }
	_, err = Measure(m, r.mem)
	wantKind(t, "a domain that refuses", err, errs.NoMemory)
	r.close(t)
}
