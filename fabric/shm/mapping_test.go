package shm

import (
	"slices"
	"testing"
)

// TestReach: a part is read once, when something of it is about to be written.
func TestReach(t *testing.T) {
	mem := make([]byte, 3*aroundBytes+4096)
	for i := range mem {
		mem[i] = 1
	}
	m := newMapping(mem)
	for _, step := range []struct {
		off, n uint64
		want   []bool
	}{
		{0, 0, []bool{false, false, false, false}},
		{aroundBytes, 1, []bool{false, true, false, false}},
		{aroundBytes - 1, 2, []bool{true, true, false, false}},
		{3 * aroundBytes, 4096, []bool{true, true, false, true}},
		{0, uint64(len(mem)), []bool{true, true, true, true}},
	} {
		m.reach(step.off, step.n)
		if !slices.Equal(m.reached, step.want) {
			t.Fatalf("%d bytes at %d: %v, want %v", step.n, step.off, m.reached, step.want)
		}
	}
	if m.seen != 4 {
		t.Errorf("%d parts were read, want 4", m.seen)
	}
}
