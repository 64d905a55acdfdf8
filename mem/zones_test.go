package mem

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kib = 1 << 10

func newZones(t testing.TB, counts [Classes]int) *Zones {
	t.Helper()
	a := openArena(t, ArenaOptions{Bytes: ZonesBytes(counts), Huge: No, Populate: No, Lock: No})
	z, err := NewZones(a, ZonesOptions{Counts: counts})
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func newUser(t testing.TB, z *Zones, name string, weight int) *User {
	t.Helper()
	u, err := z.NewUser(UserOptions{Name: name, Weight: weight})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func lengths(bufs []*Buf) []int {
	var n []int
	for _, b := range bufs {
		n = append(n, b.Len()/kib)
	}
	return n
}

func returnAll(bufs []*Buf) {
	for _, b := range bufs {
		b.Return()
	}
}

func TestFallUpElseChop(t *testing.T) {
	for _, tc := range []struct {
		name   string
		counts [Classes]int
		want   int
		got    []int // KiB; nil: it must wait
	}{
		{"its own class", [Classes]int{1, 1, 1, 1, 1, 1}, 65 * kib, []int{128}},
		{"exactly a class", [Classes]int{1, 1, 1, 1, 1, 1}, 128 * kib, []int{128}},
		{"one byte", [Classes]int{1, 1, 1, 1, 1, 1}, 1, []int{64}},
		{"falls up by one", [Classes]int{9, 0, 1, 1, 0, 0}, 65 * kib, []int{256}},
		{"falls up to the top", [Classes]int{0, 0, 0, 0, 0, 1}, 1, []int{2048}},
		{"chops, big ones first", [Classes]int{3, 3, 1, 0, 0, 0}, 512 * kib, []int{256, 128, 128}},
		{"chops no more than needed", [Classes]int{9, 1, 0, 0, 0, 0}, 200 * kib, []int{128, 64, 64}},
		{"falls up rather than chop", [Classes]int{9, 0, 0, 0, 0, 1}, 128 * kib, []int{2048}},
		{"more than a unit", [Classes]int{1, 0, 0, 0, 0, 2}, 4<<20 + 1, []int{2048, 2048, 64}},
		{"not enough", [Classes]int{1, 1, 0, 0, 0, 0}, 256 * kib, nil},
	} {
		z := newZones(t, tc.counts)
		u := newUser(t, z, "one", 0)
		bufs, ok := u.TryTake(tc.want, nil)
		if ok != (tc.got != nil) || !slices.Equal(lengths(bufs), tc.got) {
			t.Errorf("%s: %d bytes got %v, want %v", tc.name, tc.want, lengths(bufs), tc.got)
		}
		returnAll(bufs)
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSpreadFitsIntoItsBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 1<<32).Draw(rt, "bytes")
		used := ZonesBytes(Spread(n))
		if used > n || n-used >= ClassMin {
			rt.Fatalf("%d of %d bytes are used", used, n)
		}
	})
}

func TestZonesOfAnArena(t *testing.T) {
	a := openArena(t, ArenaOptions{Bytes: 32 << 20, Huge: No, Populate: No, Lock: No})
	z, err := NewZones(a, ZonesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range z.Stats().Class {
		if s.Count == 0 || s.BufBytes != ClassBytes(k) {
			t.Errorf("class %d: %+v", k, s)
		}
	}
	_, err = NewZones(a, ZonesOptions{Counts: [Classes]int{0, 0, 9}})
	if !errors.Is(err, errs.NoMemory) {
		t.Errorf("twice in one arena: %v", err)
	}
	if _, err := NewZones(a, ZonesOptions{}); !errors.Is(err, errs.Invalid) {
		t.Errorf("no buffer at all: %v", err)
	}
	if _, err := NewZones(a, ZonesOptions{Counts: [Classes]int{-1}}); !errors.Is(err, errs.Invalid) {
		t.Errorf("less than none: %v", err)
	}
}

func TestTakeRefuses(t *testing.T) {
	z := newZones(t, [Classes]int{2, 1, 0, 0, 0, 0})
	u := newUser(t, z, "one", 0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	for _, n := range []int{0, -1, 257 * kib, 1 << 60} {
		if _, err := u.Take(ctx, n, nil); !errors.Is(err, errs.Invalid) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := u.TakeList(ctx, []int{128 * kib, 128 * kib, 1}, nil); !errors.Is(err, errs.Invalid) {
		t.Errorf("a list that can never be: %v", err)
	}
	bufs, err := u.TakeList(ctx, []int{64 * kib, 128 * kib}, nil)
	if err != nil || !slices.Equal(lengths(bufs), []int{64, 128}) {
		t.Fatalf("%v, %v", lengths(bufs), err)
	}
	if _, err := u.Take(ctx, 128*kib, nil); !errors.Is(err, errs.TimedOut) {
		t.Errorf("nothing is free: %v", err)
	}
	if s := z.Stats(); s.Waiting != 0 || s.Waits != 1 || s.Class[0].InUse != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := z.NewUser(UserOptions{Weight: -1}); !errors.Is(err, errs.Invalid) {
		t.Errorf("weight -1: %v", err)
	}
	u.Close()
	u.Close()
	if _, err := u.Take(ctx, 1, nil); !errors.Is(err, errs.Closed) {
		t.Errorf("after Close: %v", err)
	}
	returnAll(bufs)
}

// ask queues a request without a goroutine.
func (u *User) ask(sizes ...int) *request {
	z := u.zones
	z.mu.Lock()
	defer z.mu.Unlock()
	r := z.enqueueLocked(u, sizes, nil)
	z.dispatchLocked()
	return r
}

func (r *request) granted() bool { return !r.link.In() }

// TestPoorComeFirst: who holds its share waits for those who do not, in whatever order they came.
func TestPoorComeFirst(t *testing.T) {
	z := newZones(t, [Classes]int{4, 0, 0, 0, 0, 0})
	rich, poor := newUser(t, z, "rich", 1), newUser(t, z, "poor", 1)
	bufs, _ := rich.TryTake(256*kib, nil)
	more := rich.ask(64 * kib)
	first, second, third := poor.ask(64*kib), poor.ask(64*kib), poor.ask(64*kib)
	steps := []struct {
		what    string
		request *request
	}{
		{"the poor one's first", first}, {"its second", second},
		{"now both hold their share, and the rich one's is older", more},
		{"the last", third},
	}
	for i, s := range steps {
		bufs[i].Return()
		for j, other := range steps {
			if other.request.granted() != (j <= i) {
				t.Fatalf("return %d, %s: request %d granted: %v", i, s.what, j, !(j <= i))
			}
		}
	}
	if s := poor.Stats(); s.HeldBytes != 192*kib || s.ShareBytes != 128*kib {
		t.Fatalf("%+v", s)
	}
	for _, s := range steps {
		returnAll(handOutAll(s.request.dst, 0))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLargeRequestIsNotStarved: small requests behind a large one wait until it fits.
func TestLargeRequestIsNotStarved(t *testing.T) {
	z := newZones(t, [Classes]int{4, 0, 0, 0, 0, 0})
	a, b := newUser(t, z, "a", 1), newUser(t, z, "b", 1)
	held, _ := a.TryTake(256*kib, nil)
	large := b.ask(64*kib, 128*kib)
	small := b.ask(1)
	held[0].Return()
	held[1].Return()
	if _, ok := a.TryTake(1, nil); ok || large.granted() || small.granted() {
		t.Fatal("somebody overtook the large request")
	}
	held[2].Return()
	if !large.granted() || small.granted() {
		t.Fatal("the large request fits now, and uses all")
	}
	held[3].Return()
	if !small.granted() {
		t.Fatal("the small request fits now")
	}
	returnAll(handOutAll(large.dst, 0))
	returnAll(handOutAll(small.dst, 0))
}

func TestWeightsDivideTheMemory(t *testing.T) {
	z := newZones(t, [Classes]int{8, 0, 0, 0, 0, 0})
	one, three := newUser(t, z, "one", 1), newUser(t, z, "three", 3)
	if a, b := one.Stats().ShareBytes, three.Stats().ShareBytes; a != 128*kib || b != 384*kib {
		t.Fatalf("%d and %d", a, b)
	}
	three.Close()
	giant := newUser(t, z, "giant", 1<<20)
	if a := one.Stats().ShareBytes; a < 1 {
		t.Fatalf("beside a giant: %d", a)
	}
	giant.Close()
	if a := one.Stats().ShareBytes; a != 512*kib {
		t.Fatalf("alone: %d", a)
	}
}

func TestCloseWakesThoseWhoWait(t *testing.T) {
	z := newZones(t, [Classes]int{1, 0, 0, 0, 0, 0})
	u, gone := newUser(t, z, "u", 1), newUser(t, z, "gone", 1)
	held, _ := u.TryTake(1, nil)
	errc := make(chan error)
	for _, who := range []*User{gone, u} {
		go func() {
			_, err := who.Take(context.Background(), 1, nil)
			errc <- err
		}()
	}
	for z.Stats().Waiting != 2 {
		time.Sleep(time.Millisecond)
	}
	gone.Close()
	if err := <-errc; !errors.Is(err, errs.Closed) {
		t.Fatal(err)
	}
	if invariant.Enabled {
		leak := panicText(func() { _ = z.Close() })
		if !strings.Contains(leak, "zones_test.go") {
			t.Fatalf("the leak names no place: %q", leak)
		}
	} else if err := z.Close(); !errors.Is(err, errs.Busy) {
		t.Fatalf("Close with a buffer out: %v", err)
	}
	if err := <-errc; !errors.Is(err, errs.Closed) {
		t.Fatal(err)
	}
	returnAll(held)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := z.NewUser(UserOptions{}); !errors.Is(err, errs.Closed) {
		t.Fatal(err)
	}
}

func panicText(fn func()) (text string) {
	defer func() { text, _ = recover().(string) }()
	fn()
	return ""
}

func TestMisuseNamesThePlace(t *testing.T) {
	z := newZones(t, [Classes]int{1, 0, 0, 0, 0, 0})
	u := newUser(t, z, "u", 1)
	bufs, _ := u.TryTake(1, nil)
	b := bufs[0]
	stale := b.Bytes()
	b.Return()
	said := panicText(b.Return)
	b.refs.Store(0) // the program would have ended
	if said == "" || invariant.Enabled && !strings.Contains(said, "zones_test.go") {
		t.Fatalf("returned twice: %q", said)
	}
	if !invariant.Enabled {
		return
	}
	stale[100] = 1
	said = panicText(func() { u.TryTake(1, nil) })
	if !strings.Contains(said, "byte 100") || !strings.Contains(said, "zones_test.go") {
		t.Fatalf("written after its return: %q", said)
	}
	other := newZones(t, [Classes]int{1, 0, 0, 0, 0, 0})
	bufs, _ = newUser(t, other, "u", 1).TryTake(1, nil)
	foreign := &Buf{home: bufs[0].home, mem: bufs[0].mem}
	foreign.refs.Store(1)
	if said = panicText(foreign.Return); !strings.Contains(said, "does not live") {
		t.Fatalf("a copy was returned: %q", said)
	}
	bufs[0].Return()
}
