package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// interpreter is Debian's: others on the path may lack what the tests need.
func interpreter(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import pytest").Run() == nil {
			return name
		}
	}
	t.Skip("there is no Python with pytest")
	return ""
}

// python runs the package's own tests against a cluster, from the source tree, and builds the wheel
// and uses it as pip would install it.
func python(t *testing.T, b *built) {
	py := interpreter(t)
	library := filepath.Join(b.dir, "libsluice.so.1")
	env := []string{"SLUICE_URL=" + b.url, "SLUICE_LIBRARY=" + library, "PYTHONDONTWRITEBYTECODE=1"}
	out := run(t, env, py, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "../../python/tests")
	t.Logf("%s", out)
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "SKIPPED") && !strings.Contains(line, "pyarrow") { // Debian has none
			t.Errorf("not all tests have run: %s", line)
		}
	}
	if !strings.Contains(out, "passed") {
		t.Errorf("no test has run: %s", out)
	}
	if checker, err := exec.LookPath("mypy"); err == nil {
		run(t, nil, checker, "--strict", "--no-warn-unused-ignores", "--cache-dir", b.dir,
			"../../python/sluice")
	}

	wheel := strings.TrimSpace(run(t, nil, py, "../../python/wheel.py", "v1.2-3-gabc", library, b.dir))
	if name := filepath.Base(wheel); !strings.HasPrefix(name, "sluice-1.2+3.gabc-py3-none-linux_") {
		t.Errorf("the wheel is called %s", name)
	}
	site := filepath.Join(b.dir, "site")
	run(t, nil, py, "-m", "zipfile", "-e", wheel, site)
	script := filepath.Join(b.dir, "script.py")
	text := "import fsspec, sluice\n" + // registered by the wheel's entry points
		"with fsspec.open('sluice:///wheel', 'wb') as f: f.write(b'wheel')\n" +
		"print(sluice.connect().read_bytes('/wheel').decode(), sluice.version())\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, []string{"SLUICE_URL=" + b.url, "PYTHONPATH=" + site}, py, script)
	if !strings.HasPrefix(got, "wheel 1.0 (build test)") {
		t.Errorf("the wheel's package says %q", got)
	}
}
