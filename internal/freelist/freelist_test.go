package freelist

import "testing"

func TestLastOneFirst(t *testing.T) {
	var l List[int]
	a, b := l.Get(), l.Get()
	if a == b || *a != 0 {
		t.Fatal("one object was given to two")
	}
	*a, *b = 1, 2
	l.Put(a)
	l.Put(b)
	if l.Get() != b || l.Get() != a || *l.Get() != 0 {
		t.Fatal("what was put was not given, or was given twice")
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var l List[[64]byte]
	l.Put(l.Get())
	if n := testing.AllocsPerRun(100, func() { l.Put(l.Get()) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
