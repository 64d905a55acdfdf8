package activity

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	for i := range bucketsEnd {
		from, below := boundOf(i), boundOf(i+1)
		if from >= below || bucketOf(from) != i || bucketOf(below-1) != i {
			t.Fatalf("bucket %d is from %v to %v; these are in %d and %d", i, from, below,
				bucketOf(from), bucketOf(below-1))
		}
		if i > subBuckets && float64(below)/float64(from) > 1.26 {
			t.Errorf("bucket %d is from %v to %v", i, from, below)
		}
	}
	if bucketOf(math.MaxInt64) != bucketsLast || boundOf(bucketsLast) < time.Hour {
		t.Errorf("the last bucket begins at %v", boundOf(bucketsLast))
	}
}

// TestPercentile compares with what is exact.
func TestPercentile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 10000 {
		d := time.Duration(math.Exp(rng.Float64()*15) * 300)
		all = append(all, d)
		h.add(d, false)
	}
	slices.Sort(all)
	list, n := h.read()
	if n != 10000 || time.Duration(h.longest.Load()) != all[len(all)-1] {
		t.Errorf("%d of 10000, longest %v", n, time.Duration(h.longest.Load()))
	}
	for _, share := range []float64{0.01, 0.5, 0.99, 1} {
		got, want := Percentile(list, share), all[int(share*9999)]
		if r := float64(got) / float64(want); r < 0.79 || r > 1.27 {
			t.Errorf("%v: %v, exactly %v", share, got, want)
		}
	}
	if Percentile(nil, 0.5) != 0 {
		t.Error("a percentile of nothing")
	}
}

func recorder() *Recorder {
	return New(Options{Ops: []Op{{Name: "read"}, {Name: "listen", Waits: true}, {}},
		Phases: []string{"init", "disk"}})
}

// at runs a request of one moment.
func at(r *Recorder, op int, client, object uint64, end, took time.Duration, d Done) {
	q := r.Begin(op, end-took)
	q.Of(client, object)
	q.End(end, &d)
}

func TestCounts(t *testing.T) {
	r := recorder()
	now := r.Now()
	at(r, 0, 7, 9, now, time.Microsecond, Done{Read: 10})
	at(r, 0, 7, 8, now, time.Microsecond, Done{Written: 5, Failed: true})
	at(r, 1, 0, 0, now, time.Hour, Done{})
	at(r, 2, 0, 0, now, 0, Done{})
	at(r, 99, 1, 1, now, time.Hour, Done{}) // not one of its operations
	at(r, -1, 1, 1, now, time.Hour, Done{})
	var s Snapshot
	r.Snapshot(&s)
	if len(s.Ops) != 2 || s.Ops[0].Op != "read" || s.Ops[0].Count != 2 || s.Ops[0].Failed != 1 ||
		!s.Ops[1].Waits || s.Ops[0].Sum != 2*time.Microsecond {
		t.Errorf("%+v", s.Ops)
	}
	if len(s.Clients) != 1 || s.Clients[0].ID != 7 || s.Clients[0].Requests != 2 ||
		s.Clients[0].Read != 10 || s.Clients[0].Written != 5 || s.Clients[0].Failed != 1 {
		t.Errorf("%+v", s.Clients)
	}
	if len(s.Objects) != 2 || len(s.Slow) != 0 || len(s.Running) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTableIsBounded: more clients than there are places are counted all the same, and places of
// those that are gone go to others.
func TestTableIsBounded(t *testing.T) {
	var tab table
	tab.init(64)
	const n = 1000
	for id := uint64(1); id <= n; id++ {
		tab.find(id, 0).add(0, &Done{})
	}
	total, named := uint64(0), 0
	for _, u := range tab.list(0) {
		total += u.Requests
		if u.ID != 0 {
			named++
		}
	}
	if total != n || named < 32 || named > 64 {
		t.Errorf("%d requests of %d clients", total, named)
	}
	later := 2 * idleMax
	for id := uint64(n + 1); id <= n+20; id++ {
		tab.find(id, later).add(later, &Done{})
	}
	seen := 0
	for _, u := range tab.list(later) {
		if u.ID > n {
			seen++
		} else if u.ID != 0 {
			t.Errorf("client %d is long gone", u.ID)
		}
	}
	if seen < 18 {
		t.Errorf("%d of 20", seen)
	}
}

// TestSlowest: the slowest requests of the last minute are kept, and nothing else.
func TestSlowest(t *testing.T) {
	r := recorder()
	rng := rand.New(rand.NewPCG(3, 4))
	var all []time.Duration
	for range 2000 {
		took := time.Duration(rng.Int64N(int64(time.Second)))
		all = append(all, took)
		at(r, 0, 1, 2, 2*time.Second, took, Done{Name: "x",
			Phases: [PhasesMax]time.Duration{took / 10, took * 9 / 10}})
	}
	at(r, 1, 1, 2, 2*time.Second, time.Hour, Done{}) // waits by its nature
	slices.Sort(all)
	slices.Reverse(all)
	found := r.slow.recent(3 * time.Second)
	if len(found) != slowEach {
		t.Fatalf("%d", len(found))
	}
	slices.SortFunc(found, func(a, b slowOne) int { return int(b.took - a.took) })
	for i := range found {
		if found[i].took != all[i] {
			t.Errorf("%d: %v, not %v", i, found[i].took, all[i])
		}
	}
	at(r, 0, 1, 2, 2*time.Second+slowWindow, 2*time.Millisecond, Done{}) // the slowest of its time
	if n := len(r.slow.recent(15 * time.Second)); n != slowEach+1 {
		t.Errorf("%d with the next", n)
	}
	if n := len(r.slow.recent(65 * time.Second)); n != 1 {
		t.Errorf("%d after a minute", n)
	}
	var s Snapshot
	r.Snapshot(&s)
	where := s.Slow[0].Where(func(d time.Duration) string { return "long" })
	if s.Slow[0].Name != "x" || where != "disk long" {
		t.Errorf("%+v: %s", s.Slow[0], where)
	}
}

// TestRunning: what is under way for long is shown, with where it is.
func TestRunning(t *testing.T) {
	r := recorder()
	now := r.Now()
	q := r.Begin(0, now-time.Minute)
	q.Of(5, 6)
	q.Enter(1)
	waiting, quick := r.Begin(1, now-time.Hour), r.Begin(0, now)
	var s Snapshot
	r.Snapshot(&s)
	if len(s.Running) != 1 || s.Running[0].Client != 5 || s.Running[0].Object != 6 ||
		s.Running[0].Phase != "disk" || s.Running[0].Took < time.Minute {
		t.Fatalf("%+v", s.Running)
	}
	for _, q := range []*Request{&q, &waiting, &quick} {
		q.End(now, &Done{})
	}
	if r.Snapshot(&s); len(s.Running) != 0 {
		t.Errorf("%+v", s.Running)
	}
}

// TestCrowd: many at once lose nothing, whether they find a place or not.
func TestCrowd(t *testing.T) {
	r := recorder()
	var wg sync.WaitGroup
	const each = 300
	for worker := range uint64(8) {
		wg.Go(func() {
			var open []Request
			for range each {
				q := r.Begin(0, r.Now())
				q.Of(worker+1, worker+1)
				open = append(open, q)
			}
			for i := range open {
				open[i].End(r.Now(), &Done{Read: 1})
			}
		})
	}
	for range 50 {
		var s Snapshot
		r.Snapshot(&s)
	}
	wg.Wait()
	var s Snapshot
	r.Snapshot(&s)
	if s.Ops[0].Count != 8*each || len(s.Clients) != 8 || len(s.Running) != 0 {
		t.Errorf("%d requests of %d clients, %d under way", s.Ops[0].Count, len(s.Clients),
			len(s.Running))
	}
	for _, c := range s.Clients {
		if c.Read != each || c.Requests != each {
			t.Errorf("%+v", c)
		}
	}
}

// TestNothingIsAllocated by a request.
func TestNothingIsAllocated(t *testing.T) {
	r := recorder()
	n := testing.AllocsPerRun(1000, func() { one(r, 3) })
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func one(r *Recorder, client uint64) {
	q := r.Begin(0, r.Now())
	q.Of(client, 9)
	q.Enter(1)
	d := Done{Read: 4096}
	q.End(r.Now(), &d)
}

// BenchmarkRequest is all that a request costs, with the clock that servers read anyhow.
func BenchmarkRequest(b *testing.B) {
	r := recorder()
	b.ReportAllocs()
	for b.Loop() {
		one(r, 3)
	}
}

// BenchmarkRequestParallel is the same for many clients at once.
func BenchmarkRequestParallel(b *testing.B) {
	r := recorder()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		client := 1 + rand.Uint64N(1<<20)
		for pb.Next() {
			one(r, client)
		}
	})
}

// BenchmarkClock is what the clock costs of it.
func BenchmarkClock(b *testing.B) {
	r := recorder()
	for b.Loop() {
		_, _ = r.Now(), r.Now()
	}
}
