// Package lint keeps the rules of STYLE.md as code: who may import whom, how large things get,
// which words are not used. Its test parses every file of the module, so that `go test` alone
// tells.
//
// It does not replace vet or staticcheck, which look for bugs; it looks for shape.
//
// Read layers.go first (the drawn structure), then shape.go and words.go.
package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// Module is the import path of the module whose files are checked.
const Module = "github.com/sluice-storage/sluice"

// Source is one parsed file.
type Source struct {
	Path string // from the module's root, with slashes
	Text []byte
	AST  *ast.File
	fset *token.FileSet
}

// Parse reads one file's text. path decides the package and whether it is a test.
func Parse(path string, text []byte) (*Source, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &Source{Path: path, Text: text, AST: tree, fset: fset}, nil
}

// Dir is the package's folder from the module's root; "." for the root itself.
func (s *Source) Dir() string { return path.Dir(s.Path) }

// IsTest tells whether the file is compiled for tests only.
func (s *Source) IsTest() bool { return strings.HasSuffix(s.Path, "_test.go") }

func (s *Source) line(p token.Pos) int { return s.fset.Position(p).Line }

// imports are the paths that the file imports, with the place of each.
func (s *Source) imports() map[string]token.Pos {
	all := make(map[string]token.Pos, len(s.AST.Imports))
	for _, spec := range s.AST.Imports {
		all[strings.Trim(spec.Path.Value, `"`)] = spec.Pos()
	}
	return all
}

// Problem is one broken rule at one place.
type Problem struct {
	Path string
	Line int
	Rule string
	Text string
}

// String is the form that editors jump to.
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", p.Path, p.Line, p.Rule, p.Text)
}

func (s *Source) problem(at token.Pos, rule, format string, args ...any) Problem {
	return Problem{Path: s.Path, Line: s.line(at), Rule: rule, Text: fmt.Sprintf(format, args...)}
}

// Check runs every rule over the files, which together are the module or a part of it.
func Check(files []*Source) []Problem {
	var found []Problem
	for _, s := range files {
		for _, rule := range fileRules() {
			found = append(found, rule(s)...)
		}
	}
	for _, rule := range moduleRules() {
		found = append(found, rule(files)...)
	}
	sort.Slice(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if a.Path != b.Path {
			return a.Path < b.Path
		}
		return a.Line < b.Line
	})
	return found
}

func fileRules() []func(*Source) []Problem {
	return []func(*Source) []Problem{
		formatted, fileSize, functionSize, interfaceSize, lineWidth,
		unsafePlace, unfinished, packageName, noInit,
		layers, externals, testSupport, pureVocabulary,
	}
}

func moduleRules() []func([]*Source) []Problem {
	return []func([]*Source) []Problem{packageComment, importCycles}
}

// Root finds the module's root: the first folder with a go.mod, from dir upwards.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or in any folder above")
		}
		dir = up
	}
}

// Load parses every file of the module that people wrote. Folders that git ignores (bin, mnt and
// those with a leading dot) and testdata are left out, and so are generated files.
func Load(root string) ([]*Source, error) {
	var files []*Source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && skippedDir(rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := Parse(rel, text)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(s.AST) {
			files = append(files, s)
		}
		return nil
	})
	return files, err
}

func skippedDir(rel string) bool {
	base := path.Base(rel)
	return base == "testdata" || strings.HasPrefix(base, ".") || rel == "bin" || rel == "mnt"
}
