package stripetest

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

func fullCases() []Case {
	return []Case{
		{"a full store can be overwritten", fullOverwrite},
		{"a full store can be emptied", fullEmpty},
	}
}

// fullRig opens a small engine and fills it with one object, in steps of 64 KiB that get smaller at
// the end. It returns nil when the engine has no small form.
func fullRig(t testing.TB, c Config) (r *rig, size int64) {
	if c.OpenSmall == nil {
		t.Log("the engine has no small form")
		return nil, 0
	}
	small := c
	small.Open = c.OpenSmall
	r = newRig(t, small)
	for step := int64(1 << 20); step >= 64<<10; {
		err := r.e.WriteAt(r.ctx, alpha, [][]byte{r.byPlace(size, step)}, size, wire.Stamp{},
			stripe.Grouped)
		if errs.KindOf(err) == errs.NoSpace {
			step /= 4
			continue
		}
		r.ok(err)
		if size += step; size > 256<<20 {
			t.Fatal("the store is not small")
		}
	}
	if size < 1<<20 {
		t.Fatalf("full after %d bytes", size)
	}
	return r, size
}

// byPlace makes bytes that depend on their offset.
func (r *rig) byPlace(off, n int64) []byte { return fill(int(n), byte(off>>16)) }

func fullOverwrite(t testing.TB, c Config) {
	r, size := fullRig(t, c)
	if r == nil {
		return
	}
	refused := r.e.WriteAt(r.ctx, alpha, [][]byte{fill(2<<20, 1)}, size, wire.Stamp{}, 0)
	r.refused(refused, errs.NoSpace)
	r.size(alpha, size)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 28 {
		n := 1 + rnd.Int64N([]int64{100, 9000, 100_000, 300_000}[i%4])
		off := rnd.Int64N(size - n)
		if i%3 == 0 {
			off, n = off&^65_535, (n+65_535)&^65_535
		}
		n = min(n, size-off)
		p := fill(int(n), byte(i))
		err := r.e.WriteAt(r.ctx, alpha, [][]byte{p}, off, wire.Stamp{}, stripe.Durability(i%3))
		if err != nil {
			t.Fatalf("overwriting [%d, +%d) of a full store: %v", off, n, err)
		}
		r.holds(alpha, off, p)
		if i == 14 {
			r.reopen()
			r.holds(alpha, off, p)
		}
	}
	r.size(alpha, size)
	sp, err := r.e.Space()
	r.ok(err)
	if sp.Free > sp.Total/4 {
		t.Fatalf("a full store says that it has %+v", sp)
	}
}

func fullEmpty(t testing.TB, c Config) {
	r, size := fullRig(t, c)
	if r == nil {
		return
	}
	r.ok(r.e.SetMinGeneration(r.ctx, 99, 5)) // fences need no room of the data's
	r.ok(r.e.Punch(r.ctx, alpha, 0, size/2, wire.Stamp{}, stripe.Durable))
	r.write(alpha, 0, fill(int(size/4), 3))
	r.holds(alpha, 0, fill(int(size/4), 3))
	r.truncate(alpha, 1000, seq(1))
	r.writeAs(alpha, 1000, fill(int(size/2), 4), seq(1))
	r.holds(alpha, 1000, fill(int(size/2), 4))
	r.ok(r.e.Remove(r.ctx, alpha))
	r.write(stripe.ObjectID{File: 8}, 0, fill(int(size/2), 5))
	r.reopen()
	r.holds(stripe.ObjectID{File: 8}, 0, fill(int(size/2), 5))
}
