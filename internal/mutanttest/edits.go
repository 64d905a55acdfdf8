package mutanttest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// edit replaces lines of a file.
type edit struct {
	file     string // its path below the table's package
	line     int    // of the table, for errors
	old, new []string
}

// table is what a package's folder says about its mutants.
type table struct {
	dir     string
	edits   []edit
	helpers string // the text of testdata/mutants.go
}

var plantedCall = regexp.MustCompile(`planted\("([^"]*)"\)`)

func readTable(dir string) (*table, error) {
	path := filepath.Join(dir, "testdata", "mutants.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := &table{dir: dir}
	if t.edits, err = parse(string(text)); err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	helpers, err := os.ReadFile(filepath.Join(dir, "testdata", "mutants.go"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	t.helpers = string(helpers)
	return t, nil
}

// names are the mutants of the table.
func (t *table) names() map[string]bool {
	text := t.helpers
	for _, e := range t.edits {
		text += strings.Join(e.new, "\n")
	}
	names := map[string]bool{}
	for _, call := range plantedCall.FindAllStringSubmatch(text, -1) {
		names[call[1]] = true
	}
	return names
}

// parse reads the edits of a table. Lines with '-' or '+' that follow each other are one edit; a
// '-' behind a '+' begins the next one.
func parse(text string) (edits []edit, err error) {
	var file string
	var e *edit // the edit that further lines belong to
	for i, line := range strings.Split(text, "\n") {
		switch {
		case line == "" || line[0] == '#':
			e = nil
		case line[0] == '-':
			if file == "" {
				return nil, fmt.Errorf("%d: an edit of no file", i+1)
			}
			if e == nil || len(e.new) > 0 {
				edits = append(edits, edit{file: file, line: i + 1})
				e = &edits[len(edits)-1]
			}
			e.old = append(e.old, strings.TrimSpace(line[1:]))
		case line[0] == '+':
			if e == nil {
				return nil, fmt.Errorf("%d: new lines without old ones", i+1)
			}
			e.new = append(e.new, line[1:])
		default:
			e, file = nil, line
		}
	}
	return edits, nil
}

// applied returns the changed text of each file that the table names, by its path there.
func (t *table) applied() (map[string]string, error) {
	byFile := map[string][]edit{}
	for _, e := range t.edits {
		byFile[e.file] = append(byFile[e.file], e)
	}
	changed := map[string]string{}
	for file, edits := range byFile {
		text, err := os.ReadFile(filepath.Join(t.dir, file))
		if err != nil {
			return nil, err
		}
		if changed[file], err = apply(string(text), edits); err != nil {
			return nil, fmt.Errorf("%s/testdata/mutants.txt:%w", t.dir, err)
		}
	}
	return changed, nil
}

// apply replaces the old lines of each edit. All edits are of the text as it was, so that their
// order does not matter.
func apply(text string, edits []edit) (string, error) {
	lines := strings.Split(text, "\n")
	type place struct {
		at int
		edit
	}
	var places []place
	for _, e := range edits {
		at, err := e.find(lines)
		if err != nil {
			return "", err
		}
		places = append(places, place{at, e})
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	var out []string
	done := 0
	for _, p := range places {
		if p.at < done {
			return "", fmt.Errorf("%d: overlaps with another edit of %s", p.line, p.file)
		}
		out = append(append(out, lines[done:p.at]...), p.new...)
		done = p.at + len(p.old)
	}
	return strings.Join(append(out, lines[done:]...), "\n"), nil
}

// find returns where the only occurrence of the old lines begins.
func (e *edit) find(lines []string) (at int, err error) {
	n := 0
	for i := range len(lines) - len(e.old) + 1 {
		if e.matches(lines[i:]) {
			at, n = i, n+1
		}
	}
	if n != 1 {
		return 0, fmt.Errorf("%d: the old lines occur %d times in %s, not once:\n\t%s", e.line, n,
			e.file, strings.Join(e.old, "\n\t"))
	}
	return at, nil
}

func (e *edit) matches(lines []string) bool {
	for i, old := range e.old {
		if strings.TrimSpace(lines[i]) != old {
			return false
		}
	}
	return true
}
