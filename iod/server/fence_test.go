package server

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
)

// TestFencesAreBounded: those whose time is over are forgotten, and the oldest when there are too
// many; that it may have forgotten something the table knows.
func TestFencesAreBounded(t *testing.T) {
	const inPart = fencesMax / fenceParts
	var f fences
	refused := func(file uint64) bool {
		return f.check(stripe.ObjectID{File: file, Gen: 1}) != nil
	}
	put := func(n int, from uint64, at time.Duration) {
		for i := range uint64(n) {
			f.add((from+i)*fenceParts, 0, 2, at+time.Duration(i))
		}
	}
	put(inPart, 1, 0)
	if !refused(fenceParts) || f.blind.Load() != 0 {
		t.Fatal("forgot a fence that there was room for")
	}
	f.add(2*fenceParts, 3, 0, time.Second) // renewed: the file is fenced, the oldest one is forgotten
	put(3, 1<<20, 2*time.Second)
	if refused(fenceParts) || !refused(2*fenceParts) || f.blind.Load() < 2 {
		t.Fatalf("the oldest is not forgotten, or a renewed one is: blind until %d", f.blind.Load())
	}
	before := f.blind.Load()
	put(2*inPart, 1<<21, 10*fencesFor)
	if len(f.parts[0].files) > inPart || len(f.parts[0].order) > inPart {
		t.Fatalf("%d fences, %d in order", len(f.parts[0].files), len(f.parts[0].order))
	}
	put(1, 1<<30, 30*fencesFor)
	if n := len(f.parts[0].order); n != 1 || !refused(1<<30*fenceParts) {
		t.Fatalf("%d fences are left after their time", n)
	}
	if f.blind.Load() <= before || f.blind.Load() >= int64(30*fencesFor) {
		t.Fatalf("blind until %d: those whose time was over count, or the others do not", f.blind.Load())
	}
}
