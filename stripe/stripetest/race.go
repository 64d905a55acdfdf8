package stripetest

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func raceCases() []Case {
	return []Case{
		{"concurrent writes side by side keep all bytes", sideBySide},
		{"of overlapping writes each byte is one writer's", overlapping},
		{"no stale byte lands after a truncate", raceTruncate},
		{"no old generation lands after a fence", raceFence},
		{"no deposed writer lands after a fence", raceDepose},
		{"everything at once", everything},
	}
}

// together runs n copies of fn and waits.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

func sideBySide(t testing.TB, c Config) {
	r := newRig(t, c)
	const writers, rounds, each = 8, 20, 777
	together(writers, func(w int) {
		for k := range rounds {
			off := int64((k*writers + w) * each)
			d := stripe.Durability(k % 7 / 6)
			err := r.e.WriteAt(r.ctx, alpha, [][]byte{fill(each, byte(w+k))}, off, wire.Stamp{}, d)
			if err != nil {
				t.Error(err)
			}
		}
	})
	for w := range writers {
		for k := range rounds {
			r.holds(alpha, int64((k*writers+w)*each), fill(each, byte(w+k)))
		}
	}
	r.size(alpha, writers*rounds*each)
}

func overlapping(t testing.TB, c Config) {
	r := newRig(t, c)
	const writers, n = 6, 40_000
	var parts [writers][]byte
	for w := range parts {
		parts[w] = fill(n, byte(w))
	}
	together(writers, func(w int) {
		for range 10 {
			if err := r.e.WriteAt(r.ctx, alpha, [][]byte{parts[w]}, 100, wire.Stamp{},
				stripe.Volatile); err != nil {
				t.Error(err)
			}
		}
	})
	for i, b := range r.read(alpha, 100, n) {
		known := false
		for w := range parts {
			known = known || b == parts[w][i]
		}
		if !known {
			t.Fatalf("byte %d is %#02x, which nobody wrote there", i, b)
		}
	}
	r.size(alpha, 100+n)
}

// raceTruncate lets writers of the old sequence run against a truncate: whatever they were told,
// nothing of theirs may be there once the truncate has returned.
func raceTruncate(t testing.TB, c Config) {
	r := newRig(t, c)
	for round := range uint64(15) {
		var wg sync.WaitGroup
		defer wg.Wait() // when the round fails
		for w := range 4 {
			wg.Go(func() {
				for k := range 20 {
					err := r.e.WriteAt(r.ctx, alpha, [][]byte{fill(5000, 1)}, int64(w*9000+k),
						seq(round), stripe.Volatile)
					if err != nil && errs.KindOf(err) != errs.Stale {
						t.Error(err)
					}
				}
			})
		}
		r.truncate(alpha, 0, seq(round+1))
		r.holds(alpha, 0, make([]byte, 50_000))
		wg.Wait()
		r.holds(alpha, 0, make([]byte, 50_000))
		r.size(alpha, 0)
	}
}

func raceFence(t testing.TB, c Config) {
	r := newRig(t, c)
	for round := range uint32(10) {
		id := stripe.ObjectID{File: 5, Gen: round + 1}
		var wg sync.WaitGroup
		defer wg.Wait() // when the round fails
		var mu sync.Mutex
		fencedOff, late := false, 0
		for range 4 {
			wg.Go(func() {
				for range 20 {
					mu.Lock()
					before := fencedOff
					mu.Unlock()
					err := r.e.WriteAt(r.ctx, id, [][]byte{fill(100, 1)}, 0, wire.Stamp{}, 0)
					if err == nil && before {
						mu.Lock()
						late++
						mu.Unlock()
					}
				}
			})
		}
		r.ok(r.e.SetMinGeneration(r.ctx, 5, round+2))
		mu.Lock()
		fencedOff = true
		mu.Unlock()
		wg.Wait()
		if late > 0 {
			t.Fatalf("%d writes were acknowledged after the fence", late)
		}
	}
}

func everything(t testing.TB, c Config) {
	r := newRig(t, c)
	together(6, func(w int) {
		rnd := rand.New(rand.NewPCG(uint64(w), 1))
		for range 120 {
			id := stripe.ObjectID{File: 1 + rnd.Uint64N(3), Gen: 1}
			r.one(rnd, id)
		}
	})
	r.ok(r.e.Sync(r.ctx, stripe.ObjectID{}))
}

// one makes a random request whose result may be anything but an unexpected kind of error.
func (r *rig) one(rnd *rand.Rand, id stripe.ObjectID) {
	var err error
	off := rnd.Int64N(200_000)
	switch rnd.IntN(10) {
	case 0, 1, 2:
		err = r.e.WriteAt(r.ctx, id, [][]byte{fill(rnd.IntN(30_000), 1)}, off, seq(1e9), 0)
	case 3, 4:
		err = r.e.ReadAt(r.ctx, id, [][]byte{make([]byte, 30_000)}, off)
	case 5:
		err = r.e.Truncate(r.ctx, id, off, seq(rnd.Uint64N(5)))
	case 6:
		err = r.e.Punch(r.ctx, id, off, 50_000, seq(1e9), stripe.Volatile)
	case 7:
		_, err = r.e.Map(r.ctx, id, 0, 1<<20, 100)
	case 8:
		err = r.e.Sync(r.ctx, id)
	case 9:
		err = r.e.Remove(r.ctx, id)
	}
	if k := errs.KindOf(err); k != errs.OK && k != errs.Stale {
		r.Error(err)
	}
}
