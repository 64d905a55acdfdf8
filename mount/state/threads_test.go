package state

import (
	"slices"
	"testing"
)

// TestThreads: threads are found by whoever opens the memory later, until they are forgotten; there
// is room for some.
func TestThreads(t *testing.T) {
	f, x := fresh(t)
	for pid := range uint32(2 * threadsMax) {
		x.NoteThread(pid + 1)
		x.NoteThread(pid + 1)
	}
	x.NoteThread(0)
	y := again(t, f)
	if list := y.Threads(); len(list) != threadsMax || slices.Contains(list, 0) {
		t.Fatalf("%d threads: %v", len(list), list)
	}
	for pid := range uint32(threadsMax) {
		y.ForgetThread(pid + 1)
	}
	y.NoteThread(1 << 31)
	y.word(atThreads + 8).Store(1 << 40) // damage
	if list := again(t, f).Threads(); len(list) != 1 || list[0] != 1<<31 {
		t.Fatal(list)
	}
}
