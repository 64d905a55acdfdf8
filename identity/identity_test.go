package identity

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
)

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless err has the kind and says the words.
func want(t testing.TB, err error, kind errs.Kind, words string) {
	t.Helper()
	if errs.KindOf(err) != kind || !strings.Contains(err.Error(), words) {
		t.Fatalf("%v, want %v with %q", err, kind, words)
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "h1", "web-1.example.org", "x_y",
		strings.Repeat("a", NameMax)} {
		fatal(t, CheckName(good))
	}
	for _, bad := range []string{"", ".", "..", "-a", "a-", "A", "a b", "a/b", "ä", "a\x00b", "a%2f",
		strings.Repeat("a", NameMax+1)} {
		if CheckName(bad) == nil {
			t.Errorf("%q is a name", bad)
		}
	}
}

func TestWhoSurvivesItsText(t *testing.T) {
	w := Who{NewClusterID(), Client, "ann"}
	got, err := ParseWho(w.String())
	if err != nil || got != w {
		t.Fatalf("%v: %v, %v", w, got, err)
	}
	for _, bad := range []string{"", "sluice://", w.String() + "/x", w.String() + "?x",
		strings.ToUpper(w.String()), strings.Replace(w.String(), "client", "root", 1),
		strings.Replace(w.String(), "sluice", "https", 1), w.String()[:40]} {
		if _, err := ParseWho(bad); err == nil {
			t.Errorf("%q names somebody", bad)
		}
	}
}

func TestRights(t *testing.T) {
	good := Rights{Path: "/proj", Volumes: []string{"a", "b"}}
	fatal(t, good.Check())
	if !good.Volume("a") || good.Volume("c") || !(&Rights{Volumes: []string{AllVolumes}}).Volume("c") {
		t.Error("volumes are not those that are named")
	}
	for _, bad := range []Rights{{}, {Path: "proj"}, {Path: "/a/"}, {Path: "/a/../b"}, {Path: "/\x00"},
		{Path: "/" + strings.Repeat("a", PathMax)}, {Path: "/", Squash: 3},
		{Path: "/", Volumes: []string{""}}, {Path: "/", Volumes: []string{"a/b"}},
		{Path: "/", Volumes: make([]string, VolumesMax+1)}} {
		if bad.Check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestWhoIsBelieved(t *testing.T) {
	for _, c := range []struct {
		squash           Squash
		uid, gid         uint32
		wantUID, wantGID uint32
		groups, want     []uint32
	}{
		{SquashRoot, 0, 0, Nobody, Nobody, []uint32{0, 5}, nil},
		{SquashRoot, 7, 8, 7, 8, []uint32{5}, []uint32{5}},
		{SquashRoot, 7, 0, 7, Nobody, []uint32{0, 5}, []uint32{5}},
		{SquashAll, 7, 8, Nobody, Nobody, []uint32{5}, nil},
		{SquashNone, 0, 0, 0, 0, []uint32{0}, []uint32{0}},
	} {
		uid, gid, groups := (&Rights{Squash: c.squash}).Believe(c.uid, c.gid, c.groups)
		if uid != c.wantUID || gid != c.wantGID || !slices.Equal(groups, c.want) {
			t.Errorf("%v: %d %d %v of %d %d %v", c.squash, uid, gid, groups, c.uid, c.gid, c.groups)
		}
	}
}

func TestRolesSurviveTheirText(t *testing.T) {
	for r := Roles(1); r <= RolesAll; r++ {
		if got, err := ParseRoles(r.String()); err != nil || got != r {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
	if _, err := ParseRoles("iod,boss"); err == nil {
		t.Error("a boss")
	}
}

// TestTokens: its text survives, and a letter that is wrong, missing or too much is told.
func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tok := NewToken(Host, Hash{1, 31: 2})
		text := tok.String()
		for _, form := range []string{text, strings.ToUpper(text), " " + text + "\n"} {
			got, err := ParseToken(form)
			if err != nil || got != tok {
				t.Fatalf("%q: %v", form, err)
			}
		}
		at := rapid.IntRange(len(tokenPrefix), len(text)-1).Draw(t, "at")
		other := rapid.SampledFrom([]byte("0123456789abcdefghjkmnpqrstvwxyz!")).Draw(t, "letter")
		wrong := text[:at] + string(other) + text[at+1:]
		if _, err := ParseToken(wrong); err == nil && wrong != text {
			t.Fatalf("%q is taken for %q", wrong, text)
		}
		for _, bad := range []string{text[:at], text + "0", text[at:], ""} {
			if _, err := ParseToken(bad); !errors.Is(err, errs.Invalid) {
				t.Fatalf("%q: %v", bad, err)
			}
		}
	})
	if _, err := ParseToken("sluice2.abc"); !strings.Contains(err.Error(), "version") {
		t.Error(err)
	}
	a, b := NewToken(Client, Hash{}), NewToken(Client, Hash{})
	if a.SecretHash() == b.SecretHash() || a.ID == b.ID {
		t.Error("two tokens are the same")
	}
}

func FuzzToken(f *testing.F) {
	tok := NewToken(Client, Hash{9})
	f.Add(tok.String())
	f.Add("sluice1.")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ParseToken(text); err == nil {
			if again, err := ParseToken(got.String()); err != nil || again != got {
				t.Fatalf("%q reads as something else the second time", text)
			}
		}
	})
}

func FuzzWho(f *testing.F) {
	f.Add(Who{NewClusterID(), Host, "h1"}.String())
	f.Fuzz(func(t *testing.T, uri string) {
		if w, err := ParseWho(uri); err == nil && w.String() != uri {
			t.Fatalf("%q is taken for %q", uri, w)
		}
	})
}

func FuzzRequest(f *testing.F) {
	der, err := NewRequest(NewKey())
	fatal(f, err)
	f.Add(der)
	f.Fuzz(func(t *testing.T, der []byte) {
		if r, err := ParseRequest(der); err == nil && r.KeyHash() == (Hash{}) {
			t.Fatal("a key without a sum")
		}
	})
}
