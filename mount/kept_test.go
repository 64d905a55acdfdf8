package mount

import (
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/mount/state"
)

func newTestKept(t *testing.T) (*kept, *state.Table) {
	t.Helper()
	f, err := state.Create("test")
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	x, err := state.Open(f)
	must(t, err)
	t.Cleanup(x.Close)
	return newKept(x), x
}

// TestRequestNames: a request that is sent again has the names that it had, of each use; no other
// request has them.
func TestRequestNames(t *testing.T) {
	k, _ := newTestKept(t)
	seen := map[[16]byte]bool{}
	for unique := uint64(2); unique < 200; unique += 2 {
		first := &request{kept: k, unique: unique}
		again := &request{kept: k, unique: unique | resentBit}
		if first.Repeated() || !again.Repeated() {
			t.Fatal("what is sent again is not known")
		}
		for use := client.UseMake; use <= client.UseAppend; use++ {
			for range 2 {
				a, b := first.RequestID(use), again.RequestID(use)
				if a != b || seen[a] || a == ([16]byte{}) {
					t.Fatalf("request %d, use %d: %x and %x", unique, use, a, b)
				}
				seen[a] = true
			}
		}
	}
}

// TestMarksOfWrites: a mark stays while data is unsaved, and goes only if nothing was written since
// it was looked at.
func TestMarksOfWrites(t *testing.T) {
	k, x := newTestKept(t)
	const ino = meta.Ino(7)
	marked := func(want int) {
		t.Helper()
		if list, all := x.Marked(); len(list) != want || all {
			t.Fatalf("%v are marked, want %d", list, want)
		}
	}
	k.wrote(ino)
	k.settle(ino, func(meta.Ino) bool { return true })
	marked(1)
	k.settle(ino, func(meta.Ino) bool { k.wrote(ino); return false })
	marked(1)
	k.settle(ino, func(meta.Ino) bool { return false })
	marked(0)
	k.settle(ino, func(meta.Ino) bool { t.Error("of what is not marked nobody asks"); return false })
	k.wrote(ino)
	marked(1)
}

// TestOpenedBefore: an opening that is sent again gets what it has opened; a first one never does.
func TestOpenedBefore(t *testing.T) {
	k, x := newTestKept(t)
	must(t, k.add(state.Handle{Number: 5, Ino: 9, Request: 40}))
	if _, ok := k.before(40 | resentBit); ok {
		t.Fatal("what this process opened was not answered by another one")
	}
	x.Handles(func(slot int, h state.Handle) { k.restored(slot, &h) })
	if number, ok := k.before(40 | resentBit); !ok || number != 5 {
		t.Fatal(number, ok)
	}
	for _, unique := range []uint64{40, 42 | resentBit} {
		if number, ok := k.before(unique); ok {
			t.Fatalf("%x has opened %d", unique, number)
		}
	}
	k.remove(5)
	x.Handles(func(_ int, h state.Handle) { t.Errorf("left: %+v", h) })
	var none *kept // a mount without a keeper
	must(t, none.add(state.Handle{}))
	none.remove(1)
	none.wrote(1)
	none.end()
	if _, ok := none.before(resentBit); ok || !none.believes(time.Second) {
		t.Fatal("without a keeper nothing is known, and everything is believed")
	}
}

// TestBelieves: what is noted is never shorter than what the kernel is told.
func TestBelieves(t *testing.T) {
	k, x := newTestKept(t)
	for range 1000 {
		before := monotonic()
		if !k.believes(10*time.Millisecond) || x.Believed() < before+int64(10*time.Millisecond) {
			t.Fatal("the kernel believes longer than is noted")
		}
	}
	must(t, AwaitDisbelief(t.Context(), x))
	if x.Believed() > monotonic() {
		t.Fatal("it was not waited for")
	}
	k.handing.Store(true)
	if k.believes(time.Second) || x.Believed() > monotonic() {
		t.Fatal("it is told something while the mount is handed over")
	}
	x.SetBelieved(monotonic() + int64(2*believedMost))
	if err := AwaitDisbelief(t.Context(), x); errs.KindOf(err) != errs.Corrupt {
		t.Fatal(err)
	}
}

// TestGate: who is inside is waited for, who comes later waits until it opens again.
func TestGate(t *testing.T) {
	var g gate
	g.enter()
	vacant := g.close()
	entered := make(chan struct{})
	go func() {
		g.enter()
		close(entered)
	}()
	select {
	case <-vacant:
		t.Fatal("somebody is inside")
	case <-entered:
		t.Fatal("it is shut")
	case <-time.After(20 * time.Millisecond):
	}
	g.leave()
	<-vacant
	g.open()
	<-entered
	g.leave()
	<-g.close()
	g.open()
}

// TestGreeting: whether a kernel repeats requests is read out of its first one, whatever its
// length.
func TestGreeting(t *testing.T) {
	b := make([]byte, 104)
	if canRepeat(b) || canRepeat(nil) || canRepeat(b[:10]) {
		t.Fatal("a kernel that says nothing repeats requests")
	}
	b[40+16] = 1 << (39 - 32) // of the upper flags
	if !canRepeat(b) || !canRepeat(append(b, make([]byte, 100)...)) {
		t.Fatal("a kernel that says so does not")
	}
	if fuse.CAP_HAS_RESEND != 1<<39 {
		t.Fatal("the flag has moved")
	}
}

// TestJournalRoom: the keeper's memory has room for all names that a client may not have told.
func TestJournalRoom(t *testing.T) {
	if state.JournalBytes < client.JournalBytes {
		t.Errorf("%d bytes, and the client needs %d", state.JournalBytes, client.JournalBytes)
	}
}
