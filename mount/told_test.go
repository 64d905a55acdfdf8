package mount

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// TestToldIsKeptForAsLongAsItIsBelieved says what a recall finds: all that the kernel may believe,
// and nothing that it has long forgotten.
func TestToldIsKeptForAsLongAsItIsBelieved(t *testing.T) {
	k := told{keep: time.Second}
	now := time.Unix(1000, 0)
	k.name(7, "a", now)
	k.attr(8, now)
	for i := range 10 { // others, meanwhile
		k.attr(meta.Ino(100+i), now.Add(time.Duration(i)*100*time.Millisecond))
	}
	now = now.Add(time.Second)
	k.name(7, "b", now)
	b, some := k.take(7, now)
	if !some || fmt.Sprint(b.list) != "[a b]" || !b.names.Equal(now) || !b.attrs.IsZero() || b.many {
		t.Fatalf("%+v %v", b, some)
	}
	if b, some := k.take(7, now); some {
		t.Fatalf("taken twice: %+v", b)
	}
	if b, some := k.take(8, now); !some || b.attrs.IsZero() || !b.names.IsZero() {
		t.Fatalf("%+v %v", b, some)
	}
	k.attr(9, now)
	if b, some := k.take(9, now.Add(time.Second+1)); some {
		t.Fatalf("it is long forgotten: %+v", b)
	}
}

// TestLargeDirectoriesAreNotListed: names are kept up to a bound, beyond which the directory is
// known to be large.
func TestLargeDirectoriesAreNotListed(t *testing.T) {
	k := told{keep: time.Second}
	now := time.Unix(1000, 0)
	for i := range 3 * namesMax {
		k.name(7, fmt.Sprint(i), now)
	}
	if b, _ := k.take(7, now); !b.many || len(b.list) > namesMax {
		t.Fatalf("%d names, many %v", len(b.list), b.many)
	}
}

// TestSharedDirectories: a directory whose names had to be forgotten is shared for a while, longer
// if that happens again; one of which the kernel knew nothing is not.
func TestSharedDirectories(t *testing.T) {
	k := told{keep: time.Second}
	now := time.Unix(1000, 0)
	k.take(7, now)
	if k.isShared(7, now) {
		t.Fatal("nobody used it")
	}
	k.name(7, "a", now)
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
}
