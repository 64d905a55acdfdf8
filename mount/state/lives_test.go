package state

import (
	"maps"
	"testing"
)

// TestLives: lives of servers are found by whoever opens the memory later, the last of each.
func TestLives(t *testing.T) {
	f, x := fresh(t)
	if len(x.Lives()) != 0 {
		t.Fatal("lives of nobody")
	}
	for _, life := range []struct {
		server   uint32
		verifier uint64
	}{{3, 30}, {0, 1}, {^uint32(0), 7}, {3, 31}} {
		if !x.SetLife(life.server, life.verifier) {
			t.Fatal("no room")
		}
	}
	want := map[uint32]uint64{0: 1, 3: 31, ^uint32(0): 7}
	y := again(t, f)
	if got := y.Lives(); !maps.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for server := range uint32(livesMax) {
		y.SetLife(1000+server, 1)
	}
	if y.SetLife(10, 1) || !y.SetLife(3, 32) || len(again(t, f).Lives()) != livesMax {
		t.Fatal("there is more room than there is")
	}
	y.word(atLives + lifeBytes).Store(1 << 40) // damage
	if got := again(t, f).Lives(); len(got) != 1 || got[3] != 32 {
		t.Fatalf("%v", got)
	}
}

// TestUnsyncedAndEdition: what is noted of a handle for the next process, and what is not mixed up.
func TestUnsyncedAndEdition(t *testing.T) {
	f, x := fresh(t)
	slot, err := x.Add(&Handle{Number: 1, Ino: 5, Edition: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := x.Add(&Handle{Number: 2, Ino: 6, Bits: Directory})
	if err != nil {
		t.Fatal(err)
	}
	x.Bury(dir, 0o700, 3, 4)
	x.SetUnsynced(slot, true)
	x.SetWritten(slot, true)
	x.SetWritten(slot, false)
	y := again(t, f)
	list, _ := handles(y)
	if len(list) != 2 || list[0].Edition != 1<<40 || list[0].Bits != Unsynced || list[0].Mode != 0 ||
		list[1].Edition != 0 || list[1].Mode != 0o700 || list[1].UID != 3 {
		t.Fatalf("%+v", list)
	}
	y.SetUnsynced(slot, false)
	if list, _ := handles(y); list[0].Bits != 0 {
		t.Fatalf("%+v", list[0])
	}
}
