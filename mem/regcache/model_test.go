package regcache

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"pgregory.net/rapid"
)

// TestIndexAgainstModel holds the index against a plain list of extents.
func TestIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var x index[extent]
		var model []extent
		draw := func() extent {
			lo := rapid.IntRange(0, 40).Draw(rt, "lo")
			return extent{uintptr(lo), uintptr(lo + rapid.IntRange(1, 12).Draw(rt, "len"))}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			e := draw()
			isCovered := slices.ContainsFunc(model, func(m extent) bool { return m.covers(e) })
			switch rapid.SampledFrom([]string{"insert", "remove", "find", "overlap"}).Draw(rt, "op") {
			case "insert":
				var inside []extent
				if !isCovered {
					model = slices.DeleteFunc(model, func(m extent) bool {
						if e.covers(m) {
							inside = append(inside, m)
						}
						return e.covers(m)
					})
					model = append(model, e)
				}
				covered, ok := x.insert(e, e)
				if ok == isCovered || len(covered) != len(inside) {
					rt.Fatalf("insert %v: %v covered, %v", e, covered, ok)
				}
			case "remove":
				before := len(model)
				model = slices.DeleteFunc(model, func(m extent) bool { return m == e })
				if x.remove(e) != (len(model) < before) {
					rt.Fatalf("remove %v", e)
				}
			case "find":
				if got, ok := x.find(e); ok != isCovered || ok && !got.covers(e) {
					rt.Fatalf("find %v: %v, %v in %v", e, got, ok, model)
				}
			case "overlap":
				n := 0
				for _, m := range model {
					if m.overlaps(e) {
						n++
					}
				}
				if got := x.overlapping(e); len(got) != n {
					rt.Fatalf("%v overlaps %v, want %d of %v", e, got, n, model)
				}
			}
		}
		if len(x.all) != len(model) {
			rt.Fatalf("%d extents, want %d", len(x.all), len(model))
		}
	})
}

// world drives a cache with random operations and knows what must hold after each.
type world struct {
	rt    *rapid.T
	r     *rig
	bound int64
	refs  []Ref
	lists []*List
	said  []extent // all that was ever asked for or hinted
}

func (w *world) piece() []byte {
	first := rapid.IntRange(0, 62).Draw(w.rt, "page")
	off := rapid.SampledFrom([]int{0, 1, page / 2}).Draw(w.rt, "off")
	n := rapid.IntRange(1, 6*page).Draw(w.rt, "len")
	lo := first*page + off
	hi := min(lo+n, len(w.r.mem))
	return w.r.mem[lo:hi:hi]
}

func (w *world) step() {
	ctx := context.Background()
	switch rapid.IntRange(0, 11).Draw(w.rt, "op") {
	case 0, 1, 2:
		p := w.piece()
		w.said = append(w.said, extentOf(p))
		ref, err := w.r.Get(ctx, p)
		if err == nil {
			w.refs = append(w.refs, ref)
		} else if !errors.Is(err, errs.Again) && !errors.Is(err, errs.NoMemory) {
			w.rt.Fatal(err)
		}
	case 3:
		was := w.r.Stats()
		p := w.piece()
		ref, ok := w.r.TryGet(p)
		if ok != (ok || w.r.Registered(p)) || w.r.Stats().Misses != was.Misses {
			w.rt.Fatal("TryGet registered, or did not find")
		}
		ref.Put()
	case 4, 5:
		var list []fabric.Sge
		for range rapid.IntRange(1, 6).Draw(w.rt, "pieces") {
			p := w.piece()
			w.said = append(w.said, extentOf(p))
			list = append(list, fabric.Sge{Buf: p})
		}
		if l, err := w.r.GetList(ctx, list); err == nil {
			w.lists = append(w.lists, l)
			for _, p := range list {
				if p.Reg == nil || !extentOf(p.Reg.Bytes()).covers(extentOf(p.Buf)) {
					w.rt.Fatal("a piece without a region that covers it")
				}
			}
		}
	case 6:
		p := w.piece()
		w.said = append(w.said, extentOf(p))
		w.r.Hint(p)
	case 7, 8, 9:
		w.put()
	case 10:
		w.invalidate()
	case 11:
		w.r.Trim()
	}
}

func (w *world) put() {
	if n := len(w.refs); n > 0 {
		i := rapid.IntRange(0, n-1).Draw(w.rt, "ref")
		w.refs[i].Put()
		w.refs = slices.Delete(w.refs, i, i+1)
	}
	if n := len(w.lists); n > 0 {
		i := rapid.IntRange(0, n-1).Draw(w.rt, "list")
		w.lists[i].Put()
		w.lists = slices.Delete(w.lists, i, i+1)
	}
}

// invalidate gives up at once if somebody holds the memory; else nothing may be left on it.
func (w *world) invalidate() {
	p := w.piece()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if w.r.Invalidate(ctx, p) == nil && w.r.m.on(extentOf(p)) != 0 {
		w.rt.Fatal("a registration has survived its end")
	}
}

// check is what holds at every moment.
func (w *world) check() {
	w.r.m.mu.Lock()
	defer w.r.m.mu.Unlock()
	if w.r.m.high > w.bound {
		w.rt.Fatalf("%d bytes registered at once, allowed are %d", w.r.m.high, w.bound)
	}
	for _, ext := range w.r.m.open {
		for at := ext.lo; at < ext.hi; at++ {
			i := slices.IndexFunc(w.said, func(s extent) bool { return s.lo <= at && at < s.hi })
			if i < 0 {
				w.rt.Fatal("memory is registered that nobody vouched for")
			}
			at = w.said[i].hi - 1
		}
	}
	for _, ref := range w.refs {
		if _, open := w.r.m.open[ref.Region().(*metered)]; !open {
			w.rt.Fatal("a registration ended while it is held")
		}
	}
}

func TestCacheAgainstItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{rt: rt, bound: int64(rapid.IntRange(6, 40).Draw(rt, "bound")) * page}
		w.r = newRig(t, Options{
			Bytes: w.bound, Count: rapid.IntRange(1, 8).Draw(rt, "count"),
			SpanBytes: int64(rapid.IntRange(1, 6).Draw(rt, "span")) * page,
			Costs:     Costs{Each: 3 * time.Microsecond, Page: time.Microsecond},
		}, 64*page)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step()
			w.check()
		}
		for len(w.refs)+len(w.lists) > 0 {
			w.put()
		}
		w.check()
		s := w.r.Stats()
		if _, open, _ := w.r.m.counts(); s.InUse != 0 || open != s.Count {
			rt.Fatalf("%d open, %+v", open, s)
		}
		w.r.close(t)
		if s := w.r.Stats(); s.Bytes != 0 || s.Count != 0 {
			rt.Fatalf("after Close: %+v", s)
		}
	})
}

// TestManyAtOnce runs users, hints and invalidations against each other.
func TestManyAtOnce(t *testing.T) {
	const bound = 24 * page
	r := newRig(t, Options{Bytes: bound, Count: 12, SpanBytes: 8 * page}, 256*page)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			worker(t, r, rand.New(rand.NewPCG(seed, uint64(g))))
		}()
	}
	wg.Wait()
	if _, open, high := r.m.counts(); high > bound || open != r.Stats().Count {
		t.Fatalf("%d bytes at once, %d open, %+v", high, open, r.Stats())
	}
	r.close(t)
}

func worker(t *testing.T, r *rig, rng *rand.Rand) {
	ctx := context.Background()
	for range 400 {
		p := r.at(rng.IntN(250), 1+rng.IntN(6))
		switch rng.IntN(8) {
		case 0:
			r.Hint(p)
		case 1:
			if err := r.Invalidate(ctx, p); err != nil {
				t.Error(err)
			}
		case 2:
			list := []fabric.Sge{{Buf: p[:page/2]}, {Buf: p[page/4:]}}
			if l, err := r.GetList(ctx, list); err == nil {
				l.Put()
			}
		default:
			ref, err := r.Get(ctx, p)
			switch errs.KindOf(err) {
			case errs.OK:
				if !extentOf(ref.Region().Bytes()).covers(extentOf(p)) {
					t.Error("the region does not cover the memory")
				}
				ref.Put()
			case errs.Again, errs.Busy:
			default:
				t.Error(err)
			}
		}
	}
}
