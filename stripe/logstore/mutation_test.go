package logstore

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
)

// The crash tests are worth what they find: each defect is planted into a sound store, and must be
// found by the enumeration of the script, by random lives, or by a misdirected write.
func TestCrashMutations(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant defect
		first int // script that is tried first
	}{
		{"a durable batch is not synced", skipLogSync, 0},
		{"a checkpoint does not sync", skipFlush, 0},
		{"blocks are in place before they are logged", applyBeforeLog, 0},
		{"checksums are not seeded", wrongSeed, 0},
		{"the map is switched before the data is there", switchBeforeData, 0},
		{"a torn batch is believed", believeTorn, 0},
		{"clusters are freed too early", freeEarly, 1},
		{"the log is reused too early after a wrap", releaseEarly, 3},
		{"truncates are lost", loseTruncate, 0},
		{"fences are forgotten", forgetFence, 0},
		{"batches of an earlier life are believed", ignoreChain, 4},
		{"unsynced clusters are believed", trustLoose, 0},
		{"pages are ahead of the log", pagesBeforeLog, 2},
		{"sessions are forgotten", forgetSessions, 0},
		{"merged requests are not logged", forgetMerged, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := findDefect(t, c.plant, c.first); err == nil {
				t.Fatal("nobody found it")
			} else {
				t.Logf("found: %v", err)
			}
		})
	}
}

// findDefect looks for trouble and returns the first that it finds.
func findDefect(t *testing.T, plant defect, first int) (found error) {
	if found = misdirected(t, plant); found != nil {
		return found
	}
	note := func(err error) { found = err }
	all := scripts()
	all[0], all[first] = all[first], all[0]
	for i := 0; i < len(all) && found == nil; i++ {
		all[i].run(t, plant).enumerate(1, 1, 3, func(_ int, err error) bool {
			note(err)
			return false
		})
	}
	l := newLives(t, plant)
	for seed := uint64(0); seed < 300 && found == nil; seed++ {
		l.run(t, seed, note)
	}
	return found
}

func TestMisdirectedWritesAreNoticed(t *testing.T) {
	if err := misdirected(t, 0); err != nil {
		t.Fatal(err)
	}
}

// misdirected exchanges two blocks of equal content rules on the disk, as a disk does that writes
// to the wrong place. It returns an error when a reader is not told.
func misdirected(t *testing.T, plant defect) error {
	ctx := context.Background()
	opt := crashOptions(plant)
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
		return errors.New("a block of another object was believed")
	}
	return nil
}
