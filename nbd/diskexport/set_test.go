package diskexport

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
)

// TestSetConformance: the suite over sets, in every mode. It sees the first bytes of a set, whose
// size is in whole units of all members.
func TestSetConformance(t *testing.T) {
	eachMode(t, func(t *testing.T, m Mode) {
		h := newHost(t)
		exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
			s := Spec{Mode: m, Init: 8 << 10}
			for range 3 {
				s.Paths = append(s.Paths, quick(tb, size/3+dataFrom+64<<10))
			}
			return &cut{open(tb, h, s), size}
		})
	})
}

// TestGeometry holds place, where and span against each other, byte by byte.
func TestGeometry(t *testing.T) {
	for _, g := range []geometry{{1, 50000, 0, 50000}, {1, 50000, 4096, 50000},
		{3, 4096, 1 << 20, 12 * 4096}, {2, 8192, 0, 6 * 8192}} {
		type place struct {
			member int
			at     int64
		}
		seen := map[place]bool{}
		for off := range g.size {
			member, at, run := g.place(off)
			if run < 1 || g.where(member, at) != off || seen[place{member, at}] {
				t.Fatalf("%+v: byte %d is at %d of member %d, run %d", g, off, at, member, run)
			}
			seen[place{member, at}] = true
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			off := rng.Int64N(g.size)
			n := 1 + rng.Int64N(g.size-off)
			want := make([]span, g.members)
			for at := off; at < off+n; at++ {
				m, where, _ := g.place(at)
				if want[m].to == 0 {
					want[m].from = where
				}
				want[m].from, want[m].to = min(want[m].from, where), max(want[m].to, where+1)
			}
			for m := range g.members {
				got, ok := g.span(m, off, n)
				if ok != (want[m].to > 0) || ok && got != want[m] {
					t.Fatalf("%+v: member %d holds %v of %d+%d, want %v", g, m, got, off, n, want[m])
				}
			}
		}
	}
}

// newSet makes the members of a set.
func newSet(tb testing.TB, count int, unit int64) Spec {
	s := Spec{Init: unit}
	for range count {
		s.Paths = append(s.Paths, fresh(tb, 2<<20))
	}
	return s
}

func TestSetIsMadeOnce(t *testing.T) {
	h := newHost(t)
	s := newSet(t, 3, 64<<10)
	known := s
	known.Init = 0
	if _, err := h.Open(t.Context(), known); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("a set that nobody made: %v", err)
	}
	e := open(t, h, s)
	if e.Size() != 3<<20 || !strings.Contains(e.Description(), "3 members") {
		t.Errorf("%d bytes, %s", e.Size(), e.Description())
	}
	want := []byte("still here")
	if err := e.WriteAt(t.Context(), want, 100_000, true); err != nil {
		t.Fatal(err)
	}
	e.Close()
	s.Init = 4096 // another unit: the set keeps its own
	for _, again := range []Spec{s, known} {
		e := open(t, h, again)
		got := make([]byte, len(want))
		if err := e.ReadAt(t.Context(), got, 100_000); err != nil || !bytes.Equal(got, want) ||
			e.d.unit != 64<<10 {
			t.Errorf("%q, %v, unit %d", got, err, e.d.unit)
		}
		e.Close()
	}
}

// TestWrongMembers: another order, a member of another set, one twice, one too few, a damaged or
// shrunk one, one that holds something else; each is refused, and says why.
func TestWrongMembers(t *testing.T) {
	h := newHost(t)
	s, other := newSet(t, 3, 64<<10), newSet(t, 3, 64<<10)
	open(t, h, s).Close()
	open(t, h, other).Close()
	p := s.Paths
	swapped := []string{p[1], p[0], p[2]}
	for _, q := range []struct {
		paths []string
		say   string
	}{
		{swapped, "another order: members=" + strings.Join(p, ":")},
		{[]string{p[0], p[1], other.Paths[2]}, "another set"},
		{[]string{p[0], p[1], p[1]}, "process"}, // it is locked already
		{p[:2], "3 members, 2 are given"},
		{[]string{p[0], p[1], fresh(t, 2<<20)}, "no superblock"},
		{[]string{p[0], p[1], fresh(t, 100)}, "not a member"},
	} {
		_, err := h.Open(t.Context(), Spec{Paths: q.paths})
		if err == nil || !strings.Contains(err.Error(), q.say) {
			t.Errorf("%v, want: %s", err, q.say)
		}
	}
	mixed := Spec{Paths: []string{p[0], fresh(t, 2<<20)}, Init: 4096}
	if _, err := h.Open(t.Context(), mixed); errs.KindOf(err) != errs.Exists {
		t.Errorf("a member that holds something: %v", err)
	}
	if err := os.Truncate(p[2], 1<<20+100); err != nil {
		t.Fatal(err)
	}
	_, err := h.Open(t.Context(), Spec{Paths: p})
	if err == nil || !strings.Contains(err.Error(), "shrunk") {
		t.Errorf("a shrunk member: %v", err)
	}
	if err := os.WriteFile(p[2], []byte(superMagic+strings.Repeat("x", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = h.Open(t.Context(), Spec{Paths: p})
	if errs.KindOf(err) != errs.Corrupt || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged member: %v", err)
	}
}

func TestSpecs(t *testing.T) {
	h := newHost(t)
	path := fresh(t, 4096)
	for _, s := range []Spec{
		{}, {Paths: []string{path}, Unit: 4096}, {Paths: []string{path, path}, Unit: 1000},
		{Paths: []string{path, path}, Unit: 4096, Init: 4096},
		{Paths: []string{path, path}, Init: 4096, ReadOnly: true},
		{Paths: []string{path}, Mode: modesEnd}, {Paths: slices.Repeat([]string{path}, 65)},
	} {
		if _, err := h.Open(t.Context(), s); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v, want Invalid", s, err)
		}
	}
}

// FuzzSuper: whatever a member begins with, it is decoded to what can be, or refused.
func FuzzSuper(f *testing.F) {
	good := super{count: 3, index: 1, unit: 64 << 10, bytes: 1 << 30, set: [16]byte{1, 2, 3}}
	f.Add(good.encode())
	f.Add([]byte(superMagic))
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := decodeSuper(p)
		if err != nil {
			if s != (super{}) {
				t.Errorf("%+v beside %v", s, err)
			}
			return
		}
		if s.count < 2 || s.index >= s.count || !unitFits(s.unit) || s.bytes%s.unit != 0 {
			t.Errorf("%+v", s)
		}
		if again, err := decodeSuper(s.encode()); err != nil || again != s {
			t.Errorf("%+v comes back as %+v, %v", s, again, err)
		}
	})
}
