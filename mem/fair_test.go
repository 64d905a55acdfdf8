package mem

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// zonesModel follows the promises of Zones on numbers alone.
type zonesModel struct {
	free  [Classes]int
	held  map[*User]int
	share map[*User]int
	queue []*request // in the order of arrival
}

func (m *zonesModel) poor(r *request) bool { return m.held[r.user] < m.share[r.user] }

// grant is what must have been granted since the last step, in any order.
func (m *zonesModel) grant() []*request {
	var granted []*request
	for len(m.queue) > 0 {
		next := slices.IndexFunc(m.queue, m.poor)
		next = max(next, 0)
		r := m.queue[next]
		left, bytes := m.free, 0
		for _, n := range r.sizes {
			before := ZonesBytes(left)
			if !coverCount(&left, n) {
				return granted
			}
			bytes += before - ZonesBytes(left)
		}
		m.free = left
		m.held[r.user] += bytes
		granted = append(granted, r)
		m.queue = slices.Delete(m.queue, next, next+1)
	}
	return granted
}

// TestZonesAgainstModel queues, returns and gives up at random: what is granted, and to whom, is
// what the model says; no two buffers overlap; bytes are neither lost nor made.
func TestZonesAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var counts [Classes]int
		for k := range 4 { // larger ones only make the test slow
			counts[k] = rapid.IntRange(0, 3).Draw(rt, "count")
		}
		counts[0]++
		z := newZones(t, counts)
		m := &zonesModel{free: counts, held: map[*User]int{}, share: map[*User]int{}}
		var users []*User
		for range rapid.IntRange(1, 4).Draw(rt, "users") {
			users = append(users, newUser(t, z, "", rapid.IntRange(1, 3).Draw(rt, "weight")))
		}
		for _, u := range users {
			m.share[u] = int(u.Stats().ShareBytes)
		}
		var out []*Buf
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			u := rapid.SampledFrom(users).Draw(rt, "user")
			switch op := rapid.IntRange(0, 9).Draw(rt, "op"); {
			case op < 5:
				sizes := rapid.SliceOfN(rapid.IntRange(1, 300*kib), 1, 2).Draw(rt, "sizes")
				if z.possible(sizes) {
					m.queue = append(m.queue, u.ask(sizes...))
				}
			case op < 9 && len(out) > 0:
				i := rapid.IntRange(0, len(out)-1).Draw(rt, "return")
				m.held[out[i].user] -= out[i].Len()
				m.free[classOf(out[i].Len())]++
				out[i].Return()
				out = slices.Delete(out, i, i+1)
			case len(m.queue) > 0:
				i := rapid.IntRange(0, len(m.queue)-1).Draw(rt, "give up")
				z.mu.Lock()
				m.queue[i].user.removeLocked(m.queue[i])
				z.dispatchLocked()
				z.mu.Unlock()
				m.queue = slices.Delete(m.queue, i, i+1)
			}
			for _, r := range m.grant() {
				if !r.granted() {
					rt.Fatalf("a request that fits and whose turn it is was not granted")
				}
				out = append(out, handOutAll(r.dst, 0)...)
			}
			checkZones(rt, z, m, out)
		}
		returnAll(out)
	})
}

func checkZones(rt *rapid.T, z *Zones, m *zonesModel, out []*Buf) {
	for _, r := range m.queue {
		if r.granted() {
			rt.Fatal("a request was granted out of turn")
		}
	}
	for k, s := range z.Stats().Class {
		if s.Count-s.InUse != m.free[k] {
			rt.Fatalf("class %d: %+v, the model has %d free", k, s, m.free[k])
		}
	}
	for u, held := range m.held {
		if s := u.Stats(); s.HeldBytes != int64(held) {
			rt.Fatalf("%+v, the model holds %d", s, held)
		}
	}
	byAddr := slices.Clone(out)
	slices.SortFunc(byAddr, func(a, b *Buf) int { return int(addrOf(a.mem)) - int(addrOf(b.mem)) })
	for i := 1; i < len(byAddr); i++ {
		if addrOf(byAddr[i].mem) < addrOf(byAddr[i-1].mem)+uintptr(byAddr[i-1].Len()) {
			rt.Fatal("two buffers overlap")
		}
	}
}

// TestZonesUnderLoad runs users that give up at random moments, and looks for buffers that two of
// them hold, and for any that got lost.
func TestZonesUnderLoad(t *testing.T) {
	z := newZones(t, [Classes]int{6, 3, 2, 0, 0, 0})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	var served atomic.Int64
	for g := range 8 {
		u := newUser(t, z, "", 1)
		rng := rand.New(rand.NewPCG(seed, uint64(g)))
		wg.Add(1)
		go func() {
			defer wg.Done()
			var bufs []*Buf
			for i := range 300 {
				ctx, cancel := context.WithTimeout(context.Background(),
					time.Duration(rng.IntN(300))*time.Microsecond)
				var err error
				bufs, err = u.TakeList(ctx, []int{1 + rng.IntN(200*kib), 1 + rng.IntN(100*kib)}, bufs[:0])
				cancel()
				if err != nil {
					continue
				}
				served.Add(1)
				for n, b := range bufs {
					binary.LittleEndian.PutUint64(b.Bytes(), uint64(g<<40|i<<8|n))
				}
				for n, b := range bufs {
					if binary.LittleEndian.Uint64(b.Bytes()) != uint64(g<<40|i<<8|n) {
						t.Error("a buffer was given to two")
					}
				}
				returnAll(bufs)
			}
		}()
	}
	wg.Wait()
	if s := z.Stats(); s.Waiting != 0 || served.Load() == 0 {
		t.Fatalf("%d served, %+v", served.Load(), s)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSharesUnderContention: one user asks with twenty goroutines at once, another with four, for
// eight buffers. In the order of arrival alone the second would get four of twenty-four grants;
// its share is a half.
func TestSharesUnderContention(t *testing.T) {
	const total = 3000
	z := newZones(t, [Classes]int{8, 0, 0, 0, 0, 0})
	var all atomic.Int64
	var wg sync.WaitGroup
	run := func(u *User, takers int) *atomic.Int64 {
		own := &atomic.Int64{}
		for range takers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for all.Add(1) <= total {
					bufs, err := u.Take(context.Background(), 64*kib, nil)
					if err != nil {
						t.Error(err)
						return
					}
					own.Add(1)
					time.Sleep(50 * time.Microsecond)
					returnAll(bufs)
				}
			}()
		}
		return own
	}
	greedy := run(newUser(t, z, "greedy", 1), 20)
	modest := run(newUser(t, z, "modest", 1), 4)
	wg.Wait()
	t.Logf("greedy %d, modest %d", greedy.Load(), modest.Load())
	if modest.Load() < total*3/10 {
		t.Fatalf("the modest user got %d of %d grants", modest.Load(), total)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNoAllocationPerTakeFromZones(t *testing.T) {
	z := newZones(t, [Classes]int{4, 1, 0, 0, 0, 0})
	u := newUser(t, z, "u", 1)
	ctx, bufs := context.Background(), make([]*Buf, 0, 8)
	if n := alloctest.PerRun(0, 100, func() {
		bufs, _ = u.TakeList(ctx, []int{100, 64*kib + 1, 128 * kib}, bufs[:0])
		returnAll(bufs)
		bufs, _ = u.Take(ctx, 1, bufs[:0])
		returnAll(bufs)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkZonesTakeReturn(b *testing.B) {
	z := newZones(b, [Classes]int{4, 4, 4, 4, 4, 4})
	u := newUser(b, z, "u", 1)
	ctx, bufs := context.Background(), make([]*Buf, 0, 8)
	b.ReportAllocs()
	for b.Loop() {
		bufs, _ = u.Take(ctx, 100*kib, bufs[:0])
		bufs[0].Return()
	}
}

// BenchmarkZonesByEight has eight users, each with a size of its own choice, and enough for all.
func BenchmarkZonesByEight(b *testing.B) {
	z := newZones(b, [Classes]int{8, 8, 8, 8, 8, 8})
	var nth atomic.Int64
	b.SetParallelism(4) // times two cores
	b.RunParallel(func(pb *testing.PB) {
		u := newUser(b, z, "u", 1)
		size := ClassBytes(int(nth.Add(1)) % Classes)
		ctx, bufs := context.Background(), make([]*Buf, 0, 8)
		for pb.Next() {
			bufs, _ = u.Take(ctx, size, bufs[:0])
			bufs[0].Return()
		}
	})
}

// BenchmarkZonesContended has eight users and memory for four: half of them wait.
func BenchmarkZonesContended(b *testing.B) {
	z := newZones(b, [Classes]int{4, 0, 0, 0, 0, 0})
	b.ReportAllocs()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		u := newUser(b, z, "u", 1)
		ctx, bufs := context.Background(), make([]*Buf, 0, 8)
		for pb.Next() {
			bufs, _ = u.Take(ctx, 64*kib, bufs[:0])
			bufs[0].Return()
		}
	})
}
