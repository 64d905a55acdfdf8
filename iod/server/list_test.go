package server_test

import (
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// TestListPagesThroughAllObjects writes more objects than a page holds.
func TestListPagesThroughAllObjects(t *testing.T) {
	g := newRig(t)
	const n = 2*iod.InfosMax + 7
	for i := range uint64(n) {
		g.check(g.disk.WriteAt(t.Context(), stripe.ObjectID{File: 1 + i*5%n, Gen: 3}, [][]byte{{1}}, 0,
			wire.Stamp{Gen: 3}, stripe.Durable))
	}
	var seen []stripe.ObjectID
	for after := (stripe.ObjectID{}); ; {
		page, err := g.remote.List(t.Context(), g.targetGen(after.File, after.Gen, capability.Manage))
		g.check(err)
		if len(page) == 0 {
			break
		}
		seen = append(seen, page...)
		after = page[len(page)-1]
	}
	if len(seen) != n {
		t.Fatalf("%d objects are listed, %d are there", len(seen), n)
	}
	for i, id := range seen {
		if id != (stripe.ObjectID{File: uint64(i) + 1, Gen: 3}) {
			t.Fatalf("%d. is %v", i, id)
		}
	}
	_, err := g.remote.List(t.Context(), g.target(1, capability.Read|capability.Write))
	if errs.KindOf(err) != errs.Perm {
		t.Errorf("a client lists: %v", err)
	}
}

// TestListGoesOnBehindWhatIsRemoved: whoever pages through the objects while they are removed goes
// on behind the last one that it has seen.
func TestListGoesOnBehindWhatIsRemoved(t *testing.T) {
	g := newRig(t)
	for file := range uint64(3) {
		g.check(g.disk.WriteAt(t.Context(), stripe.ObjectID{File: file + 1, Gen: 3}, [][]byte{{1}}, 0,
			wire.Stamp{Gen: 3}, stripe.Durable))
	}
	g.check(g.remote.Remove(t.Context(), g.targetGen(2, 3, capability.Manage)))
	page, err := g.remote.List(t.Context(), g.targetGen(2, 3, capability.Manage))
	g.check(err)
	if len(page) != 1 || page[0].File != 3 {
		t.Errorf("behind what is removed there are %v", page)
	}
}
