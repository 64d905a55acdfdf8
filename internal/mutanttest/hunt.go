package mutanttest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Case is a mutant and those who must find it.
type Case struct {
	Mutant string
	Tests  string   // as -test.run takes it: at least one of them must fail
	Tries  int      // how often they run until one fails; 0 is once
	Env    []string // what these tests take from the environment, as NAME=VALUE
	Says   string   // a part of what they must say when they fail; "": they may fail in any way
}

// Hunt looks for mutants with the tests of the package in the working directory.
type Hunt struct {
	// Packages are the folders of the packages that mutants are planted into. Default: the test's
	// own package, all of whose mutants must then be looked for.
	Packages []string

	// Control is the environment of the run without a mutant, where all tests of all cases must
	// pass. The sound package is tested elsewhere, so that a short run is enough.
	Control []string

	Cases []Case
}

// Run builds the tests once and runs them for each case. It does nothing in short runs and where
// there is no Go tool.
func (h Hunt) Run(t *testing.T) {
	t.Helper()
	if os.Getenv(environ) != "" {
		t.Skip("this is the run of a mutant")
	}
	if testing.Short() {
		t.Skip("mutants are looked for in full runs only")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("mutants are built where they are looked for: %v", err)
	}
	tables, err := h.tables()
	if err != nil {
		t.Fatal(err)
	}
	b, err := build(t.Context(), tables, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Run(none, func(t *testing.T) {
		if found, err := b.run(t.Context(), h.control()); err != nil || found != "" {
			t.Fatalf("without a mutant: %v\n%s", err, found)
		}
	})
	for _, c := range h.Cases {
		t.Run(c.Mutant, func(t *testing.T) {
			found, err := b.run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if found == "" {
				t.Fatalf("%s did not find it", c.Tests)
			}
			t.Logf("found: %s", found)
		})
	}
}

// control is the run that must find nothing.
func (h Hunt) control() Case {
	var tests []string
	for _, c := range h.Cases {
		if !slices.Contains(tests, c.Tests) {
			tests = append(tests, c.Tests)
		}
	}
	return Case{Mutant: none, Tests: strings.Join(tests, "|"), Env: h.Control}
}
