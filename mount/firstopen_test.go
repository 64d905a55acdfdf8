package mount

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

func TestFirstOpen(t *testing.T) {
	f := new(firsts)
	for _, ino := range []meta.Ino{1, 2, 64, firstBits - 1, firstBits} {
		if !f.open(ino) || f.open(ino) {
			t.Errorf("inode %d is not opened for the first time, or twice", ino)
		}
	}
	if f.open(2 + firstBits) {
		t.Error("a number that shares its bit with another is taken for new")
	}
	f.before.Store(true)
	if f.open(3) {
		t.Error("what another process has opened is taken for new")
	}
}

// TestToldTheSame: what the kernel may believe counts, and only of the version that is opened.
func TestToldTheSame(t *testing.T) {
	k := told{attrs: time.Second, names: time.Second}
	now := time.Now()
	a := meta.Attr{Ino: 7, Size: 9, DataVersion: 3}
	if k.same(&a, now) {
		t.Error("nothing was told")
	}
	k.attr(&a, false, now)
	if !k.same(&a, now) {
		t.Error("it was told just that")
	}
	newer := a
	newer.DataVersion++
	if k.same(&newer, now) {
		t.Error("it was told of another version")
	}
	if k.same(&a, now.Add(2*time.Second)) {
		t.Error("it believes that no more")
	}
	k.take(7, now)
	if k.same(&a, now) {
		t.Error("it was told to forget that")
	}
}
