package lint

import (
	"go/ast"
	"regexp"
	"strings"
)

// unsafePlace keeps unsafe in files whose name says so.
func unsafePlace(s *Source) []Problem {
	at, ok := s.imports()["unsafe"]
	name := strings.TrimSuffix(strings.TrimSuffix(s.Path, ".go"), "_test")
	if !ok || strings.HasSuffix(name, "_unsafe") {
		return nil
	}
	return []Problem{s.problem(at, "unsafe", "only in files named *_unsafe.go")}
}

// unfinishedWords are put together here so that this file does not trip over itself.
var unfinishedWords = regexp.MustCompile(
	`\b(TO` + `DO|FIX` + `ME)\b|(?i:not (yet )?imple` + `mented)`)

// unfinished refuses notes about work that was left out: what is there works, the rest is an issue.
func unfinished(s *Source) []Problem {
	var found []Problem
	for i, line := range strings.Split(string(s.Text), "\n") {
		if word := unfinishedWords.FindString(line); word != "" {
			found = append(found, Problem{s.Path, i + 1, "unfinished", "says " + word})
		}
	}
	return found
}

// packageName wants one lower-case noun, and none that says nothing.
func packageName(s *Source) []Problem {
	name := strings.TrimSuffix(s.AST.Name.Name, "_test")
	switch name {
	case "util", "utils", "common", "helper", "helpers", "misc", "base", "shared", "lib":
		return []Problem{s.problem(s.AST.Name.Pos(), "package name", "%s says nothing", name)}
	}
	if strings.ToLower(name) != name || strings.Contains(name, "_") {
		return []Problem{s.problem(s.AST.Name.Pos(), "package name",
			"%s: one lower-case word", s.AST.Name.Name)}
	}
	return nil
}

// noInit refuses func init: work that nobody asked for, in an order that nobody sees.
func noInit(s *Source) []Problem {
	var found []Problem
	for _, d := range s.AST.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv == nil && f.Name.Name == "init" {
			found = append(found, s.problem(f.Pos(), "init", "do it where somebody calls it"))
		}
	}
	return found
}

// pureVocabulary keeps goroutines and the network out of the packages that everybody imports.
func pureVocabulary(s *Source) []Problem {
	if s.IsTest() || !isVocabulary(s.Dir()) {
		return nil
	}
	var found []Problem
	for imported, at := range s.imports() {
		if imported == "net" || strings.HasPrefix(imported, "net/") || imported == "os/exec" {
			found = append(found, s.problem(at, "pure", "the vocabulary does no I/O"))
		}
	}
	ast.Inspect(s.AST, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			found = append(found, s.problem(g.Pos(), "pure", "the vocabulary starts no goroutines"))
		}
		return true
	})
	return found
}
