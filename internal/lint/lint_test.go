package lint

import (
	"fmt"
	"strings"
	"testing"
)

// TestModule holds the whole module against every rule.
func TestModule(t *testing.T) {
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	files, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d files below %s: the walk is broken", len(files), root)
	}
	for _, p := range Check(files) {
		t.Error(p)
	}
}

// doc makes a snippet complete, so that it breaks at most the rule under test.
func doc(pkg, rest string) string {
	return fmt.Sprintf("// Package %s is a snippet.\npackage %s\n%s", pkg, pkg, rest)
}

func use(paths ...string) string {
	var b strings.Builder
	for _, p := range paths {
		if !strings.Contains(p, ".") && p != "unsafe" && p != "net" && p != "testing" {
			p = Module + "/" + p
		}
		fmt.Fprintf(&b, "\nimport _ %q\n", p)
	}
	return b.String()
}

func lines(n int) string { return strings.Repeat("\t_ = 0\n", n) }

// snippet is one or more files and the rule that they break; no rule means that they are fine.
type snippet struct {
	name  string
	files map[string]string
	rule  string
}

func one(name, path, text, rule string) snippet {
	return snippet{name, map[string]string{path: text}, rule}
}

func sizeSnippets() []snippet {
	methods := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "\tM%d()\n", i)
		}
		return "\ntype i interface {\n" + b.String() + "}\n"
	}
	function := func(n int) string { return "\nfunc f() {\n" + lines(n) + "}\n" }
	wide := func(n int) string { return "\n// " + strings.Repeat("é", n-3) + "\n" }
	return []snippet{
		one("function at the limit", "errs/a.go", doc("errs", function(68)), ""),
		one("function too long", "errs/a.go", doc("errs", function(69)), "function size"),
		one("method too long", "errs/a.go",
			doc("errs", "\ntype t int\n\nfunc (t) f() {\n"+lines(69)+"}\n"), "function size"),
		one("test function too long", "errs/a_test.go",
			doc("errs", function(69)), "function size"),
		one("literal too long", "errs/a.go",
			doc("errs", "\nvar f = func() {\n"+lines(69)+"}\n"), "function size"),
		one("file at the limit", "errs/a.go",
			doc("errs", "\n"+strings.Repeat("// x\n", 597)), ""),
		one("file too long", "errs/a.go",
			doc("errs", "\n"+strings.Repeat("// x\n", 598)), "file size"),
		one("interface at the limit", "errs/a.go", doc("errs", methods(5)), ""),
		one("interface too large", "errs/a.go", doc("errs", methods(6)), "interface size"),
		one("embedded interfaces do not count", "errs/a.go",
			doc("errs", "\ntype i interface {\n\ta\n\tb\n\tc\n\td\n\te\n\tf\n}\n"), ""),
		one("line at the limit", "errs/a.go", doc("errs", wide(100)), ""),
		one("line too wide", "errs/a.go", doc("errs", wide(101)), "line width"),
		one("not formatted", "errs/a.go", doc("errs", "\nvar  x int\n"), "gofmt"),
	}
}

func wordSnippets() []snippet {
	text := func(s string) string { return doc("errs", "\n// "+s+"\n") }
	return []snippet{
		one("unsafe at large", "mem/a.go", doc("mem", use("unsafe")), "unsafe"),
		one("unsafe in its place", "mem/a_unsafe.go", doc("mem", use("unsafe")), ""),
		one("unsafe in its test", "mem/a_unsafe_test.go", doc("mem", use("unsafe")), ""),
		one("a note", "errs/a.go", text("TO"+"DO: finish"), "unfinished"),
		one("another note", "errs/a.go", text("FIX"+"ME"), "unfinished"),
		one("a stub", "errs/a.go",
			doc("errs", "\nvar x = \"Not imple"+"mented\"\n"), "unfinished"),
		one("a word that contains one", "errs/a.go", text("mas"+"TODOn"), ""),
		one("a name that says nothing", "internal/util/a.go", doc("util", ""), "package name"),
		one("a name in capitals", "internal/x/a.go", doc("camelCase", ""), "package name"),
		one("an external test", "errs/a_test.go", doc("errs_test", ""), ""),
		one("init", "errs/a.go", doc("errs", "\nfunc init() {}\n"), "init"),
		one("a method init", "errs/a.go",
			doc("errs", "\ntype t int\n\nfunc (t) init() {}\n"), ""),
		one("no package comment", "errs/a.go", "package errs\n", "package comment"),
		one("another package's comment", "errs/a.go",
			"// Package seg is elsewhere.\npackage errs\n", "package comment"),
		one("a command", "cmd/sluice/a.go", "// Command sluice does it.\npackage main\n", ""),
		{"a comment in the second file", map[string]string{
			"errs/a.go": "package errs\n", "errs/b.go": doc("errs", "")}, ""},
		{"a comment in a test only", map[string]string{
			"errs/a.go": "package errs\n", "errs/a_test.go": doc("errs", "")}, "package comment"},
		one("a folder of tests only", "vmtest/a_test.go", "package vmtest\n", "package comment"),
	}
}

func layerSnippets() []snippet {
	return []snippet{
		one("downward", "msg/a.go", doc("msg", use("fabric", "mem", "errs")), ""),
		one("upward", "fabric/a.go", doc("fabric", use("msg")), "layer"),
		one("front end and server", "mount/a.go", doc("mount", use("iod/server")), "layer"),
		one("front end and engine", "bench/a.go", doc("bench", use("kv/pebblekv")), "layer"),
		one("front end and provider", "client/a.go", doc("client", use("fabric/tcp")), "layer"),
		one("provider and provider", "fabric/tcp/a.go", doc("tcp", use("fabric/sim")), "layer"),
		one("cache and store", "unifier/a.go",
			doc("unifier", use("stripe/logstore")), "layer"),
		one("a test may", "mount/a_test.go", doc("mount", use("iod/server")), ""),
		one("the wiring may", "cmd/sluice/a.go",
			"// Command sluice wires.\npackage main\n"+use("kv/pebblekv", "iod/server"), ""),
		one("internal stays below", "internal/x/a.go", doc("x", use("client")), "layer"),
		one("not in the table", "novelty/a.go", doc("novelty", ""), "layer"),
		one("vocabulary on the network", "wire/a.go", doc("wire", use("net")), "pure"),
		one("vocabulary with goroutines", "seg/a.go",
			doc("seg", "\nfunc f() { go f() }\n"), "pure"),
		one("suite in the program", "kv/memkv/a.go",
			doc("memkv", use("kv/kvtest")), "test support"),
		one("testing in the program", "kv/memkv/a.go",
			doc("memkv", use("testing")), "test support"),
		one("testing in a suite", "kv/kvtest/a.go", doc("kvtest", use("testing")), ""),
		one("pebble outside its home", "meta/store/a.go",
			doc("store", use("github.com/cockroachdb/pebble/v2")), "external"),
		one("pebble at home", "kv/pebblekv/a.go",
			doc("pebblekv", use("github.com/cockroachdb/pebble/v2")), ""),
		{"a cycle of folders", map[string]string{
			"iod/server/a.go": doc("server", use("admin")),
			"admin/a.go":      doc("admin", use("iod")),
		}, "cycle"},
		{"no cycle", map[string]string{
			"iod/server/a.go": doc("server", use("admin")),
			"admin/a.go":      doc("admin", use("errs")),
		}, ""},
	}
}

// TestRules proves each rule: what is right passes all of them, what is wrong is found by its own.
func TestRules(t *testing.T) {
	all := append(append(sizeSnippets(), wordSnippets()...), layerSnippets()...)
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			var files []*Source
			for path, text := range c.files {
				s, err := Parse(path, []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, s)
			}
			got := Check(files)
			hit := false
			for _, p := range got {
				hit = hit || p.Rule == c.rule
			}
			switch {
			case c.rule == "" && len(got) > 0:
				t.Fatalf("found in sound code: %v", got)
			case c.rule != "" && !hit:
				t.Fatalf("rule %q is silent; found %v", c.rule, got)
			}
		})
	}
}

// TestRootNeedsModule shows that the walk upwards ends.
func TestRootNeedsModule(t *testing.T) {
	if dir, err := Root(t.TempDir()); err == nil {
		t.Fatalf("found a module at %s", dir)
	}
}
