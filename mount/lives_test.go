package mount

import (
	"testing"

	"github.com/sluice-storage/sluice/mount/state"
)

// TestWrittenIsNoted: that something is not synced stays noted until it is known of all that was
// written; the next process finds it, of handles that are open.
func TestWrittenIsNoted(t *testing.T) {
	open, err := newCluster(t, 1).client().Create(t.Context(), "/f")
	must(t, err)
	f := &file{File: open}
	k, x := newTestKept(t)
	noted := func() (n int) {
		x.Handles(func(_ int, h state.Handle) {
			if h.Bits&state.Unsynced != 0 {
				n++
			}
		})
		return n
	}
	k.noteUnsynced(f, 5) // it is not given to the kernel
	if noted() != 0 || len(k.writtenTo(0)) != 0 {
		t.Fatal("a handle that is none")
	}
	f.unsynced.Store(0)
	must(t, k.add(state.Handle{Number: 5, Ino: uint64(f.Ino())}))
	k.noteUnsynced(f, 5)
	before := k.writtenTo(f.Ino())
	k.noteUnsynced(f, 5)
	if k.synced(before); noted() != 1 {
		t.Fatal("what was written since is taken for synced")
	}
	if k.synced(k.writtenTo(f.Ino() + 1)); noted() != 1 || len(k.writtenTo(0)) != 1 {
		t.Fatal("another file")
	}
	if k.synced(k.writtenTo(f.Ino())); noted() != 0 || len(k.writtenTo(0)) != 0 {
		t.Fatal("it is synced")
	}
	k.noteUnsynced(f, 5)
	k.remove(5)
	if k.synced(k.writtenTo(0)); noted() != 0 || f.unsynced.Load() != 0 {
		t.Fatal("it is closed")
	}
	var none *kept
	none.synced(none.writtenTo(0))
}
