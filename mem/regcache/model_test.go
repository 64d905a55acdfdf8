package regcache

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"pgregory.net/rapid"
)

// TestIndexAgainstModel holds the index against a plain list of extents.
func TestIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var x index
		var model []*entry
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			lo := uintptr(rapid.IntRange(0, 40).Draw(rt, "lo"))
			e := &entry{extent: extent{lo, lo + uintptr(rapid.IntRange(1, 12).Draw(rt, "len"))}}
			isCovered := slices.ContainsFunc(model, func(m *entry) bool { return m.covers(e.extent) })
			switch rapid.SampledFrom([]string{"insert", "remove", "find"}).Draw(rt, "op") {
			case "insert":
				inside := 0
				if !isCovered {
					before := len(model)
					model = slices.DeleteFunc(model, func(m *entry) bool { return e.covers(m.extent) })
					inside = before - len(model)
					model = append(model, e)
				}
				covered, ok := x.insert(e)
				if ok == isCovered || len(covered) != inside {
					rt.Fatalf("insert %v: %v covered, %v", e.extent, covered, ok)
				}
			case "remove":
				if len(model) == 0 || x.remove(e) {
					continue
				}
				victim := model[int(lo)%len(model)]
				model = slices.DeleteFunc(model, func(m *entry) bool { return m == victim })
				if !x.remove(victim) {
					rt.Fatalf("%v is not there", victim.extent)
				}
			case "find":
				if got := x.find(e.extent); got != nil != isCovered || got != nil && !got.covers(e.extent) {
					rt.Fatalf("find %v: %v in %v", e.extent, got, model)
				}
			}
		}
		if len(x.all) != len(model) {
			rt.Fatalf("%d extents, want %d", len(x.all), len(model))
		}
	})
}

// world drives a cache with random requests and knows what must hold after each.
type world struct {
	rt     *rapid.T
	r      *rig
	memory [][]byte // objects, and mapped memory
	uses   []*Use
}

func (w *world) piece() []byte {
	from := w.memory[rapid.IntRange(0, len(w.memory)-1).Draw(w.rt, "memory")]
	lo := rapid.IntRange(0, len(from)-1).Draw(w.rt, "lo")
	return from[lo : lo+rapid.IntRange(0, len(from)-lo).Draw(w.rt, "len")]
}

func (w *world) step() {
	switch rapid.IntRange(0, 5).Draw(w.rt, "op") {
	case 0, 1, 2:
		var list [][]byte
		for range rapid.IntRange(1, 4).Draw(w.rt, "pieces") {
			list = append(list, w.piece())
		}
		u := &Use{}
		if w.r.take(w.rt, u, list...) {
			w.uses = append(w.uses, u)
		}
	case 3, 4:
		if n := len(w.uses); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(w.rt, "use")
			w.uses[i].End()
			w.uses = slices.Delete(w.uses, i, i+1)
		}
	case 5:
		w.r.Trim()
	}
}

func (w *world) check(bound int64) {
	s := w.r.Stats()
	_, open := w.r.d.counts()
	w.r.d.mu.Lock()
	bytes := w.r.d.bytesLocked()
	w.r.d.mu.Unlock()
	if s.Bytes != bytes || s.Count != open || s.Bytes > bound || s.InUse > s.Count {
		w.rt.Fatalf("%+v; %d bytes in %d registrations are open, bound %d", s, bytes, open, bound)
	}
	if len(w.uses) == 0 && s.InUse != 0 {
		w.rt.Fatalf("nobody uses anything: %+v", s)
	}
}

// TestCacheAgainstModel: what is registered is what the books say, and within the bound.
func TestCacheAgainstModel(t *testing.T) {
	far := mapped(t, 40)
	rapid.Check(t, func(rt *rapid.T) {
		const bound = 60 * page
		w := &world{rt: rt, memory: [][]byte{pages(40), pages(30), far}}
		w.r = newRig(t, Options{Bytes: bound, Count: rapid.IntRange(1, 8).Draw(rt, "count"),
			Costs: rapid.SampledFrom([]Costs{reused(), atOnce(), {1, 1, 10}}).Draw(rt, "costs")})
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step()
			w.check(bound)
		}
		for _, u := range w.uses {
			u.End()
		}
		w.uses = nil
		w.check(bound)
	})
}

// TestConcurrentRequests has many requests for the same few objects.
func TestConcurrentRequests(t *testing.T) {
	r := newRig(t, Options{Costs: Costs{1, 1, 10}, Bytes: 100 * page})
	memory := [][]byte{pages(40), pages(40), pages(40), mapped(t, 40)}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			var u Use
			for range 400 {
				from := memory[rng.IntN(len(memory))]
				lo := rng.IntN(20) * page
				pieces := []fabric.Sge{{Buf: from[lo : lo+10*page]}, {Buf: from[:page]}}
				if !r.Take(&u, pieces, nil) {
					continue
				}
				for _, p := range pieces {
					if !extentOf(p.Reg.Bytes()).covers(extentOf(p.Buf)) {
						t.Error("a region does not cover its piece")
					}
				}
				u.End()
			}
		})
	}
	wg.Wait()
	if s := r.Stats(); s.InUse != 0 || s.Bytes > 100*page {
		t.Errorf("%+v", s)
	}
}
