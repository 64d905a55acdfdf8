package state

import "testing"

// TestJournal: what was put is there for the next process, and a journal of another version is
// emptied.
func TestJournal(t *testing.T) {
	f, x := fresh(t)
	j, anew, err := x.Journal()
	if err != nil || anew || len(j.Records()) != 0 {
		t.Fatalf("%v, %v", anew, err)
	}
	if _, ok := j.Put([]byte("told later"), 0); !ok {
		t.Fatal("no room")
	}
	if _, err := x.Add(&Handle{Number: handlesMax, Ino: 1}); err != nil { // beside it
		t.Fatal(err)
	}
	y := again(t, f)
	j, anew, err = y.Journal()
	if err != nil || anew || len(j.Records()) != 1 || string(j.Records()[0].Bytes) != "told later" {
		t.Fatalf("%v, %v", anew, err)
	}
	y.mem[atJournal]++
	j, anew, err = again(t, f).Journal()
	if err != nil || !anew || len(j.Records()) != 0 {
		t.Fatalf("%v, %v", anew, err)
	}
}
