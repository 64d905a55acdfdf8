package main

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, yes, no string // words
	}{
		{"*.log", "a.log .log x/y.log", "a.logs log"},
		{"a?c", "abc a/c", "ac abbc"},
		{"[a-c]1", "a1 b1", "d1 1"},
		{"[!a-c]1", "d1 ^1", "a1"},
		{"[^a]", "b", "a"},
		{"[]x]", "] x", "y"},
		{`\*x`, "*x", "ax"},
		{"[ab", "[ab", "a b"},
		{"a.b+", "a.b+", "axb+ a.bb"},
		{"[[]", "[", "]"},
		{"ä*", "äb", "ab"},
	} {
		g, err := parseGlob(c.glob, false)
		if err != nil {
			t.Errorf("%s: %v", c.glob, err)
			continue
		}
		for _, word := range strings.Fields(c.yes) {
			if !g.fits(word) {
				t.Errorf("%s does not match %s", c.glob, word)
			}
		}
		for _, word := range strings.Fields(c.no) {
			if g.fits(word) {
				t.Errorf("%s matches %s", c.glob, word)
			}
		}
	}
	if g, err := parseGlob("", false); g != nil || err != nil {
		t.Errorf("no pattern: %v, %v", g, err)
	}
	if _, err := parseGlob("[z-a]", false); err == nil {
		t.Error("a range from z to a")
	}
	if g, err := parseGlob("*.TXT", true); err != nil || !g.fits("a.txt") {
		t.Errorf("%v", err)
	}
}

// TestAnyGlobIsReadOrRefused, and its own text without special characters matches itself.
func TestAnyGlobIsReadOrRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		g, err := parseGlob(text, false)
		if err == nil && g != nil && !strings.ContainsAny(text, `*?[\`) && !g.fits(text) &&
			!strings.ContainsRune(text, '�') {
			t.Fatalf("%q does not match itself", text)
		}
	})
}

func TestHumanSizes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1.0K", 1025: "1.1K", 10239: "10K", 10240: "10K",
		10241: "11K", 1 << 20: "1.0M", 1<<20 - 1: "1.0M", 999 << 10: "999K", 1023<<10 + 1: "1.0M",
		5 << 30: "5.0G", 1 << 50: "1.0P", math.MaxInt64: "8.0E",
	} {
		if got := human(n); got != want {
			t.Errorf("human(%d) = %s, want %s", n, got, want)
		}
	}
}

// TestModesAreThoseOfChmod applies modes to files, and lets chmod(1) do the same.
func TestModesAreThoseOfChmod(t *testing.T) {
	chmod, err := exec.LookPath("chmod")
	if err != nil {
		t.Skip("needs chmod")
	}
	dir := t.TempDir()
	clause := rapid.StringMatching(`[ugoa]{0,2}([+=-](u|g|o|[rwxXst]{0,4})){1,2}`)
	clauses := rapid.Map(rapid.SliceOfN(clause, 1, 3), func(s []string) string {
		return strings.Join(s, ",")
	})
	text := rapid.OneOf(clauses, rapid.StringMatching(`0?[0-7]{3,4}`))
	rounds := 0
	rapid.Check(t, func(t *rapid.T) {
		word, begin := text.Draw(t, "mode"), goMode(uint32(rapid.IntRange(0, 0o7777).Draw(t, "begin")))
		isDir := rapid.Bool().Draw(t, "directory")
		rounds++
		name := filepath.Join(dir, fmt.Sprint(rounds))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if isDir {
			_ = os.Remove(name)
			if err := os.Mkdir(name, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(name, begin); err != nil {
			t.Fatal(err)
		}
		m, err := parseModeChange(word)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(chmod, "--", word, name).CombinedOutput(); err != nil &&
			!strings.Contains(string(out), "new permissions are") {
			t.Fatalf("chmod %s: %s", word, out)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		want := info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
		if got := m.apply(begin, isDir); got != want {
			t.Fatalf("%s on %v (directory %v) is %v, chmod makes %v", word, begin, isDir, got, want)
		}
	})
	for _, bad := range []string{"", "x", "u", "888", "u+y", "u+r,", "+q", "77777", "ug"} {
		if _, err := parseModeChange(bad); err == nil {
			t.Errorf("%q was read as a mode", bad)
		}
	}
}

func TestDates(t *testing.T) {
	zone := time.FixedZone("east", 3600)
	now := time.Date(2026, 11, 18, 9, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"2001-02-03T04:05:06Z":            time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC),
		"2001-02-03T04:05:06.5+02:00":     time.Date(2001, 2, 3, 2, 5, 6, 5e8, time.UTC),
		"2001-02-03 04:05:06.000000001":   time.Date(2001, 2, 3, 4, 5, 6, 1, zone),
		"2001-02-03 04:05:06 -0100":       time.Date(2001, 2, 3, 5, 5, 6, 0, time.UTC),
		"2001-02-03 04:05":                time.Date(2001, 2, 3, 4, 5, 0, 0, zone),
		"2001-02-03":                      time.Date(2001, 2, 3, 0, 0, 0, 0, zone),
		"@0":                              time.Unix(0, 0),
		"@1.5":                            time.Unix(1, 5e8),
		"@-1.5":                           time.Unix(-2, 5e8),
		"now":                             now,
		"yesterday":                       now.Add(-24 * time.Hour),
		"2 hours ago":                     now.Add(-2 * time.Hour),
		"1 Week ago":                      now.Add(-7 * 24 * time.Hour),
		"Sat, 03 Feb 2001 04:05:06 +0000": time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC),
	} {
		if got, err := parseDate(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "soon", "@", "@x", "2001-13-01", "2 moons ago",
		"@99999999999999"} {
		if got, err := parseDate(bad, now); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
	for text, want := range map[string]time.Time{
		"02030405":        time.Date(2026, 2, 3, 4, 5, 0, 0, zone),
		"0102030405":      time.Date(2001, 2, 3, 4, 5, 0, 0, zone),
		"9902030405.06":   time.Date(1999, 2, 3, 4, 5, 6, 0, zone),
		"200102030405.59": time.Date(2001, 2, 3, 4, 5, 59, 0, zone),
	} {
		if got, err := parseStamp(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := parseStamp("123", now); err == nil {
		t.Error("a stamp of three digits")
	}
}

func TestSizeChanges(t *testing.T) {
	for text, want := range map[string]int64{
		"5": 5, "+5": 1005, "-5": 995, "-5K": 0, "<5": 5, "<5K": 1000, ">5": 1000, ">5K": 5120,
		"/300": 900, "%300": 1200, "%1000": 1000, "0": 0,
	} {
		c, err := parseSizeChange(text)
		got, aerr := c.apply(1000)
		if err != nil || aerr != nil || got != want {
			t.Errorf("%s of 1000 is %d, %v, %v; want %d", text, got, err, aerr, want)
		}
	}
	for _, bad := range []string{"+", "x", "/0", "%0", "--5"} {
		if _, err := parseSizeChange(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	for _, text := range []string{"+7P", "%7P"} {
		c, err := parseSizeChange(text)
		if got, aerr := c.apply(math.MaxInt64 - 5); err != nil || aerr == nil {
			t.Errorf("%s of almost all is %d, %v", text, got, err)
		}
	}
}

func TestFindTests(t *testing.T) {
	now := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	v := &visit{path: "/a/file.log", name: "file.log", attr: meta.Attr{Type: meta.Regular,
		Mode: 0o640, Size: 1025, UID: 7, GID: 8, Mtime: meta.TimeOf(now.Add(-36 * time.Hour))}}
	for _, c := range []struct {
		f    findFlags
		want bool
	}{
		{findFlags{}, true},
		{findFlags{names: []string{"*.log"}}, true},
		{findFlags{names: []string{"*.txt", "f*"}}, true},
		{findFlags{notNames: []string{"*.txt", "f*"}}, false},
		{findFlags{paths: []string{"/a/*"}}, true},
		{findFlags{notPaths: []string{"/a/*"}}, false},
		{findFlags{types: "f"}, true}, {findFlags{types: "d,l"}, false},
		{findFlags{size: "+1k"}, true}, {findFlags{size: "2k"}, true}, {findFlags{size: "-2k"}, false},
		{findFlags{size: "3"}, true}, {findFlags{size: "1025c"}, true}, {findFlags{size: "-1M"}, false},
		{findFlags{mtime: "1"}, true}, {findFlags{mtime: "+1"}, false}, {findFlags{mtime: "-2"}, true},
		{findFlags{mmin: "+100"}, true}, {findFlags{mmin: "2160"}, true},
		{findFlags{newer: "/older"}, true}, {findFlags{newermt: "2026-11-18"}, false},
		{findFlags{user: "7", group: "8"}, true}, {findFlags{user: "8"}, false},
		{findFlags{perm: "640"}, true}, {findFlags{perm: "-600"}, true},
		{findFlags{perm: "-660"}, false}, {findFlags{perm: "/022"}, false},
		{findFlags{perm: "/g=r"}, true}, {findFlags{perm: "u=rw,g=r"}, true},
		{findFlags{empty: true}, false},
	} {
		tests, err := c.f.tests(now, func(string) (time.Time, error) {
			return now.Add(-40 * time.Hour), nil
		})
		if err != nil {
			t.Errorf("%+v: %v", c.f, err)
			continue
		}
		met := !slices.ContainsFunc(tests, func(test findTest) bool {
			ok, err := test(t.Context(), nil, v)
			return !ok || err != nil
		})
		if met != c.want {
			t.Errorf("%+v: %v", c.f, met)
		}
	}
	for _, f := range []findFlags{{types: "x"}, {size: "+"}, {size: "1Q"}, {mtime: "x"}, {mmin: "-"},
		{perm: "9"}, {user: "-1"}, {names: []string{""}}, {newermt: "soon"}} {
		if _, err := f.tests(now, nil); err == nil {
			t.Errorf("%+v was read", f)
		}
	}
}

func TestVerbsAreFoundByTheirNames(t *testing.T) {
	all := len(newRoot().Commands())
	for _, v := range allVerbs() {
		if got := v.make().Name(); got != v.name {
			t.Errorf("%s is known as %s", got, v.name)
		}
		root := rootFor([]string{v.name, "--help"})
		if n := len(root.Commands()); n != 1 && v.name != "man" {
			t.Errorf("%s: %d commands are made", v.name, n)
		}
	}
	for _, args := range [][]string{
		nil, {"help", "cp"}, {"--help"}, {"man"}, {"cpp"}, {"__complete", "c"},
	} {
		if n := len(rootFor(args).Commands()); n != all {
			t.Errorf("%q: %d of %d commands", args, n, all)
		}
	}
}

func TestSingleDashesOfFind(t *testing.T) {
	root := newRoot()
	for in, want := range map[string]string{
		"find / -name x -size +1M":        "find / --name x --size +1M",
		"find / -maxdepth=1 --type f":     "find / --maxdepth=1 --type f",
		"find / -l -- -name":              "find / -l -- -name",
		"find / -nonsense":                "find / -nonsense",
		"ls -name":                        "ls -name",
		"__complete find / -na":           "__complete find / -na",
		"__complete find / -name x -type": "__complete find / --name x --type",
	} {
		if got := strings.Join(singleDash(root, strings.Fields(in)), " "); got != want {
			t.Errorf("%s became %s", in, got)
		}
	}
}

func TestShapesOfJSON(t *testing.T) {
	type inner struct {
		B int       `json:"b"`
		T time.Time `json:"t"`
	}
	type outer struct {
		inner
		A    string   `json:"a,omitempty"`
		Not  int      `json:"-"`
		List []*inner `json:"list"`
		Self []outer  `json:"self"`
	}
	if got, want := jsonShape(reflect.TypeFor[[]outer]()),
		"a list, each {b, t, a, list {b, t}, self (as here)}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := jsonShape(reflect.TypeFor[map[string]map[string]string]()); got !=
		"an object by name, each an object by name" {
		t.Error(got)
	}
}

func TestModesAsLsShowsThem(t *testing.T) {
	for _, c := range []struct {
		a    meta.Attr
		want string
	}{
		{meta.Attr{Type: meta.Regular, Mode: 0o640}, "-rw-r-----"},
		{meta.Attr{Type: meta.Directory, Mode: 0o1777}, "drwxrwxrwt"},
		{meta.Attr{Type: meta.Regular, Mode: 0o6711}, "-rws--s--x"},
		{meta.Attr{Type: meta.Fifo, Mode: 0o7000}, "p--S--S--T"},
		{meta.Attr{Type: meta.BlockDevice, Mode: 0o660}, "brw-rw----"},
	} {
		if got := lsMode(&c.a); got != c.want {
			t.Errorf("%o is %s, want %s", c.a.Mode, got, c.want)
		}
		if back := client.ModeBits(client.FileMode(&c.a)); back != c.a.Mode {
			t.Errorf("%o became %o", c.a.Mode, back)
		}
	}
}
