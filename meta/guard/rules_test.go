package guard

import (
	"testing"

	"github.com/sluice-storage/sluice/meta"
)

// TestEveryOperationIsSaid: who adds an operation says what it means for clients. Until then it is
// refused.
func TestEveryOperationIsSaid(t *testing.T) {
	for op := range meta.OpEnd {
		said := rules[op].what != unsaid
		if said != op.Valid() {
			t.Errorf("operation %d (%v): it exists: %v, and rules.go has a row: %v", op, op, op.Valid(),
				said)
		}
	}
}

// TestEveryInodeIsLookedAt: an inode, a directory or a session that travels with a request is
// checked, or the row has a function of its own for it.
func TestEveryInodeIsLookedAt(t *testing.T) {
	all := meta.Args{Ino: 11, Dir: 12, NewDir: 13, Session: 14, Change: meta.Change{Ino: 15},
		Lock:     meta.Lock{Ino: 16, Kind: meta.LockFlock, Type: meta.LockShared, End: meta.LockEndMax},
		Closing:  meta.Closing{Dirty: true, Change: meta.Change{Ino: 17}},
		Closings: []meta.Closing{{Dirty: true}}, Claims: []meta.Claimed{{Ino: 18}},
		Deferred: []meta.Deferred{{Kind: meta.DeferTouch, Dir: 23}}, Files: []meta.Ino{24},
		Accesses: []meta.Access{{Ino: 19}}, Locks: []meta.Lock{{Ino: 20}},
		Listen: meta.Listening{Session: 21, Acks: []meta.Recall{{Ino: 22}}}, Name: "v", Client: "c"}
	for op := range meta.OpEnd {
		r := rules[op]
		if !op.Valid() || r.what == adminOnly {
			continue
		}
		var a meta.Args
		if err := a.Decode(op, all.Append(op, nil)); err != nil {
			t.Fatalf("%v: %v", op, err)
		}
		for _, x := range []struct {
			travels bool
			use     uses
		}{
			{a.Ino != 0, useIno}, {a.Dir != 0, useDir}, {a.NewDir != 0, useNewDir},
			{a.Change.Ino != 0, useChange}, {a.Lock.Ino != 0, useLock}, {a.Session != 0, useSession},
			{a.Closing.Dirty || a.Closings != nil || a.Claims != nil || a.Accesses != nil, 0},
			{a.Locks != nil || a.Listen.Session != 0 || a.Client != "" || a.Deferred != nil, 0},
			{a.Files != nil, 0},
		} {
			byItself := r.begin != nil || op == meta.OpSucceed // whose service looks at names itself
			if x.travels && r.uses&x.use == 0 && !byItself {
				t.Errorf("%v: something travels with it that nobody looks at (%d)", op, x.use)
			}
			if !x.travels && r.uses&x.use != 0 {
				t.Errorf("%v: something is looked at that does not travel with it (%d)", op, x.use)
			}
		}
	}
}

// TestReachedIsBounded: the oldest inodes are forgotten first.
func TestReachedIsBounded(t *testing.T) {
	var r reached
	for i := range meta.Ino(2 * reachedMax) {
		r.add(i + 1)
		r.add(i + 1)
	}
	if len(r.set) != reachedMax || len(r.order) != reachedMax || r.has(1) || !r.has(2*reachedMax) {
		t.Fatalf("%d, %d", len(r.set), len(r.order))
	}
}

func TestPathBelow(t *testing.T) {
	for _, c := range [][3]string{{"/", "/a/b", "/a/b"}, {"/a", "/a", "/"}, {"/a", "/a/b", "/b"},
		{"/a", "/ab", ""}, {"/a", "/x/a", ""}, {"/a", "", ""}} {
		if got := pathBelow(c[0], c[1]); got != c[2] {
			t.Errorf("%s from %s: %q", c[1], c[0], got)
		}
	}
}
