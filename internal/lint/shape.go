package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"strings"
	"unicode/utf8"
)

// Where to stop and think.
const (
	FunctionLines    = 70
	FileLines        = 600
	InterfaceMethods = 5
	LineColumns      = 100
	tabColumns       = 1 // gofmt chose tabs so that everybody may choose their width
)

func formatted(s *Source) []Problem {
	want, err := format.Source(s.Text)
	if err != nil || bytes.Equal(want, s.Text) {
		return nil // what does not parse never became a Source
	}
	return []Problem{s.problem(s.AST.Package, "gofmt", "run gofmt -w %s", s.Path)}
}

func fileSize(s *Source) []Problem {
	lines := bytes.Count(s.Text, []byte("\n"))
	if lines <= FileLines {
		return nil
	}
	return []Problem{s.problem(s.AST.Package, "file size", "%d lines; at most %d", lines, FileLines)}
}

// functionSize counts from the line of "func" to the closing brace. Literals count for the function
// around them, and by themselves where they stand at package level.
func functionSize(s *Source) []Problem {
	var found []Problem
	ast.Inspect(s.AST, func(n ast.Node) bool {
		var name string
		switch f := n.(type) {
		case *ast.FuncDecl:
			name = f.Name.Name
		case *ast.FuncLit:
			name = "literal"
		default:
			return true
		}
		if lines := s.line(n.End()) - s.line(n.Pos()) + 1; lines > FunctionLines {
			found = append(found, s.problem(n.Pos(), "function size",
				"%s has %d lines; at most %d", name, lines, FunctionLines))
		}
		return false
	})
	return found
}

func interfaceSize(s *Source) []Problem {
	var found []Problem
	ast.Inspect(s.AST, func(n ast.Node) bool {
		i, ok := n.(*ast.InterfaceType)
		if !ok {
			return true
		}
		methods := 0
		for _, field := range i.Methods.List {
			methods += len(field.Names) // embedded interfaces and unions have no names
		}
		if methods > InterfaceMethods {
			found = append(found, s.problem(i.Pos(), "interface size",
				"%d methods; at most %d: cut it and embed the parts", methods, InterfaceMethods))
		}
		return true
	})
	return found
}

func lineWidth(s *Source) []Problem {
	var found []Problem
	for i, line := range strings.Split(string(s.Text), "\n") {
		columns := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
		if columns > LineColumns {
			found = append(found, Problem{s.Path, i + 1, "line width",
				fmt.Sprintf("%d columns; at most %d", columns, LineColumns)})
		}
	}
	return found
}

// packageComment wants one file of each package to say what the package is. Folders that hold only
// tests say it in a test file.
func packageComment(files []*Source) []Problem {
	type pkg struct {
		first     *Source
		commented bool
		program   bool // has a file that is not a test
	}
	packages := map[string]*pkg{}
	var order []string
	for _, s := range files {
		p := packages[s.Dir()]
		if p == nil {
			p = &pkg{first: s}
			packages[s.Dir()] = p
			order = append(order, s.Dir())
		}
		if !s.IsTest() && !p.program {
			p.first, p.program, p.commented = s, true, false
		}
		if p.program && s.IsTest() {
			continue
		}
		if s.AST.Doc != nil && saysWhat(s.AST.Name.Name, s.AST.Doc.Text()) {
			p.commented = true
		}
	}
	var found []Problem
	for _, dir := range order {
		if p := packages[dir]; !p.commented {
			found = append(found, p.first.problem(p.first.AST.Package, "package comment",
				"no file says what package %s is", dir))
		}
	}
	return found
}

func saysWhat(name, comment string) bool {
	if name == "main" {
		return strings.HasPrefix(comment, "Command ")
	}
	return strings.HasPrefix(comment, "Package "+name+" ")
}
