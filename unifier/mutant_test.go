package unifier

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/mutanttest"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	model := func(name string) mutanttest.Case {
		return mutanttest.Case{Mutant: name, Tests: "TestModel", Env: []string{"UNIFIER_SEEDS=60"}}
	}
	mutanttest.Hunt{
		Control: []string{"UNIFIER_SEEDS=5"},
		Cases: []mutanttest.Case{
			model("lendUnpinned"), model("skipSettle"), model("dropStamps"), model("keepChanged"),
			model("evictDirty"), model("keepSums"), model("anyOrder"), model("loseSlots"),
			model("mixOverlaps"), model("numberSoon"),
			model("numbersFirst"), model("inventGaps"),
			{Mutant: "skipVerify", Tests: "TestWrongSums"},
			{Mutant: "turnSlots", Tests: "TestNumbersOfASlotKeepTheirOrder"},
		},
	}.Run(t)
}

// TestWrongSums sends data that was damaged on its way.
func TestWrongSums(t *testing.T) {
	r := newRig(t, Config{DirtyBytes: 256 << 10, DirtyAge: time.Millisecond})
	r.write(alpha, 0, fill1(3*testUnit, 1))
	p := fill1(3*testUnit, 2)
	sums := sumsOf(p, testUnit)
	p[testUnit]++
	w, err := r.Draft(r.ctx, alpha, seg.Contig(0, 3*testUnit), Hint{})
	r.ok(err)
	scatter(w.Sges(), p)
	if w.Verify(sums, testUnit) == nil {
		r.ok(only(w.Publish(r.ctx, wire.Stamp{}, stripe.Volatile)))
	} else {
		w.Abort()
	}
	r.holds(alpha, 0, fill1(3*testUnit, 1))
}
