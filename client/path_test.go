package client

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

func touch(t testing.TB, fs *FS, path string) {
	t.Helper()
	f, err := fs.Create(context.Background(), path)
	must(t, err)
	must(t, f.Close(context.Background()))
}

func TestPaths(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	must(t, fs.MkdirAll(ctx, "/a/b/c", 0o755))
	must(t, fs.MkdirAll(ctx, "a/b/c/", 0o755))
	touch(t, fs, "/a/b/c/file")
	must(t, fs.Symlink(ctx, "b/c", "/a/short"))
	must(t, fs.Symlink(ctx, "/a/b", "/abs"))
	must(t, fs.Symlink(ctx, "../a/short/file", "/a/tofile"))
	must(t, fs.Symlink(ctx, "loop2", "/loop1"))
	must(t, fs.Symlink(ctx, "loop1", "/loop2"))
	must(t, fs.Symlink(ctx, "nowhere", "/dangling"))
	for _, test := range []struct {
		path string
		want errs.Kind
	}{
		{"/", errs.OK}, {"", errs.OK}, {".", errs.OK}, {"..", errs.OK}, {"/../..", errs.OK},
		{"a/b/c/file", errs.OK}, {"/a//b/./c/../c/file", errs.OK}, {"/a/short/file", errs.OK},
		{"/abs/c/file", errs.OK}, {"/a/tofile", errs.OK}, {"/a/short/../c/file", errs.OK},
		{"/a/b/c/file/", errs.NotDir}, {"/a/b/c/file/x", errs.NotDir}, {"/a/short/", errs.OK},
		{"/a/x", errs.NotFound}, {"/a/x/y", errs.NotFound}, {"/loop1", errs.Loop},
		{"/loop1/x", errs.Loop}, {"/dangling", errs.NotFound},
		{strings.Repeat("x", 300), errs.NameTooLong}, {strings.Repeat("x/", 3000), errs.NameTooLong},
	} {
		_, err := fs.Stat(ctx, test.path)
		if errs.KindOf(err) != test.want {
			t.Errorf("stat %.40q: %v, want %v", test.path, err, test.want)
		}
	}
	if a, err := fs.Lstat(ctx, "/dangling"); err != nil || a.Type != meta.Symlink {
		t.Errorf("lstat of a dangling link: %v, %v", a.Type, err)
	}
	if s, err := fs.Readlink(ctx, "/a/tofile"); err != nil || s != "../a/short/file" {
		t.Errorf("readlink: %q, %v", s, err)
	}
	if _, err := fs.Readlink(ctx, "/a"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("readlink of a directory: %v", err)
	}
	// Creating through a dangling link makes its target.
	touch(t, fs, "/dangling")
	if _, err := fs.Lstat(ctx, "/nowhere"); err != nil {
		t.Error(err)
	}
}

func TestOpenFlags(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	must(t, fs.Mkdir(ctx, "/dir", 0o755))
	touch(t, fs, "/file")
	must(t, fs.Symlink(ctx, "file", "/link"))
	for _, test := range []struct {
		path string
		flag int
		want errs.Kind
	}{
		{"/file", os.O_RDONLY, errs.OK}, {"/none", os.O_RDWR, errs.NotFound},
		{"/new", os.O_RDWR | os.O_CREATE | os.O_EXCL, errs.OK},
		{"/new", os.O_RDWR | os.O_CREATE | os.O_EXCL, errs.Exists},
		{"/link", os.O_RDWR | os.O_CREATE | os.O_EXCL, errs.Exists},
		{"/link", os.O_RDWR | os.O_CREATE, errs.OK},
		{"/dir", os.O_RDONLY, errs.IsDir}, {"/dir", os.O_CREATE | os.O_RDWR, errs.IsDir},
		{"/", os.O_RDONLY, errs.IsDir}, {"/none/x", os.O_CREATE | os.O_RDWR, errs.NotFound},
		{"/file/x", os.O_CREATE | os.O_RDWR, errs.NotDir},
		{"/file", os.O_WRONLY | os.O_RDWR, errs.Invalid},
	} {
		f, err := fs.OpenFile(ctx, test.path, test.flag, 0o644)
		if errs.KindOf(err) != test.want {
			t.Errorf("open %s %#x: %v, want %v", test.path, test.flag, err, test.want)
		}
		if err == nil {
			must(t, f.Close(ctx))
		}
	}
	f, err := fs.OpenFile(ctx, "/file", os.O_RDWR|os.O_SYNC, 0)
	must(t, err)
	_, err = f.IO(ctx).Write([]byte("hello"))
	must(t, err)
	must(t, f.Close(ctx))
	f, err = fs.OpenFile(ctx, "/file", os.O_RDWR|os.O_TRUNC, 0)
	must(t, err)
	if f.Size() != 0 {
		t.Errorf("size after O_TRUNC: %d", f.Size())
	}
	must(t, f.Close(ctx))
}

func TestRenameRemove(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	must(t, fs.MkdirAll(ctx, "/d/e", 0o755))
	touch(t, fs, "/d/f")
	must(t, fs.Link(ctx, "/d/f", "/hard"))
	if a, err := fs.Stat(ctx, "/hard"); err != nil || a.Nlink != 2 {
		t.Errorf("links %d, %v", a.Nlink, err)
	}
	must(t, fs.Rename(ctx, "/d/f", "/d/e/g"))
	if _, err := fs.Stat(ctx, "/d/f"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("old name: %v", err)
	}
	for _, test := range []struct {
		got  error
		want errs.Kind
	}{
		{fs.Remove(ctx, "/d"), errs.NotEmpty}, {fs.Remove(ctx, "/none"), errs.NotFound},
		{fs.Remove(ctx, "/"), errs.Invalid}, {fs.Rename(ctx, "/none", "/x"), errs.NotFound},
		{fs.Rename(ctx, "/d", "/d/e/x"), errs.Invalid}, {fs.Rename(ctx, "/", "/x"), errs.Busy},
		{fs.Mkdir(ctx, "/d", 0o755), errs.Exists}, {fs.Mkdir(ctx, "/x/y", 0o755), errs.NotFound},
		{fs.MkdirAll(ctx, "/hard/x", 0o755), errs.NotDir}, {fs.RemoveAll(ctx, "/none"), errs.OK},
		{fs.Symlink(ctx, "x", "/d"), errs.Exists}, {fs.RemoveAll(ctx, "/"), errs.Invalid},
	} {
		if errs.KindOf(test.got) != test.want {
			t.Errorf("%v, want %v", test.got, test.want)
		}
	}
	must(t, fs.Remove(ctx, "/hard"))
	must(t, fs.RemoveAll(ctx, "/d"))
	if _, err := fs.Stat(ctx, "/d"); errs.KindOf(err) != errs.NotFound {
		t.Error(err)
	}
}

func TestTrees(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	var want []string
	for i := range 3 {
		dir := fmt.Sprintf("/tree/%d", i)
		must(t, fs.MkdirAll(ctx, dir, 0o755))
		want = append(want, dir)
		for k := range 400 {
			p := fmt.Sprintf("%s/%d", dir, k)
			touch(t, fs, p)
			want = append(want, p)
		}
	}
	want = append(want, "/tree")
	var got []string
	must(t, fs.Walk(ctx, "/tree", func(p string, _ meta.Attr) error {
		got = append(got, p)
		return nil
	}))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("walked %d, want %d", len(got), len(want))
	}
	n := 0
	must(t, fs.Walk(ctx, "/tree", func(p string, _ meta.Attr) error {
		n++
		if p == "/tree/1" {
			return iofs.SkipDir
		}
		if strings.HasPrefix(p, "/tree/2/") {
			return iofs.SkipAll
		}
		return nil
	}))
	if n >= len(want)-400 {
		t.Errorf("skipped nothing: %d", n)
	}
	stop := errors.New("stop")
	if err := fs.ReadDir(ctx, "/tree/0", func(meta.Entry) error { return stop }); err != stop {
		t.Errorf("%v", err)
	}
	must(t, fs.RemoveAll(ctx, "/tree"))
	must(t, fs.ReadDir(ctx, "/", func(e meta.Entry) error {
		return fmt.Errorf("left over: %s", e.Name)
	}))
}

// TestPermissions are those of the FS's user.
func TestPermissions(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	alice := c.client(Options{Cred: &meta.Cred{UID: 1, GID: 1}})
	bob := c.client(Options{Cred: &meta.Cred{UID: 2, GID: 2}})
	ctx := context.Background()
	must(t, alice.Mkdir(ctx, "/private", 0o700))
	touch(t, alice, "/private/f")
	if _, err := bob.Stat(ctx, "/private/f"); errs.KindOf(err) != errs.Access {
		t.Errorf("%v", err)
	}
	if err := bob.Chmod(ctx, "/private", 0o777); errs.KindOf(err) != errs.Perm {
		t.Errorf("%v", err)
	}
	// A handle goes on when its rights were taken away after the open.
	f, err := alice.OpenFile(ctx, "/private/f", os.O_RDWR, 0)
	must(t, err)
	must(t, alice.Chmod(ctx, "/private/f", 0))
	write(t, f, []byte("x"), 0)
	must(t, f.Truncate(ctx, 0))
	must(t, f.Close(ctx))
}

func TestVolumes(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	fs := c.client(Options{Cred: &meta.Cred{}})
	ctx := context.Background()
	_, err := fs.CreateVolume(ctx, "disk", 5*unit, unit, 3)
	must(t, err)
	if _, err := fs.CreateVolume(ctx, "disk", 5*unit, 0, 0); errs.KindOf(err) != errs.Exists {
		t.Errorf("%v", err)
	}
	f, v, err := fs.OpenVolume(ctx, "disk", false)
	must(t, err)
	if v.Size != 5*unit || f.Size() != 5*unit {
		t.Fatalf("size %d, %d", v.Size, f.Size())
	}
	p := pattern(2*unit, 3)
	if _, err := f.WriteAtDurable(ctx, p, 3*unit); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(ctx, p, 4*unit); errs.KindOf(err) != errs.TooBig {
		t.Errorf("write behind the end: %v", err)
	}
	if err := f.Truncate(ctx, 0); err == nil {
		t.Error("a volume was truncated")
	}
	got := make([]byte, 5*unit)
	if _, err := f.ReadAt(ctx, got, 0); err != nil || !zero(got[:3*unit]) || got[3*unit] != p[0] {
		t.Fatalf("%v", err)
	}
	must(t, f.Punch(ctx, 3*unit, unit))
	must(t, f.Sync(ctx))
	must(t, f.Close(ctx))
	list, err := fs.ListVolumes(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "disk" {
		t.Fatalf("%v, %v", list, err)
	}
	must(t, fs.RemoveVolume(ctx, "disk"))
}
