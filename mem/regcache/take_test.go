package regcache

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// pages is memory that Go has allocated.
func pages(n int) []byte { return make([]byte, n*page) }

var global [4 * page]byte

func TestObjects(t *testing.T) {
	heap, mapped := pages(20), mapped(t, 20)
	if objectOf(heap) == 0 || objectOf(heap) != objectOf(heap[7*page+5:]) {
		t.Error("a part of an object is not of that object")
	}
	if objectOf(heap) == objectOf(pages(20)) {
		t.Error("two objects are one")
	}
	if objectOf(mapped) != 0 || objectOf(mapped[page:]) != 0 || objectOf(global[:]) != 0 {
		t.Error("memory that Go has not allocated is an object of its heap")
	}
}

// TestSmallMemoryIsCopied, unless it happens to be registered.
func TestSmallMemoryIsCopied(t *testing.T) {
	r := newRig(t, Options{Costs: reused()})
	all := pages(64)
	for range 5 {
		if r.once(t, all[8*page:11*page]) {
			t.Fatal("three pages were registered: that costs more than four copies")
		}
	}
	r.keep(t, all)
	if !r.once(t, all[8*page:11*page]) || !r.once(t, all[5:6]) {
		t.Fatal("a part of registered memory is copied")
	}
	r.wantMade(t, "one object", 1, 1)
	if s := r.Stats(); s.Hits != 2 || s.Misses != 1 || s.Copied != 6 {
		t.Errorf("%+v", s)
	}
}

func TestRegisteredAtOnceWhereThatPays(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce()})
	if r.once(t, pages(9)) || !r.once(t, pages(10)) {
		t.Fatal("9 pages are to be copied, 10 registered")
	}
	if s := r.Stats(); s.Misses != 1 || s.Copied != 1 {
		t.Errorf("%+v", s)
	}
	if atOnce().PaysFrom(1) != 10*page || reused().PaysFrom(1) != 0 ||
		reused().PaysFrom(uses) != 4*page {
		t.Error("what the log says is not what is done")
	}
}

// TestMappedMemory is registered for one request only: nobody knows when it is unmapped.
func TestMappedMemory(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce()})
	m := mapped(t, 32)
	var a, b, part Use
	if !r.take(t, &a, m) || !r.take(t, &b, m) || !r.take(t, &part, m[:20*page]) {
		t.Fatal("it is not registered")
	}
	r.wantMade(t, "two on the same memory, one on a part", 2, 2)
	part.End()
	a.End()
	r.wantMade(t, "one is not over", 2, 1)
	b.End()
	r.wantMade(t, "all are over", 2, 0)
	if !r.once(t, m) {
		t.Fatal("it is not registered again")
	}
	r.wantMade(t, "once more", 3, 0)

	few := newRig(t, Options{Costs: reused()})
	for range 5 {
		if few.once(t, m) {
			t.Fatal("mapped memory was registered for one use, which costs more than a copy")
		}
	}
}

// TestPiecesOfOneObject are registered together where the gap between them is small.
func TestPiecesOfOneObject(t *testing.T) {
	r := newRig(t, Options{Costs: Costs{Each: 10, Page: 1, Copy: 3}}) // it pays to span 9 pages
	all := pages(99)
	rows := func(stride int) (list [][]byte) {
		for at := 0; at+page <= len(all); at += stride * page {
			list = append([][]byte{all[at : at+page]}, list...) // in no order
		}
		return list
	}
	if !r.once(t, append(rows(2), nil)...) {
		t.Fatal("50 pages in one registration cost less than a copy")
	}
	r.wantMade(t, "rows of one array", 1, 1)
	if !r.once(t, rows(11)...) {
		t.Fatal("they are registered")
	}
	all = pages(99)
	if r.once(t, rows(11)...) {
		t.Fatal("9 registrations cost more than to copy 9 pages")
	}
	if !r.once(t, pages(20), pages(20), mapped(t, 30)) {
		t.Fatal("each of these is worth its registration")
	}
	r.wantMade(t, "three objects", 4, 3)
}

// TestOperation: the parts of an operation share one registration of each of its buffers, and an
// operation does not count as seen before because of its own parts.
func TestOperation(t *testing.T) {
	for name, memory := range map[string][]byte{"heap": pages(40), "mapped": mapped(t, 40)} {
		r := newRig(t, Options{Costs: atOnce()})
		op := &mem.Operation{Bufs: [][]byte{pages(1), memory, pages(1)}}
		uses := make([]Use, 4)
		for i := range uses {
			if !r.takeFor(t, op, &uses[i], memory[i*page:][:36*page]) {
				t.Fatal(name, "not registered")
			}
		}
		if made, _ := r.d.counts(); made != 1 {
			t.Errorf("%s: %d registrations", name, made)
		}
		for i := range uses {
			uses[i].End()
		}
	}
	r := newRig(t, Options{Costs: reused()})
	var u Use
	memory := pages(40)
	for nth, want := range []bool{false, true} {
		op := &mem.Operation{Bufs: [][]byte{memory}}
		for i := range 3 {
			if got := r.takeFor(t, op, &u, memory[i*page:][:20*page]); got != want {
				t.Errorf("operation %d, part %d: registered %v", nth, i, got)
			}
			u.End()
		}
	}
}

func TestOverlaps(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce()})
	all := pages(100)
	var left, right, whole, inside Use
	if !r.take(t, &left, all[:40*page]) || !r.take(t, &right, all[20*page:60*page]) {
		t.Fatal("not registered")
	}
	r.wantMade(t, "they overlap", 2, 2)
	left.End()
	if !r.take(t, &whole, all) {
		t.Fatal("not registered")
	}
	r.wantMade(t, "the left one is covered and idle", 3, 2)
	if !r.take(t, &inside, all[30*page:31*page]) {
		t.Fatal("a part of registered memory")
	}
	right.End()
	r.wantMade(t, "the right one is over", 3, 1)
	whole.End()
	inside.End()
	r.wantMade(t, "the whole stays", 3, 1)
}

func TestEviction(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce(), Bytes: 50 * page})
	a, b, c := pages(20), pages(20), pages(20)
	var held Use
	if !r.take(t, &held, a) || !r.once(t, b) || !r.once(t, c) {
		t.Fatal("not registered")
	}
	r.wantMade(t, "b made way for c", 3, 2)
	if r.once(t, pages(40)) {
		t.Fatal("there is no room beside what is in use")
	}
	if !r.once(t, c) || r.Stats().Hits != 1 {
		t.Fatal("what had no room pushed something out")
	}
	held.End()
	if !r.once(t, pages(40)) {
		t.Fatal("there is room now")
	}
	if s := r.Stats(); s.Evicted != 3 || s.Refused != 1 || s.Bytes != 40*page {
		t.Errorf("%+v", s)
	}
	if r.once(t, pages(51)) {
		t.Fatal("more than the bound")
	}
	if r.said.Len() > 0 {
		t.Errorf("having no room is no news: %s", r.said.String())
	}

	few := newRig(t, Options{Costs: atOnce(), Count: 2})
	few.once(t, a)
	few.once(t, b)
	few.once(t, c)
	few.wantMade(t, "at most two", 3, 2)
}

// TestHostRefuses: the host allows less than the bound. What is idle makes way, the rest is copied,
// the log says so once, and the same is not tried again and again.
func TestHostRefuses(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce()})
	r.d.allow = 50 * page
	a, b, c := pages(30), pages(30), pages(30)
	if !r.once(t, a) || !r.once(t, b) {
		t.Fatal("a makes way for b")
	}
	var held Use
	if !r.take(t, &held, b) {
		t.Fatal("it is registered")
	}
	for range 3 {
		if r.once(t, c) {
			t.Fatal("more than the host allows")
		}
	}
	held.End()
	if !r.once(t, c) {
		t.Fatal("b makes way for c")
	}
	for range 2 {
		if r.once(t, pages(51)) {
			t.Fatal("more than the host allows")
		}
	}
	if n := strings.Count(r.said.String(), "its data is copied"); n != 1 {
		t.Errorf("said %d times: %s", n, r.said.String())
	}
	if r.d.tried != 6 {
		t.Errorf("%d registrations were tried", r.d.tried)
	}
	none := newRig(t, Options{})
	none.d.allow = 1
	if none.once(t, pages(1000)) || !strings.Contains(none.said.String(), "its data is copied") {
		t.Error("nothing can be registered, not even to measure")
	}
}

// TestIdleMemoryIsFreed: a registration keeps its memory from the garbage collector, for as long
// as it is used now and then.
func TestIdleMemoryIsFreed(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce(), IdleMax: 20 * time.Millisecond})
	var held Use
	p := pages(20)
	object := weak.Make(&p[0])
	if !r.take(t, &held, p) {
		t.Fatal("not registered")
	}
	p = nil
	time.Sleep(50 * time.Millisecond)
	runtime.GC()
	if object.Value() == nil {
		t.Fatal("memory in use was freed")
	}
	held.End()
	for end := time.Now().Add(time.Minute); object.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the memory is never freed")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if s := r.Stats(); s.Expired != 1 || s.Count != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSightingsKeepNothing: memory that was only copied is the garbage collector's, and what comes
// to lie at its address afterwards has not been seen.
func TestSightingsKeepNothing(t *testing.T) {
	r := newRig(t, Options{Costs: reused()})
	p := pages(20)
	object := weak.Make(&p[0])
	r.once(t, p)
	p = nil
	for end := time.Now().Add(time.Minute); object.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the memory is never freed")
		}
	}
	for range 100 {
		if r.once(t, pages(20)) {
			t.Fatal("memory that comes for the first time is registered")
		}
	}
}

func TestMeasure(t *testing.T) {
	d := newDevice(t)
	c, err := Measure(d)
	if err != nil || c.Each <= 0 || c.Page <= 0 || c.Copy <= 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, open := d.counts(); open != 0 {
		t.Error("registrations of the measurement are open")
	}
}

func TestOptions(t *testing.T) {
	d := newDevice(t)
	for _, o := range []Options{{Bytes: 1}, {Count: -1}, {IdleMax: -1}} {
		if _, err := New(d, o); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := New(arenasOnly{d}, Options{}); errs.KindOf(err) != errs.Unsupported {
		t.Errorf("a domain that registers arenas only: %v", err)
	}
}

type arenasOnly struct{ fabric.Domain }

func (arenasOnly) Caps() fabric.Caps { return fabric.Caps{} }

func TestCloseWhileInUse(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce()})
	var u Use
	r.take(t, &u, pages(20))
	if err := r.Close(); errs.KindOf(err) != errs.Busy {
		t.Fatal(err)
	}
	if r.once(t, pages(20)) {
		t.Fatal("registered after Close")
	}
	r.wantMade(t, "it is in use", 1, 1)
	u.End()
	r.wantMade(t, "it is over", 1, 0)
}

func TestNoAllocationsOnHits(t *testing.T) {
	r := newRig(t, Options{Costs: atOnce()})
	all := pages(1000)
	r.once(t, all)
	var u Use
	pieces := make([]fabric.Sge, 100)
	n := testing.AllocsPerRun(100, func() {
		for i := range pieces {
			pieces[i] = fabric.Sge{Buf: all[i*page : i*page+100]}
		}
		if !r.Take(&u, pieces, nil) {
			t.Fatal("not registered")
		}
		u.End()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
