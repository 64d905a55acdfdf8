package state

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

func fresh(t testing.TB) (*os.File, *Table) {
	t.Helper()
	f, err := Create("mount x [1/2/3/4]")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, again(t, f)
}

func again(t testing.TB, f *os.File) *Table {
	t.Helper()
	x, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

func handles(x *Table) (list []Handle, slots []int) {
	x.Handles(func(slot int, h Handle) { list, slots = append(list, h), append(slots, slot) })
	return list, slots
}

func TestHeader(t *testing.T) {
	f, x := fresh(t)
	if x.Name() != "mount x [1/2/3/4]" || x.Secret() == ([secretBytes]byte{}) || x.Greeted() ||
		len(x.Greeting())+len(x.Answer()) != 0 || x.Sessions() != nil || x.Next() != 1 {
		t.Fatalf("%q %x %v", x.Name(), x.Secret(), x.Sessions())
	}
	if err := x.SetGreeting(make([]byte, 5000)); errs.KindOf(err) != errs.TooBig {
		t.Fatal(err)
	}
	for _, err := range []error{x.SetGreeting([]byte("hello")), x.SetAnswer([]byte("you"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	x.SetGreeted()
	x.SetBelieved(77)
	y := again(t, f)
	if string(y.Greeting()) != "hello" || string(y.Answer()) != "you" || !y.Greeted() ||
		y.Believed() != 77 || y.Secret() != x.Secret() {
		t.Fatal("what was noted is not there")
	}
	y.BeginSession(1)
	y.BeginSession(2)
	y.SetSession(3)
	y.BeginSession(4)
	if got := again(t, f).Sessions(); !slices.Equal(got, []uint64{1, 3, 4}) {
		t.Fatal(got)
	}
	for id := range uint64(20) {
		y.BeginSession(100 + id)
	}
	if got := y.Sessions(); len(got) != beforeMax+1 || got[beforeMax] != 119 || got[0] != 111 {
		t.Fatal(got)
	}
	y.EndBefore()
	if got := again(t, f).Sessions(); !slices.Equal(got, []uint64{119}) {
		t.Fatal(got)
	}
}

func TestHandles(t *testing.T) {
	f, x := fresh(t)
	var slots []int
	for i := range uint64(100) {
		slot, err := x.Add(&Handle{Number: i + 1, Ino: 1000 + i, Flags: uint32(i), Request: 2 * i,
			Bits: Direct})
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	for i := 0; i < 100; i += 2 {
		x.Remove(slots[i])
	}
	x.Own(slots[1], 7)
	x.Own(slots[1], 7)
	x.Own(slots[1], 8)
	x.Own(slots[1], 9) // one too many
	x.Disown(slots[1], 7)
	x.Bury(slots[3], 0o750, 5, 6)
	x.SetWritten(slots[5], true)
	x.SetWritten(slots[7], true)
	x.SetWritten(slots[7], false)
	y := again(t, f)
	list, _ := handles(y)
	if len(list) != 50 || y.Next() <= 100 {
		t.Fatalf("%d handles, next %d", len(list), y.Next())
	}
	for _, h := range list {
		i := h.Number - 1
		if h.Ino != 1000+i || h.Flags != uint32(i) || h.Request != 2*i || h.Bits&Direct == 0 {
			t.Fatalf("%+v", h)
		}
		switch i {
		case 1:
			if h.Bits != Direct|Locked || !slices.Equal(h.Owners, []uint64{8}) {
				t.Fatalf("%+v", h)
			}
		case 5, 7:
			if written := h.Bits&Written != 0; written != (i == 5) {
				t.Fatalf("%+v", h)
			}
		case 3:
			if h.Bits != Direct|Removed || h.Mode != 0o750 || h.UID != 5 || h.GID != 6 {
				t.Fatalf("%+v", h)
			}
		}
	}
	// Slots are used again, and nothing of their last use is left.
	for range 50 {
		slot, err := y.Add(&Handle{Number: y.Next(), Ino: 5})
		if err != nil || slot >= 100 {
			t.Fatal(slot, err)
		}
	}
	list, _ = handles(again(t, f))
	for _, h := range list {
		if h.Ino == 5 && (h.Bits != 0 || len(h.Owners) != 0 || h.Number <= 100) {
			t.Fatalf("%+v", h)
		}
	}
}

func TestMarks(t *testing.T) {
	f, x := fresh(t)
	for i := range uint64(marksMax) {
		x.Mark(i + 1)
		x.Mark(i + 1)
	}
	if list, all := x.Marked(); len(list) != marksMax || all {
		t.Fatal(len(list), all)
	}
	x.Mark(marksMax + 1)
	if _, all := again(t, f).Marked(); !all {
		t.Fatal("an inode without a mark was not noted")
	}
	x.Settled()
	for i := range uint64(marksMax) {
		if i%3 != 0 {
			x.Unmark(i + 1)
		}
	}
	y := again(t, f)
	list, all := y.Marked()
	if len(list) != marksMax/3+1 || all {
		t.Fatal(len(list), all)
	}
	for i := range uint64(marksMax) {
		y.Mark(1<<40 + i)
	}
	if list, all = again(t, f).Marked(); len(list) != marksMax || !all {
		t.Fatal(len(list), all)
	}
}

func TestAppends(t *testing.T) {
	f, x := fresh(t)
	for i := range int64(appendsMax + 10) {
		x.NoteAppend(Append{Request: uint64(i + 1), Ino: 9, Off: 100 * i, N: i})
	}
	x.NoteAppend(Append{Request: appendsMax, Ino: 9, Off: 5, N: 6})
	got := again(t, f).Appends()
	if a := got[appendsMax]; a.Off != 5 || a.N != 6 {
		t.Fatalf("%+v", a)
	}
	if _, old := got[1]; old || len(got) < appendsMax-1 {
		t.Fatal(len(got))
	}
}

// TestKilled: whenever a process dies that changes handles, what is left is readable, and every
// handle in it is whole.
func TestKilled(t *testing.T) {
	if os.Getenv("STATE_CHILD") != "" {
		x, err := Open(os.NewFile(3, "state"))
		if err != nil {
			t.Fatal(err)
		}
		churn(x)
	}
	f, _ := fresh(t)
	for round := range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=TestKilled$")
		cmd.Env = append(os.Environ(), "STATE_CHILD=1")
		cmd.ExtraFiles = []*os.File{f}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+round) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		x := again(t, f)
		list, slots := handles(x)
		for i, h := range list {
			if h.Ino != 3*h.Number || uint64(h.Flags) != h.Number%1000 || h.Request != 5*h.Number {
				t.Fatalf("round %d: %+v", round, h)
			}
			if h.Number >= x.Next() {
				t.Fatalf("round %d: %d would be given away again", round, h.Number)
			}
			if i%2 == 0 {
				x.Remove(slots[i])
			}
		}
		for request, a := range x.Appends() {
			if a.Off != int64(7*request) || a.Ino != 2*request {
				t.Fatalf("round %d: %+v", round, a)
			}
		}
	}
}

func churn(x *Table) {
	var slots []int
	for n := x.Next(); ; n++ {
		slot, err := x.Add(&Handle{Number: n, Ino: 3 * n, Flags: uint32(n % 1000), Request: 5 * n})
		if err != nil {
			panic(err)
		}
		if slots = append(slots, slot); len(slots) > 64 {
			x.Remove(slots[0])
			slots = slots[1:]
		}
		x.NoteAppend(Append{Request: n, Ino: 2 * n, Off: int64(7 * n), N: 1})
	}
}

// FuzzOpen: whatever is in the memory, reading it neither fails badly nor takes for ever.
func FuzzOpen(f *testing.F) {
	f.Add(uint64(8), []byte{1, 2, 3}, uint64(atHandles), []byte{9, 9})
	f.Add(uint64(atSlots), []byte{255, 255, 255, 255, 255}, uint64(atName), []byte{255, 255})
	f.Fuzz(func(t *testing.T, at uint64, b []byte, second uint64, c []byte) {
		file, x := fresh(t)
		for _, w := range []struct {
			at uint64
			b  []byte
		}{{at, b}, {second, c}} {
			copy(x.mem[w.at%totalSize:], w.b)
		}
		y, err := Open(file)
		if err != nil {
			return
		}
		defer y.Close()
		_, _ = y.Name(), y.Greeting()
		_, _ = y.Sessions(), y.Appends()
		list, slots := handles(y)
		for i := range list {
			y.Remove(slots[i])
		}
		marked, _ := y.Marked()
		for _, ino := range marked {
			y.Unmark(ino)
		}
		y.Mark(3)
		if _, err := y.Add(&Handle{Number: 1}); err != nil && errs.KindOf(err) != errs.TooManyOpen {
			t.Fatal(err)
		}
	})
}
