package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// watch is a progress that counts.
type watch struct{ expected, added atomic.Int64 }

func (w *watch) expect(n int64) { w.expected.Add(n) }
func (w *watch) add(n int64)    { w.added.Add(n) }
func (w *watch) end()           {}

// copyAll copies on this host; the error is that of all that failed.
func copyAll(t *testing.T, dst tree, from, to string, opts copyOptions) (*watch, *copySum, error) {
	t.Helper()
	return copyBetween(t, hostTree{}, dst, from, to, opts)
}

func copyBetween(t *testing.T, src, dst tree, from, to string, opts copyOptions) (
	*watch, *copySum, error) {
	t.Helper()
	opts.workers = 1 // so that failures come one after the other
	w := &watch{}
	c := newCopier(dst, opts, w)
	var failed []error
	c.complain = func(path string, err error) {
		failed = append(failed, fmt.Errorf("%s: %w", path, err))
	}
	c.copy(t.Context(), src, from, to)
	sum := c.finish(t.Context())
	if len(failed) != len(sum.Failed) {
		t.Errorf("%d failures were told, %d are noted", len(failed), len(sum.Failed))
	}
	return w, sum, errors.Join(failed...)
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
		w, sum, err := copyAll(t, hostTree{}, from, to, copyOptions{sync: true})
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
		if sum.Files != 1 || sum.Bytes != size {
			t.Errorf("%d bytes: %+v", size, sum)
		}
		if w.expected.Load() != size || w.added.Load() != size {
			t.Errorf("progress says %d of %d, is %d", w.added.Load(), w.expected.Load(), size)
		}
	}
}

func TestCopyInSeveralPieces(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	want := pattern(5*copyBytes/2 + 17)
	write(t, from, want)
	c := newCopier(hostTree{}, copyOptions{workers: 4}, silent{})
	c.copy(t.Context(), hostTree{}, from, to)
	if sum := c.finish(t.Context()); len(sum.Failed) > 0 {
		t.Fatal(sum.Failed)
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
	if _, _, err := copyAll(t, hostTree{}, src, dst, copyOptions{}); err == nil {
		t.Fatal("a directory was copied without -r")
	}
	if _, _, err := copyAll(t, hostTree{}, src, dst, copyOptions{recursive: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dst, "link")); err != nil || string(got) != "22" {
		t.Fatalf("through the link: %q, %v", got, err)
	}
	if target, err := os.Readlink(filepath.Join(dst, "link")); err != nil || target != "sub/two" {
		t.Fatalf("link to %q, %v", target, err)
	}
}

// failing is a tree in which files of some names cannot be written.
type failing struct {
	hostTree
	name string
}

func (f failing) create(ctx context.Context, name string, perm fs.FileMode, keep bool) (
	sink, error) {
	if filepath.Base(name) == f.name {
		return nil, errors.New("disk on fire")
	}
	return f.hostTree.create(ctx, name, perm, keep)
}

func TestCopyErrorsAreCountedAndTheRestIsCopied(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, filepath.Join(dir, "src", name), []byte(name))
	}
	_, sum, err := copyAll(t, failing{name: "b"}, filepath.Join(dir, "src"), filepath.Join(dir, "dst"),
		copyOptions{recursive: true})
	if err == nil || !strings.Contains(err.Error(), "disk on fire") ||
		!strings.Contains(err.Error(), filepath.Join(dir, "src", "b")) {
		t.Fatalf("got %v", err)
	}
	if sum.Files != 2 || len(sum.Failed) != 1 || sum.Directories != 1 {
		t.Errorf("%+v", sum)
	}
	for _, name := range []string{"a", "c"} {
		if _, err := os.Stat(filepath.Join(dir, "dst", name)); err != nil {
			t.Error(err)
		}
	}
	_, _, err = copyAll(t, hostTree{}, filepath.Join(dir, "absent"), dir, copyOptions{})
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("what does not exist was copied: %v", err)
	}
}

func TestInterruptedCopy(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "src", "a"), []byte("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCopier(hostTree{}, copyOptions{workers: 2, recursive: true}, silent{})
	c.copy(ctx, hostTree{}, filepath.Join(dir, "src"), filepath.Join(dir, "dst"))
	if sum := c.finish(ctx); !sum.Interrupted || sum.Files != 0 || len(sum.Failed) != 0 {
		t.Fatalf("%+v", sum)
	}
}
