package dirty

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// check walks all runs: they cover the memory, no two free ones touch, and the account is right.
func check(t *testing.T, m *Memory) {
	t.Helper()
	var free int32
	before, seen := int32(-1), false
	for at := int32(0); int(at) < len(m.tags); {
		tag := m.tags[at]
		n := max(tag, -tag)
		if n == 0 || int(at+n) > len(m.tags) || m.tags[at+n-1] != tag {
			t.Fatalf("the run at %d says %d, its end %d", at, tag, m.tags[at+n-1])
		}
		if tag > 0 {
			free += tag
			if before > 0 {
				t.Fatalf("two free runs meet at %d", at)
			}
		}
		seen = seen || at == m.next
		before = tag
		at += n
	}
	if free != m.free || !seen {
		t.Fatalf("%d grains are free, the account says %d; the search begins at a run: %v", free, m.free,
			seen)
	}
}

// TestModel takes and gives back at random: rooms do not overlap, have the length that was asked
// for, and what is refused does not fit anywhere.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		grains := 1 + rng.IntN(64)
		m, err := New(make([]byte, grains*Grain+rng.IntN(Grain)))
		if err != nil {
			t.Fatal(err)
		}
		owner := make([]int, grains)
		rooms := map[int]Room{}
		for id := 1; id < 400; id++ {
			if rng.IntN(2) == 0 {
				for old, r := range rooms {
					giveBack(m, owner, old, r)
					delete(rooms, old)
					break
				}
			} else if rng.IntN(4) == 0 {
				for old, r := range rooms {
					rooms[old] = trim(m, owner, r, 1+rng.Int64N(int64(len(r.Bytes))))
					break
				}
			} else if r := take(t, m, owner, id, 1+rng.Int64N(int64(grains*Grain))); !r.None() {
				rooms[id] = r
			}
			check(t, m)
		}
		for old, r := range rooms {
			giveBack(m, owner, old, r)
		}
		check(t, m)
		if m.Used() != 0 || m.next != 0 || m.tags[0] != int32(grains) {
			t.Fatalf("all is back: %d bytes are used, the search begins at %d", m.Used(), m.next)
		}
	}
}

func take(t *testing.T, m *Memory, owner []int, id int, n int64) Room {
	t.Helper()
	r := m.Take(n)
	need := int(RoomFor(n) / Grain)
	if r.None() {
		for at := range owner {
			run := 0
			for at+run < len(owner) && owner[at+run] == 0 {
				run++
			}
			if run >= need {
				t.Fatalf("%d grains are refused, at %d are %d", need, at, run)
			}
		}
		return r
	}
	if int64(len(r.Bytes)) != n {
		t.Fatalf("%d bytes, asked for %d", len(r.Bytes), n)
	}
	for at := int(r.at); at < int(r.at)+need; at++ {
		if owner[at] != 0 {
			t.Fatalf("grain %d is given to %d, and is %d's", at, id, owner[at])
		}
		owner[at] = id
	}
	return r
}

func trim(m *Memory, owner []int, r Room, n int64) Room {
	end := r.at + int32(RoomFor(int64(len(r.Bytes)))/Grain)
	for at := r.at + int32(RoomFor(n)/Grain); at < end; at++ {
		owner[at] = 0
	}
	m.Trim(&r, n)
	return r
}

func giveBack(m *Memory, owner []int, id int, r Room) {
	for at := range owner {
		if owner[at] == id {
			owner[at] = 0
		}
	}
	m.Give(r)
}

func TestNothingIsAllocated(t *testing.T) {
	m, err := New(make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	n := alloctest.PerRun(0, 100, func() {
		a, b := m.Take(5000), m.Take(100)
		m.Give(a)
		m.Give(b)
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTake(b *testing.B) {
	m, err := New(make([]byte, 64<<20))
	if err != nil {
		b.Fatal(err)
	}
	var held [1024]Room
	for i := range b.N {
		m.Give(held[i%len(held)])
		held[i%len(held)] = m.Take(4<<10 + 200)
	}
}
