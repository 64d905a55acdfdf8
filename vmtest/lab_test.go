package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

func TestKernelPackage(t *testing.T) {
	table := []struct{ lines, want string }{
		{"linux-image-amd64\n  Depends: linux-image-6.1.0-9-amd64\n", "linux-image-6.1.0-9-amd64"},
		{"linux-image-amd64\n |Depends: a\n  Depends: linux-base\n", ""},
		{"", ""},
	}
	for _, row := range table {
		if got := kernelPackage([]byte(row.lines)); got != row.want {
			t.Errorf("%q: %q, want %q", row.lines, got, row.want)
		}
	}
}

func TestInsmodFiles(t *testing.T) {
	got := insmodFiles("builtin crc\ninsmod /m/a.ko \ninsmod /m/b.ko x=1\n\nnonsense\n")
	if want := []string{"/m/a.ko", "/m/b.ko"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

// TestArchiveIsCpio has another program unpack what we pack.
func TestArchiveIsCpio(t *testing.T) {
	path, err := lookPath("busybox")
	if err != nil {
		Need(t)
	}
	var a archive
	a.folder("dir")
	a.file("dir/seven", 0o640, []byte("1234567"))
	a.file("empty", 0o755, nil)
	dir := t.TempDir()
	cmd := exec.Command(path, "cpio", "-i")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(string(a.end()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "dir/seven"))
	if err != nil || string(text) != "1234567" {
		t.Fatalf("%q, %v", text, err)
	}
	for name, want := range map[string]os.FileMode{"dir/seven": 0o640, "empty": 0o755} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"a relative folder": {Cache: "here"},
		"a folder's spaces": {Cache: "/tmp/with space"},
		"a negative limit":  {Cache: "/tmp", PrepareLimit: -1},
	} {
		if _, err := Open(t.Context(), o); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]GuestConfig{
		"no name":          {},
		"no host name":     {Name: "a b"},
		"little memory":    {Name: "a", Memory: 16},
		"no processor":     {Name: "a", CPUs: -1},
		"a negative limit": {Name: "a", LifeLimit: -1},
		"a relative share": {Name: "a", Share: "here"},
	} {
		if _, err := new(Lab).Start(t.Context(), c); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]Command{
		"no script": {}, "a negative limit": {Script: "true", Limit: -1},
	} {
		if _, err := new(Guest).Exec(t.Context(), c); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnePreparesAtATime(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockFolder(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := lockFolder(ctx, dir); !errors.Is(err, errs.TimedOut) {
		t.Fatalf("a second lock: %v", err)
	}
	unlock()
	unlock, err = lockFolder(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestOldInitrdsGo(t *testing.T) {
	dir := t.TempDir()
	first, err := keepInitrd(dir, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := keepInitrd(dir, []byte("one")); again != first || err != nil {
		t.Fatalf("%s, %v: not the same again", again, err)
	}
	long := time.Now().Add(-2 * initrdKeep)
	if err := os.Chtimes(first, long, long); err != nil {
		t.Fatal(err)
	}
	second, err := keepInitrd(dir, []byte("two"))
	if err != nil || second == first {
		t.Fatalf("%s, %v", second, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if !slices.Equal(left, []string{second}) {
		t.Fatalf("left over: %q", left)
	}
}

// verdict is a Judge that notes what was decided.
type verdict struct{ said string }

func (v *verdict) Helper()                      {}
func (v *verdict) Skipf(f string, args ...any)  { v.said = "skip " + fmt.Sprintf(f, args...) }
func (v *verdict) Fatalf(f string, args ...any) { v.said = "fail " + fmt.Sprintf(f, args...) }

func TestNeedSaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("SLUICE_VMTEST", "")
	var v verdict
	Need(&v)
	if !strings.HasPrefix(v.said, "skip ") || !strings.Contains(v.said, "qemu-system-x86") {
		t.Errorf("without tools: %q", v.said)
	}
	t.Setenv("SLUICE_VMTEST", "must")
	Need(&v)
	if !strings.HasPrefix(v.said, "fail ") {
		t.Errorf("when it must run: %q", v.said)
	}
	t.Setenv("SLUICE_VMTEST", "")
	t.Setenv("SLUICE_VMTEST_CACHE", "here")
	Need(&v)
	if !strings.HasPrefix(v.said, "fail ") {
		t.Errorf("set up wrongly: %q", v.said)
	}
}

func TestBusyboxMustBeStatic(t *testing.T) {
	bash, err := lookPath("bash")
	if err != nil {
		Need(t)
	}
	dir := t.TempDir()
	if err := os.Symlink(bash, filepath.Join(dir, "busybox")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if path, err := staticBusybox(); !errors.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "busybox-static") {
		t.Errorf("%s, %v", path, err)
	}
}

func TestConsoleKeepsItsEnd(t *testing.T) {
	var c console
	line := strings.Repeat("x", 1023) + "\n"
	for range 3 * consoleMax / len(line) {
		fmt.Fprint(&c, line)
	}
	fmt.Fprint(&c, "the end")
	if got := c.tail(2 * consoleMax); !strings.HasSuffix(got, "the end") ||
		len(got) < consoleMax || len(got) > 2*consoleMax+64 || !strings.HasPrefix(got, "[") {
		t.Fatalf("%d bytes are kept: %.40q", len(got), got)
	}
	if got := c.tail(3); !strings.HasSuffix(got, "\nend") {
		t.Fatalf("the last three bytes: %q", got)
	}
}
