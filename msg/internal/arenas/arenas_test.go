package arenas

import (
	"testing"

	"github.com/sluice-storage/sluice/mem"
)

// TestFind: memory is found in the arena that it lies in whole, while that is in the set.
func TestFind(t *testing.T) {
	var s Set
	var all [2]*mem.Arena
	for i := range all {
		a, err := mem.NewArena(1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if s.Find(a.Bytes()) != nil {
			t.Error("found before it was added")
		}
		s.Add(a)
		all[i] = a
	}
	for _, a := range all {
		if s.Find(a.Bytes()) != a || s.Find(a.Bytes()[100:200]) != a {
			t.Error("not found")
		}
	}
	if s.Find(make([]byte, 8)) != nil {
		t.Error("memory of nobody is found")
	}
	s.Remove(all[0])
	if s.Find(all[0].Bytes()) != nil || s.Find(all[1].Bytes()) != all[1] {
		t.Error("the wrong one was removed")
	}
}
