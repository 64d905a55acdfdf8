package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// watch is a progress that counts.
type watch struct{ expected, added int64 }

func (w *watch) expect(n int64) { w.expected += n }
func (w *watch) add(n int64)    { w.added += n }
func (w *watch) end()           {}

func copyAll(t *testing.T, dst tree, from, to string, opts copyOptions) (*watch, error) {
	t.Helper()
	opts.workers = 1 // so that watch needs no lock
	w := &watch{}
	c := newCopier(dst, opts, w)
	return w, c.finish(c.copy(t.Context(), hostTree{}, from, to))
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestCopySizes(t *testing.T) {
	for _, size := range []int64{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, copyBytes} {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		want := pattern(size)
		write(t, from, want)
		w, err := copyAll(t, hostTree{}, from, to, copyOptions{sync: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(to)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %d came through, %v", size, len(got), err)
		}
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if w.expected != size || w.added != size {
			t.Errorf("progress says %d of %d, is %d", w.added, w.expected, size)
		}
	}
}

func TestCopyInSeveralPieces(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	want := pattern(5*copyBytes/2 + 17)
	write(t, from, want)
	c := newCopier(hostTree{}, copyOptions{workers: 4}, silent{})
	if err := c.finish(c.copy(t.Context(), hostTree{}, from, to)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes came through, %v", len(got), len(want), err)
	}
}

func TestCopyTree(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	write(t, filepath.Join(src, "one"), []byte("1"))
	write(t, filepath.Join(src, "sub", "two"), []byte("22"))
	if err := os.Symlink("sub/two", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := copyAll(t, hostTree{}, src, dst, copyOptions{}); err == nil {
		t.Fatal("a directory was copied without -r")
	}
	if _, err := copyAll(t, hostTree{}, src, dst, copyOptions{recursive: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dst, "link")); err != nil || string(got) != "22" {
		t.Fatalf("through the link: %q, %v", got, err)
	}
	if target, err := os.Readlink(filepath.Join(dst, "link")); err != nil || target != "sub/two" {
		t.Fatalf("link to %q, %v", target, err)
	}
}

// failing is a tree whose files cannot be written.
type failing struct{ hostTree }

func (failing) create(context.Context, string, fs.FileMode) (sink, error) {
	return nil, errors.New("disk on fire")
}

func TestCopyErrorsNameTheFileAndEndTheCopy(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, filepath.Join(dir, "src", name), []byte(name))
	}
	_, err := copyAll(t, failing{}, filepath.Join(dir, "src"), filepath.Join(dir, "dst"),
		copyOptions{recursive: true})
	if err == nil || !strings.Contains(err.Error(), "disk on fire") ||
		!strings.Contains(err.Error(), filepath.Join(dir, "src")) {
		t.Fatalf("got %v", err)
	}
	if _, err := copyAll(t, hostTree{}, filepath.Join(dir, "absent"), dir, copyOptions{}); err == nil {
		t.Fatal("what does not exist was copied")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCopier(hostTree{}, copyOptions{workers: 2, recursive: true}, silent{})
	err = c.finish(c.copy(ctx, hostTree{}, filepath.Join(dir, "src"), filepath.Join(dir, "dst2")))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
}
