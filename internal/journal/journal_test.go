package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// traced is memory that remembers each store, bytes a few at a time: a process may die behind any.
type traced struct {
	mem    []byte
	stores []stored
}

type stored struct {
	at int
	b  []byte
}

func (m *traced) put(at int, b []byte) {
	copy(m.mem[at:], b)
	m.stores = append(m.stores, stored{at, bytes.Clone(b)})
}

func (m *traced) load(at int) uint64 { return binary.NativeEndian.Uint64(m.mem[at:]) }

func (m *traced) store(at int, v uint64) {
	m.put(at, binary.NativeEndian.AppendUint64(nil, v)) // one store: it is there or not
}

func (m *traced) read(at int, to []byte) { copy(to, m.mem[at:]) }

func (m *traced) write(at int, from []byte) {
	for i := 0; i < len(from); i += 37 {
		m.put(at+i, from[i:min(i+37, len(from))])
	}
}

func mustOpen(t testing.TB, mem []byte) *Journal {
	t.Helper()
	j, err := Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// texts are the records of a journal, with whether they are marked.
func texts(j *Journal) (list []string) {
	for _, r := range j.Records() {
		list = append(list, fmt.Sprintf("%s %v", r.Bytes, r.Marked))
	}
	return list
}

func text(n int, of string) []byte { return bytes.Repeat([]byte(of), n/len(of)+1)[:n] }

func TestRecords(t *testing.T) {
	mem := make([]byte, 64*UnitBytes)
	j := mustOpen(t, mem)
	all := j.Free()
	for _, n := range []int{0, 1, held - 1, held, held + 1, 5*held + 7} {
		if _, ok := j.Put(text(n, "abc"), 0); !ok {
			t.Fatalf("no room for %d bytes", n)
		}
	}
	if want := all - (1 + 1 + 1 + 1 + 2 + 6); j.Free() != want {
		t.Fatalf("%d units are free, want %d", j.Free(), want)
	}
	a, _ := j.Put([]byte("a"), 0)
	b, _ := j.Put([]byte("b"), 0)
	j.Mark(b)
	j.Remove(a)
	j.Remove(Ref{})
	again := mustOpen(t, mem)
	if !slices.Equal(texts(again), texts(j)) || again.Free() != j.Free() || again.Damaged() != 0 {
		t.Fatalf("another process finds %d records and %d free units, want %d and %d",
			len(texts(again)), again.Free(), len(texts(j)), j.Free())
	}
	list := again.Records()
	if last := list[len(list)-1]; len(list) != 7 || string(last.Bytes) != "b" || !last.Marked ||
		last.Ref != b || !bytes.Equal(list[5].Bytes, text(5*held+7, "abc")) {
		t.Fatalf("%d records, the last one is %q", len(list), last.Bytes)
	}
	for _, r := range list {
		again.Remove(r.Ref)
	}
	if again.Free() != all || len(again.Records()) != 0 {
		t.Fatalf("%d of %d units are free", again.Free(), all)
	}
}

// TestFull: what has no room is not put, not even in part, and some room can be left to others.
func TestFull(t *testing.T) {
	j := mustOpen(t, make([]byte, 4*UnitBytes))
	if _, ok := j.Put(make([]byte, 3*held+1), 0); ok {
		t.Fatal("more than there is room for")
	}
	if _, ok := j.Put(make([]byte, RecordMax+1), 0); ok {
		t.Fatal("more than a record may have")
	}
	r, ok := j.Put(make([]byte, 2*held), 1)
	if _, more := j.Put(nil, 1); !ok || more || j.Free() != 1 {
		t.Fatalf("%v, %v, %d units are free", ok, more, j.Free())
	}
	if _, ok := j.Put(nil, 0); !ok || j.Free() != 0 {
		t.Fatal("the last unit cannot be used")
	}
	j.Remove(r)
	if j.Free() != 2 || len(j.Records()) != 1 {
		t.Fatalf("%d units are free", j.Free())
	}
}

func TestVersions(t *testing.T) {
	mem := make([]byte, 8*UnitBytes)
	mustOpen(t, mem).Put([]byte("a"), 0)
	if _, err := Open(mem[:7*UnitBytes]); errs.KindOf(err) != errs.Version {
		t.Fatalf("another length: %v", err)
	}
	mem[0]++
	if _, err := Open(mem); errs.KindOf(err) != errs.Version {
		t.Fatalf("another version: %v", err)
	}
	if _, err := Open(mem[:UnitBytes]); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("no room: %v", err)
	}
	j, err := Reset(mem)
	if err != nil || len(j.Records()) != 0 || j.Free() != 7 {
		t.Fatalf("%v, %d records", err, len(j.Records()))
	}
}

// TestKilledAnywhere: a process puts, marks and removes records, and is killed behind each of its
// stores. What is found is what was there before the operation, or behind it, and a next process
// can go on with it.
func TestKilledAnywhere(t *testing.T) {
	for seed := range uint64(20) {
		killAnywhere(t, seed)
	}
}

func killAnywhere(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	const size = 24 * UnitBytes
	m := &traced{mem: make([]byte, size)}
	j, err := open(m, size)
	if err != nil {
		t.Fatal(err)
	}
	image := make([]byte, size) // as a process leaves it that dies now
	applied := 0
	die := func(before, after []string) {
		for ; applied <= len(m.stores); applied++ {
			found := mustOpen(t, bytes.Clone(image))
			if got := texts(found); !slices.Equal(got, before) && !slices.Equal(got, after) ||
				found.Damaged() > 0 {
				t.Fatalf("seed %d, store %d: %d records, %d are damaged; there were %d and then %d", seed,
					applied, len(got), found.Damaged(), len(before), len(after))
			}
			used := 0
			for _, x := range found.Records() {
				used += Units(len(x.Bytes))
			}
			if found.Free() != found.units-1-used {
				t.Fatalf("seed %d, store %d: %d of %d units are free, and %d used", seed, applied,
					found.Free(), found.units, used)
			}
			if applied < len(m.stores) {
				copy(image[m.stores[applied].at:], m.stores[applied].b)
			} else {
				break
			}
		}
	}
	die(nil, nil)
	for range 40 {
		before := texts(j)
		list := j.Records()
		switch n := r.IntN(5); {
		case n < 3 || len(list) == 0:
			j.Put(text(r.IntN(3*held), string(rune('a'+r.IntN(26)))), r.IntN(4))
		case n == 3:
			j.Mark(list[r.IntN(len(list))].Ref)
		default:
			j.Remove(list[r.IntN(len(list))].Ref)
		}
		die(before, texts(j))
	}
}

// FuzzOpen: whatever is in the memory, it is opened, and what is found can be removed and put anew.
func FuzzOpen(f *testing.F) {
	good := make([]byte, 12*UnitBytes)
	j, _ := Open(good)
	j.Put(text(3*held, "x"), 0)
	r, _ := j.Put([]byte("y"), 0)
	j.Mark(r)
	f.Add(good, uint16(3), uint64(7))
	f.Add([]byte{}, uint16(0), uint64(0))
	f.Fuzz(func(t *testing.T, some []byte, at uint16, v uint64) {
		mem := make([]byte, 12*UnitBytes)
		copy(mem, good)
		copy(mem[16:], some[min(16, len(some)):]) // it is this version
		binary.NativeEndian.PutUint64(mem[16+int(at)%(len(mem)-24):], v)
		j, err := Open(mem)
		if err != nil {
			t.Fatal(err)
		}
		list := j.Records()
		for _, r := range list {
			j.Remove(r.Ref)
		}
		if j.Free() != 11 {
			t.Fatalf("%d units are free", j.Free())
		}
		for range 11 {
			if _, ok := j.Put(text(held, "z"), 0); !ok {
				t.Fatal("no room")
			}
		}
		if again := mustOpen(t, mem); again.Damaged() != 0 || len(again.Records()) != 11 {
			t.Fatalf("%d records, %d are damaged", len(again.Records()), again.Damaged())
		}
	})
}

func BenchmarkPutRemove(b *testing.B) {
	j := mustOpen(b, make([]byte, 1<<20))
	data := text(200, "a")
	b.ReportAllocs()
	for b.Loop() {
		r, _ := j.Put(data, 0)
		j.Remove(r)
	}
}
