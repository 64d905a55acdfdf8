package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client/clustertest"
)

// built is the library in a folder of its own, as it is installed, and a cluster to use it with.
type built struct {
	dir string
	url string
}

// build makes the library, and starts a cluster.
func build(t *testing.T) *built {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the library is for Linux")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no compiler of C")
	}
	b := &built{dir: t.TempDir()}
	so := filepath.Join(b.dir, "libsluice.so.1")
	run(t, nil, "go", "build", "-buildmode=c-shared",
		"-ldflags=-X main.version=test -extldflags=-Wl,-soname,libsluice.so.1", "-o", so, ".")
	if err := os.Symlink(so, filepath.Join(b.dir, "libsluice.so")); err != nil {
		t.Fatal(err)
	}
	url, stop, err := clustertest.Start(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	b.url = url
	return b
}

// run runs a command and returns what it has printed.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // it hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// compile makes a program of one file.
func (b *built) compile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	program := filepath.Join(b.dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g",
		"-I.", "-o", program, source}, flags...)
	run(t, nil, "cc", append(args, "-L"+b.dir, "-lsluice", "-lpthread")...)
	return program
}

// env is what a program needs to find library and cluster.
func (b *built) env() []string {
	return []string{"LD_LIBRARY_PATH=" + b.dir, "SLUICE_URL=" + b.url}
}

// TestLibrary compiles every program of the examples and of testdata, and runs it.
func TestLibrary(t *testing.T) {
	b := build(t)
	var sources []string
	for _, dir := range []string{"examples", "testdata"} {
		found, err := filepath.Glob(filepath.Join(dir, "*.c"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", dir, found, err)
		}
		sources = append(sources, found...)
	}
	for _, source := range sources {
		t.Run(strings.TrimSuffix(filepath.Base(source), ".c"), func(t *testing.T) {
			program := b.compile(t, source)
			t.Logf("%s", run(t, b.env(), program))
			t.Logf("%s", run(t, append(b.env(), "SLUICE_PROVIDERS=tcp"), program))
		})
	}
	t.Run("python", func(t *testing.T) { python(t, b) })
	t.Run("headers", func(t *testing.T) { headers(t, b) })
	t.Run("symbols", func(t *testing.T) { symbols(t, b) })
}

// headers compiles sluice.h alone, as other languages and older standards see it.
func headers(t *testing.T, b *built) {
	for _, std := range []string{"c99", "c11", "gnu17"} {
		run(t, nil, "cc", "-x", "c", "-std="+std, "-Wall", "-Wextra", "-Werror", "-pedantic",
			"-fsyntax-only", "sluice.h")
	}
}

// symbols compares what sluice.h declares with what the library has.
func symbols(t *testing.T, b *built) {
	text, err := os.ReadFile("sluice.h")
	if err != nil {
		t.Fatal(err)
	}
	has := run(t, nil, "nm", "-D", "--defined-only", filepath.Join(b.dir, "libsluice.so.1"))
	declared := functionsOf(string(text))
	if len(declared) < 40 {
		t.Fatalf("found only %v in sluice.h", declared)
	}
	for _, name := range declared {
		if !strings.Contains(has, " T "+name+"\n") {
			t.Errorf("the library has no %s", name)
		}
	}
}
