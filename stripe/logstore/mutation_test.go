package logstore

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/mutanttest"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
)

// The crash tests are worth what they find: each mutant of testdata/mutants.txt must be found by
// the power cuts of one script, or by a misdirected write.
func TestMutantsAreFound(t *testing.T) {
	script := func(name, planted string) mutanttest.Case {
		return mutanttest.Case{Mutant: planted, Tests: "TestCrashEnumeration/" + name,
			Env: []string{"LOGSTORE_SEED=1", "LOGSTORE_CRASH_FEW=3"}}
	}
	mutanttest.Hunt{
		Control: []string{"LOGSTORE_CRASH_STRIDE=10"},
		Cases: []mutanttest.Case{
			script("every_kind", "skipLogSync"),
			script("every_kind", "skipFlush"),
			script("every_kind", "applyBeforeLog"),
			{Mutant: "wrongSeed", Tests: "TestMisdirectedWritesAreNoticed"},
			script("every_kind", "switchBeforeData"),
			script("every_kind", "believeTorn"),
			script("clusters_that_are_used_again", "freeEarly"),
			script("writes_while_pages_are_written", "releaseEarly"),
			script("every_kind", "loseTruncate"),
			script("every_kind", "forgetFence"),
			script("a_second_life", "ignoreChain"),
			script("every_kind", "trustLoose"),
			script("writes_while_blocks", "pagesBeforeLog"),
			script("every_kind", "forgetSessions"),
			script("every_kind", "forgetMerged"),
			script("space_that_is_reserved", "forgetReserve"),
			script("space_that_is_reserved", "blankFrees"),
			script("space_that_is_reserved", "cutKeeps"),
		},
	}.Run(t)
}

// A disk that writes to the wrong place is noticed: a block of one object, with its checksum, lies
// where another object's block was, and a reader is told.
func TestMisdirectedWritesAreNoticed(t *testing.T) {
	ctx := context.Background()
	opt := crashOptions()
	dev := freshMemory(t, opt, 3<<20)
	opt.Devices = []device.Device{dev}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.members[0].abandon()
	one, two := bytes.Repeat([]byte{1}, 65_536), bytes.Repeat([]byte{2}, 65_536)
	for i, p := range [][]byte{one, two} {
		id := stripe.ObjectID{File: uint64(i + 1)}
		if err := s.WriteAt(ctx, id, [][]byte{p}, 0, wire.Stamp{}, stripe.Durable); err != nil {
			t.Fatal(err)
		}
	}
	g := &s.members[0].g
	a, _ := s.members[0].objects[stripe.ObjectID{File: 1}].cluster(0)
	b, _ := s.members[0].objects[stripe.ObjectID{File: 2}].cluster(0)
	x, y := g.blockOff(a, 3), g.blockOff(b, 3)
	// Both the bytes and their sums have gone astray: only the seed can tell.
	copy(dev.Bytes()[y:y+blockBytes], dev.Bytes()[x:x+blockBytes])
	s.members[0].mu.Lock()
	s.members[0].table.changeCluster(b).setSum(3, s.members[0].table.clusterEntry(a).sum(3))
	s.members[0].mu.Unlock()
	err = s.ReadAt(ctx, stripe.ObjectID{File: 2}, [][]byte{make([]byte, 65_536)}, 0)
	if !errors.Is(err, errs.Corrupt) {
		t.Errorf("a block of another object was believed: %v", err)
	}
}
