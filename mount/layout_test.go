package mount

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

func xattrOf(t *testing.T, path, name string) string {
	t.Helper()
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, name, buf)
	if err != nil {
		t.Fatalf("%s of %s: %v", name, path, err)
	}
	return string(buf[:n])
}

func xattrNames(t *testing.T, path string) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(path, buf)
	must(t, err)
	return strings.TrimSuffix(strings.ReplaceAll(string(buf[:n]), "\x00", " "), " ")
}

// TestLayoutsOnTheMount: programs see and set layouts as extended attributes.
func TestLayoutsOnTheMount(t *testing.T) {
	c := newCluster(t, 4)
	top := c.mount(Options{}).Dir()
	_, err := c.meta.CreatePool(t.Context(), meta.Caller{}, "fast", []uint32{2, 3})
	must(t, err)
	dir := filepath.Join(top, "d")
	must(t, os.Mkdir(dir, 0o755))
	set := func(path, name, value string) error { return unix.Lsetxattr(path, name, []byte(value), 0) }
	must(t, set(dir, layout.AttrUnit, "128K"))
	must(t, set(dir, layout.AttrPool, "fast"))
	if got := xattrNames(t, dir); got != layout.AttrUnit+" "+layout.AttrPool {
		t.Errorf("the directory has %q", got)
	}
	for _, bad := range []struct{ name, value string }{{layout.AttrUnit, "3"}, {layout.AttrWidth, "3"},
		{layout.AttrPool, "other"}, {layout.AttrAll, "wide"}} {
		if err := set(dir, bad.name, bad.value); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s %s: %v", bad.name, bad.value, err)
		}
	}
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	file := filepath.Join(dir, "sub", "f")
	data := pattern(1<<20, 3)
	must(t, os.WriteFile(file, data, 0o644))
	for name, want := range map[string]string{layout.AttrUnit: "128K", layout.AttrWidth: "2",
		layout.AttrPool: "fast", layout.AttrAll: "unit=128K pool=fast"} {
		if got := xattrOf(t, file, name); got != want {
			t.Errorf("%s of a file is %q, want %q", name, got, want)
		}
	}
	if got := xattrNames(t, file); got != layout.AttrAll {
		t.Errorf("the file has %q", got)
	}
	if err := set(file, layout.AttrWidth, "1"); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("the width of a file with data: %v", err)
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	inPool := st.Blocks
	must(t, unix.Statfs(top, &st))
	if st.Blocks != 2*inPool {
		t.Errorf("the pool has %d blocks of %d", inPool, st.Blocks)
	}
}

// TestLayoutOfAFileThatIsOpen: a program makes a file, says how it is striped, and writes it. One
// that has closed it a moment ago may still say so.
func TestLayoutOfAFileThatIsOpen(t *testing.T) {
	top := newMount(t)
	data := pattern(2<<20, 5)
	for _, open := range []bool{true, false} {
		for i := range 20 {
			path := filepath.Join(top, "f"+string(rune('a'+i)))
			_ = os.Remove(path)
			f, err := os.Create(path)
			must(t, err)
			if !open {
				must(t, f.Close())
			}
			must(t, unix.Lsetxattr(path, layout.AttrAll, []byte("unit=64K"), 0))
			must(t, unix.Lsetxattr(path, layout.AttrWidth, []byte("2"), 0))
			if !open {
				f, err = os.OpenFile(path, os.O_WRONLY, 0)
				must(t, err)
			}
			_, err = f.Write(data)
			must(t, err)
			must(t, f.Close())
			if got := xattrOf(t, path, layout.AttrWidth) + xattrOf(t, path, layout.AttrUnit); got != "264K" {
				t.Fatalf("width and unit are %s", got)
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%s holds other bytes: %v", path, err)
			}
		}
	}
}

// TestLayoutsAreCopied by programs that know nothing of them.
func TestLayoutsAreCopied(t *testing.T) {
	c := newCluster(t, 4)
	top := c.mount(Options{}).Dir()
	src, dst := filepath.Join(top, "src"), filepath.Join(top, "dst")
	must(t, os.Mkdir(src, 0o755))
	must(t, os.Mkdir(dst, 0o755))
	must(t, unix.Lsetxattr(src, layout.AttrAll, []byte("unit=64K width=1"), 0))
	must(t, unix.Lsetxattr(dst, layout.AttrWidth, []byte("3"), 0))
	for name, size := range map[string]int{"empty": 0, "small": 100, "large": 1 << 20} {
		must(t, os.WriteFile(filepath.Join(src, name), pattern(size, 1), 0o644))
	}
	for _, args := range [][]string{
		{"cp", "-a", src + "/.", filepath.Join(dst, "cp")},
		{"cp", "-r", "--preserve=xattr", src + "/.", filepath.Join(dst, "strict")},
		{"rsync", "-aX", src + "/", filepath.Join(dst, "rsync")},
		{"rsync", "-aX", src + "/", filepath.Join(dst, "rsync")},
	} {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Logf("%s is not installed", args[0])
			continue
		}
		to := args[len(args)-1]
		_ = os.Mkdir(to, 0o755)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		for _, name := range []string{"empty", "small", "large"} {
			if got := xattrOf(t, filepath.Join(to, name), layout.AttrAll); got != "unit=64K width=1" {
				t.Errorf("%s: %s is %q", args[0], name, got)
			}
		}
	}
}
