package store

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// disks are simulated servers: what is placed on them is written there.
type disks struct {
	t *testing.T
	x servers
}

const gb = 1 << 30

func newDisks(t *testing.T, total int64, free ...int64) *disks {
	d := &disks{t: t, x: servers{byID: map[uint32]*joined{}}}
	for i, f := range free {
		d.report(uint32(i+1), total, f)
	}
	return d
}

func (d *disks) report(id uint32, total, free int64) {
	s := &joined{heard: time.Unix(1, 0)}
	s.ID, s.Total, s.Free = id, total, free
	d.x.set(s)
}

func (d *disks) choose(w wish) []uint32 {
	d.t.Helper()
	ids, err := d.x.choose(time.Unix(1, 0), &w)
	if err != nil {
		d.t.Fatal(err)
	}
	slices.Sort(ids)
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		d.t.Fatalf("a server has two stripes: %v", ids)
	}
	return ids
}

// spread places files and counts the stripes, and the first ones, by server.
func (d *disks) spread(files int, w wish) (stripes, first map[uint32]int) {
	d.t.Helper()
	stripes, first = map[uint32]int{}, map[uint32]int{}
	for range files {
		ids, err := d.x.choose(time.Unix(1, 0), &w)
		if err != nil {
			d.t.Fatal(err)
		}
		first[ids[0]]++
		for _, id := range ids {
			stripes[id]++
		}
	}
	return stripes, first
}

func about(t *testing.T, what string, got, want int) {
	t.Helper()
	if got < want*9/10-5 || got > want*11/10+5 {
		t.Errorf("%s: %d, want about %d", what, got, want)
	}
}

func TestEqualServersGetEqualShares(t *testing.T) {
	for _, width := range []int{1, 2, 3, 5, layout.WidthAll} {
		d := newDisks(t, 1000*gb, 500*gb, 500*gb, 500*gb, 500*gb, 500*gb)
		stripes, first := d.spread(1000, wish{width: width})
		for id := range uint32(5) {
			about(t, "stripes", stripes[id+1], 1000*min(width, 5)/5)
			about(t, "first stripes", first[id+1], 200)
		}
	}
}

func TestSharesFollowTheRoom(t *testing.T) {
	d := newDisks(t, 1000*gb, 100*gb, 200*gb, 300*gb, 400*gb)
	stripes, first := d.spread(2000, wish{width: 1})
	for id := 1; id <= 4; id++ {
		about(t, "stripes", stripes[uint32(id)], 200*id)
		about(t, "first stripes", first[uint32(id)], 200*id)
	}
	d = newDisks(t, 1000*gb, 100*gb, 200*gb, 300*gb, 400*gb)
	if _, first = d.spread(2000, wish{width: 4}); first[4] < 2*first[1] {
		t.Errorf("first stripes of files that are everywhere: %v", first)
	}
}

// TestANewServerDoesNotGetEverything: one that is empty gets more than others, and not all.
func TestANewServerDoesNotGetEverything(t *testing.T) {
	free := slices.Repeat([]int64{50 * gb}, 10)
	free[3] = 1000 * gb
	d := newDisks(t, 1000*gb, free...)
	stripes, _ := d.spread(1300, wish{width: 1})
	about(t, "stripes of the new server", stripes[4], 1300*boundShare/(boundShare+9))
	run, longest := 0, 0
	for range 1000 {
		if run++; d.choose(wish{width: 1})[0] != 4 {
			run = 0
		}
		longest = max(longest, run)
	}
	if longest > 4 {
		t.Errorf("%d files in a row went to the new server", longest)
	}
}

// TestWhatWasPlacedCounts: between two reports a server that gets a lot is not taken for empty.
func TestWhatWasPlacedCounts(t *testing.T) {
	d := newDisks(t, 1000*gb, 300*gb, 100*gb, 100*gb)
	pool := &meta.Pool{Name: "one", Servers: []uint32{1}}
	d.choose(wish{pool: pool, volume: 300 * gb})
	if ids := d.choose(wish{}); !slices.Equal(ids, []uint32{2, 3}) {
		t.Errorf("a file went to %v, where a volume has just taken all of 1", ids)
	}
	for range 8 { // it stays empty: half of what was placed is forgotten each time
		d.report(1, 1000*gb, 300*gb)
	}
	if stripes, _ := d.spread(1000, wish{width: 1}); stripes[1] < 500 {
		t.Errorf("what was placed long ago still counts: %v", stripes)
	}
}

// TestServersFillUpTogether writes files of random lengths until all is full, with reports of the
// room now and then. Nobody finds a server full while the cluster has plenty of room.
func TestServersFillUpTogether(t *testing.T) {
	free := []int64{1000 * gb, 400 * gb, 1000 * gb, 600 * gb, 200 * gb, 800 * gb}
	was := slices.Clone(free)
	d := newDisks(t, 1000*gb, free...)
	rng := rand.New(rand.NewPCG(1, 2))
	var sum int64
	for _, f := range free {
		sum += f
	}
	for n := 0; sum > 600*gb; n++ { // a tenth of the whole
		size := rng.Int64N(4*gb) + 1
		for _, id := range d.choose(wish{width: 2, unit: layout.UnitDefault}) {
			free[id-1] -= size / 2
			sum -= size / 2
			if free[id-1] < 0 {
				t.Fatalf("server %d is full, the others have %v", id, free)
			}
		}
		if n%20 == 0 {
			for i, f := range free {
				d.report(uint32(i+1), 1000*gb, f)
			}
		}
	}
	for i, f := range free { // all have about the same part of their room left
		if f < was[i]/20 || f > was[i]/4 {
			t.Errorf("room is left unevenly: %v of %v", free, was)
		}
	}
}

func TestWishesThatCannotBe(t *testing.T) {
	d := newDisks(t, 1000*gb, 500*gb, 0, 500*gb)
	for _, c := range []struct {
		w    wish
		want errs.Kind
	}{
		{wish{width: 2, exact: true}, errs.OK},
		{wish{width: 3, exact: true}, errs.NoSpace},
		{wish{width: 4, exact: true}, errs.Again},
		{wish{width: layout.WidthAll, exact: true}, errs.OK},
		{wish{width: 4}, errs.OK},
		{wish{pool: &meta.Pool{}}, errs.Again},
		{wish{pool: &meta.Pool{Servers: []uint32{2, 9}}}, errs.OK}, // full, and all that there is
	} {
		if _, err := d.x.choose(time.Unix(1, 0), &c.w); errs.KindOf(err) != c.want {
			t.Errorf("%+v: %v, want %q", c.w, err, c.want)
		}
	}
	w := wish{}
	if _, err := d.x.choose(time.Unix(2, 0), &w); errs.KindOf(err) != errs.Again {
		t.Errorf("nobody is up: %v", err)
	}
}
