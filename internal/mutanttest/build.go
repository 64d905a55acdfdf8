package mutanttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runMax is how long a run may take. A run that takes longer has found nothing: a test that hangs
// tells nobody what is wrong, and on a busy machine it may only be slow.
const runMax = 10 * time.Minute

// tables reads the tables of the packages and holds the cases against them.
func (h Hunt) tables() ([]*table, error) {
	dirs := h.Packages
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	var all []*table
	names := map[string]bool{}
	for _, dir := range dirs {
		t, err := readTable(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
		for name := range t.names() {
			names[name] = true
		}
	}
	for _, c := range h.Cases {
		if !names[c.Mutant] {
			return nil, fmt.Errorf("no table has the mutant %q", c.Mutant)
		}
	}
	for name := range names {
		sought := slices.ContainsFunc(h.Cases, func(c Case) bool { return c.Mutant == name })
		if len(h.Packages) == 0 && !sought {
			return nil, fmt.Errorf("nobody looks for the mutant %q", name)
		}
	}
	return all, nil
}

// overlay writes the changed files to a folder and returns which one replaces which.
func overlay(tables []*table, dir string) (map[string]string, error) {
	replace := map[string]string{}
	for _, t := range tables {
		files, err := t.applied()
		if err != nil {
			return nil, err
		}
		if t.helpers != "" {
			files["mutant_helpers.go"] = t.helpers
		}
		if err := addPlanted(files); err != nil {
			return nil, err
		}
		for name, text := range files {
			to := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(name)))
			if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
				return nil, err
			}
			from, err := filepath.Abs(filepath.Join(t.dir, name))
			if err != nil {
				return nil, err
			}
			replace[from] = to
		}
	}
	return replace, nil
}

// addPlanted adds the function planted to each package that one of the files is in. All read the
// same variable: a mutant is one, wherever its edits are.
func addPlanted(files map[string]string) error {
	for name, text := range maps.Clone(files) {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		files[filepath.Join(filepath.Dir(name), "mutant_planted.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar plantedName = os.Getenv(%q)\n\n"+
				"func planted(name string) bool { return name == plantedName }\n",
			parsed.Name.Name, environ)
	}
	return nil
}

// binary is the tests of the working directory's package, with all mutants.
type binary struct{ path string }

// build uses the flags of the environment, as the Go tool that runs this test did: so both share
// what is compiled.
func build(ctx context.Context, tables []*table, dir string) (*binary, error) {
	replace, err := overlay(tables, dir)
	if err != nil {
		return nil, err
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	listed, b := filepath.Join(dir, "overlay.json"), &binary{filepath.Join(dir, "mutants.test")}
	if err := os.WriteFile(listed, list, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-w",
		"-overlay", listed, "-o", b.path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	return b, nil
}

// run runs the tests of a case and returns what they have found, "" for nothing.
func (b *binary) run(ctx context.Context, c Case) (found string, err error) {
	cmd := exec.CommandContext(ctx, b.path, "-test.run", c.Tests, "-test.failfast",
		"-test.count", strconv.Itoa(max(c.Tries, 1)), "-test.timeout", runMax.String())
	cmd.Env = append(append(os.Environ(), c.Env...), environ+"="+c.Mutant)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "no tests to run") {
		return "", fmt.Errorf("there are no tests %q", c.Tests)
	}
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return "", err
	}
	if !strings.Contains(string(out), c.Says) {
		return "", fmt.Errorf("it failed without saying %q\n%s", c.Says, out)
	}
	return finding(string(out))
}

// finding is what the output of a run that has failed says: a test that failed, or a crash.
func finding(out string) (string, error) {
	if strings.Contains(out, "panic: test timed out") {
		return "", fmt.Errorf("the tests hang\n%s", out)
	}
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		for _, word := range []string{"--- FAIL: ", "panic: ", "fatal error: "} {
			if strings.Contains(line, word) {
				return strings.Join(lines[i:min(i+5, len(lines))], "\n"), nil
			}
		}
	}
	return "", fmt.Errorf("the run ended without a result\n%s", out)
}
