package mount

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// TestToldIsKeptForAsLongAsItIsBelieved says what a recall finds: all that the kernel may believe,
// and nothing that it has long forgotten.
func TestToldIsKeptForAsLongAsItIsBelieved(t *testing.T) {
	k := told{attrs: time.Second, names: time.Second / 4}
	now := time.Unix(1000, 0)
	k.name(7, now)
	k.attr(&meta.Attr{Ino: 7}, true, now)
	k.attr(&meta.Attr{Ino: 8}, false, now)
	for i := range 10 { // others, meanwhile
		k.attr(&meta.Attr{Ino: meta.Ino(100 + i)}, true, now.Add(time.Duration(i)*100*time.Millisecond))
	}
	now = now.Add(time.Second + answerGrace) // answers take their time
	if b := k.take(7, now); b.attrs.IsZero() || !b.names.IsZero() || !b.behind.IsZero() {
		t.Fatalf("%+v", b)
	}
	if b := k.take(7, now); b != (belief{}) {
		t.Fatalf("taken twice: %+v", b)
	}
	if b := k.take(8, now); b.attrs.IsZero() || !b.behind.Equal(b.attrs) || !b.names.IsZero() {
		t.Fatalf("%+v", b)
	}
	k.attr(&meta.Attr{Ino: 9}, true, now)
	k.name(9, now.Add(time.Second))
	if b := k.take(9, now.Add(time.Second+2*answerGrace+1)); !b.attrs.IsZero() || b.names.IsZero() {
		t.Fatalf("of the attributes nothing is believed any more: %+v", b)
	}
	if !k.latest().Equal(now.Add(time.Second)) {
		t.Fatal(k.latest())
	}
}

// TestSharedDirectories: a directory whose names had to be forgotten is shared for a while, longer
// if that happens again; one of which the kernel knew nothing is not.
func TestSharedDirectories(t *testing.T) {
	k := told{attrs: time.Second, names: time.Second}
	now := time.Unix(1000, 0)
	k.take(7, now)
	if k.isShared(7, now) {
		t.Fatal("nobody used it")
	}
	k.name(7, now)
	k.take(7, now)
	now = now.Add(sharedFor - 1)
	if !k.isShared(7, now) {
		t.Fatal("it was recalled")
	}
	k.take(7, now)
	now = now.Add(sharedFor - 1)
	if !k.isShared(7, now) || k.isShared(7, now.Add(1)) {
		t.Fatal("not for as long as it should be after it was recalled again")
	}
	for i := range meta.Ino(2 * sharedMax) {
		k.name(10+i, now)
		k.take(10+i, now)
		if i == brakeCount-1 && k.isShared(1, now) || i == brakeCount && !k.isShared(1, now) {
			t.Fatalf("braked after %d directories: %v", i+1, k.isShared(1, now))
		}
	}
	if len(k.shared) > sharedMax {
		t.Fatalf("%d are remembered", len(k.shared))
	}
	if k.isShared(1, now.Add(brakeSpan)) {
		t.Fatal("the brake is not let go")
	}
}
