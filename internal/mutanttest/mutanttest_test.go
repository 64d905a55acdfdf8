package mutanttest

import (
	"os/exec"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	edits, err := parse("# a comment\na.go\n-\tx\n+y\n- x2\n-x3\n+\n\nb.go\n-z\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range edits {
		got = append(got, e.file+" "+strings.Join(e.old, ",")+" > "+strings.Join(e.new, ","))
	}
	if want := "a.go x > y; a.go x2,x3 > ; b.go z > "; strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "; "), want)
	}
	for _, bad := range []string{"-x\n+y", "a.go\n+y"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A table that no longer fits its files is an error, and so are edits that meet.
func TestApply(t *testing.T) {
	const text = "one\n\ttwo\nthree\ntwo\nfour\n"
	for _, c := range []struct{ name, table, want string }{
		{"in any order", "f\n-four\n+4\n-one\n+1\n+more", "1\nmore\n\ttwo\nthree\ntwo\n4\n"},
		{"indentation does not matter", "f\n-one\n- two\n+12", "12\nthree\ntwo\nfour\n"},
		{"removed", "f\n-three", "one\n\ttwo\ntwo\nfour\n"},
		{"twice", "f\n-two\n+2", ""},
		{"never", "f\n-five\n+5", ""},
		{"a part of a line", "f\n-thre\n+3", ""},
		{"beyond the end", "f\n-four\n-\n-\n+4", ""},
		{"overlapping", "f\n-three\n-two\n+3\n-two\n-four\n+4", ""},
	} {
		edits, err := parse(c.table)
		if err != nil {
			t.Fatal(err)
		}
		got, err := apply(text, edits)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

// The hunt finds what fails or crashes, and nothing else.
func TestHunt(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil || testing.Short() {
		t.Skip("no Go tool, or a short run")
	}
	t.Chdir("testdata/sample")
	h := Hunt{Cases: []Case{{Mutant: "smaller"}, {Mutant: "crash"}, {Mutant: "backwards"}}}
	tables, err := h.tables()
	if err != nil {
		t.Fatal(err)
	}
	b, err := build(t.Context(), tables, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mutant, tests, env, says string
		found, broken            bool
	}{
		{mutant: "smaller", tests: "TestLarger", found: true},
		{mutant: "smaller", tests: "TestLarger", says: "2 is larger", found: true},
		{mutant: "smaller", tests: "TestLarger", says: "3 is larger", broken: true},
		{mutant: "crash", tests: "TestLarger", found: true},
		{mutant: "backwards", tests: "TestLarger", found: true},
		{mutant: none, tests: "TestLarger|TestChecked"},
		{mutant: "smaller", tests: "TestNothing"},
		{mutant: "smaller", tests: "TestNoSuchThing", broken: true},
		{mutant: none, tests: "TestChecked", env: "SAMPLE_FAILS=1", found: true},
	} {
		found, err := b.run(t.Context(), Case{Mutant: c.mutant, Tests: c.tests,
			Tries: 2, Env: []string{c.env}, Says: c.says})
		if (found != "") != c.found || (err != nil) != c.broken {
			t.Errorf("%+v: found %q, %v", c, found, err)
		}
	}
}

// Cases and tables must name the same mutants.
func TestEveryMutantIsLookedFor(t *testing.T) {
	t.Chdir("testdata/sample")
	for _, c := range []struct {
		cases []Case
		dirs  []string
		ok    bool
	}{
		{[]Case{{Mutant: "smaller"}, {Mutant: "crash"}, {Mutant: "backwards"}}, nil, true},
		{[]Case{{Mutant: "smaller"}, {Mutant: "crash"}}, nil, false},
		{[]Case{{Mutant: "smaller"}}, nil, false},
		{[]Case{{Mutant: "smaller"}}, []string{"."}, true}, // others look for the rest
		{[]Case{{Mutant: "smaller"}, {Mutant: "crash"}, {Mutant: "backwards"}, {Mutant: "gone"}}, nil,
			false},
	} {
		if _, err := (Hunt{Packages: c.dirs, Cases: c.cases}).tables(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestHangingIsNoFinding(t *testing.T) {
	for out, ok := range map[string]bool{
		"panic: test timed out after 4m0s\n": false,
		"signal: killed":                     false,
		"--- FAIL: TestX (0.00s)\n    x":     true,
		"fatal error: all goroutines":        true,
	} {
		if _, err := finding(out); (err == nil) != ok {
			t.Errorf("%q: %v", out, err)
		}
	}
}
