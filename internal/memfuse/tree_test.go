package memfuse

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestTree does through the kernel what cp, tar and git do: directories, renames over files, links,
// symbolic links, modes and times, and files that are open when their name goes.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	unmount, err := Mount(dir)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	defer unmount()
	at := func(name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(at("a", "b"), 0o750))
	must(os.WriteFile(at("a", "x"), []byte("one"), 0o640))
	must(os.WriteFile(at("a", "y"), []byte("second"), 0o600))
	must(os.Link(at("a", "x"), at("a", "b", "again")))
	must(os.Symlink("../a/x", at("a", "link")))
	open, err := os.Open(at("a", "y"))
	must(err)
	defer open.Close()
	must(os.Rename(at("a", "x"), at("a", "y")))
	got := make([]byte, 6)
	if _, err := open.ReadAt(got, 0); err != nil || string(got) != "second" {
		t.Fatalf("an open file whose name was taken: %q, %v", got, err)
	}
	for _, name := range []string{at("a", "y"), at("a", "b", "again")} {
		if text, err := os.ReadFile(name); err != nil || string(text) != "one" {
			t.Fatalf("%s: %q, %v", name, text, err)
		}
	}
	if target, err := os.Readlink(at("a", "link")); err != nil || target != "../a/x" {
		t.Fatalf("link to %q, %v", target, err)
	}
	when := time.Unix(1_000_000_000, 0)
	must(os.Chtimes(at("a", "y"), when, when))
	info, err := os.Stat(at("a", "y"))
	must(err)
	if info.Mode() != 0o640 || !info.ModTime().Equal(when) || info.Size() != 3 {
		t.Fatalf("mode %v, time %v, size %d", info.Mode(), info.ModTime(), info.Size())
	}
	if err := os.Remove(at("a")); err == nil {
		t.Fatal("a directory that is not empty was removed")
	}
	list, err := os.ReadDir(at("a"))
	must(err)
	if len(list) != 3 {
		t.Fatalf("%d names in the directory: %v", len(list), list)
	}
	must(os.RemoveAll(at("a")))
}

// TestGrowing lets a file grow from a few bytes over the sizes at which its memory is replaced.
func TestGrowing(t *testing.T) {
	m := newMemory()
	f := &file{pool: &m.pool}
	var want []byte
	for i := 0; len(want) < 3*chunkBytes; i++ {
		piece := bytes.Repeat([]byte{byte(i)}, 1+len(want)/3)
		f.mu.Lock()
		off := int64(len(want))
		f.growLocked(off + int64(len(piece)))
		for done, p := 0, f.slicesLocked(off, int64(len(piece))); len(p) > 0; p = p[1:] {
			done += copy(p[0], piece[done:])
		}
		f.mu.Unlock()
		want = append(want, piece...)
	}
	got := bytes.Join(f.slicesLocked(0, f.size), nil)
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	f.truncate(10)
	f.truncate(chunkBytes + 10)
	got = bytes.Join(f.slicesLocked(0, f.size), nil)
	if !bytes.Equal(got, append(want[:10:10], make([]byte, chunkBytes)...)) {
		t.Fatal("what a truncation cut off is there again")
	}
}

// TestPrograms copies a tree in, archives it back and removes it.
func TestPrograms(t *testing.T) {
	dir, src := t.TempDir(), t.TempDir()
	unmount, err := Mount(dir)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	defer unmount()
	for _, name := range []string{"p/q/r", "p/s"} {
		if err := os.MkdirAll(filepath.Join(src, name), 0o755); err != nil {
			t.Fatal(err)
		}
		text := bytes.Repeat([]byte(name), 5000)
		if err := os.WriteFile(filepath.Join(src, name, "f"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"cp", "-a", src + "/p", dir}, {"diff", "-r", src, dir},
		{"rm", "-r", dir + "/p"}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}
