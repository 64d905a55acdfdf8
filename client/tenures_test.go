package client

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// listedDir is a client that has listed a directory which another one has filled that is gone, and
// one more.
func listedDir(t *testing.T, files int) (c *cluster, svc *tells, fs, other *FS) {
	t.Helper()
	c, svc, fs, other = filledDir(t, files)
	listAll(t, fs, "/d")
	listAll(t, fs, "/d/sub")
	return c, svc, fs, other
}

// filledDir is listedDir without the listing.
func filledDir(t *testing.T, files int) (c *cluster, svc *tells, fs, other *FS) {
	t.Helper()
	ctx := context.Background()
	c = newCluster(t, 2, unhurried)
	filler := c.client(Options{Cred: &meta.Cred{}})
	must(t, filler.Mkdir(ctx, "/d", 0o777))
	must(t, filler.Mkdir(ctx, "/d/sub", 0o777))
	for i := range files {
		writeAll(t, filler, fmt.Sprint("/d/f", i), "data")
	}
	must(t, filler.Close())
	other = c.client(Options{Cred: &meta.Cred{}})
	svc = &tells{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{}})
	must(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	listened(t, fs)
	return c, svc, fs, other
}

// TestKnownFilesAreHeld: files that were looked at one by one are removed without the service, too,
// though nobody has listed their directory. Other names in it are not known.
func TestKnownFilesAreHeld(t *testing.T) {
	ctx := context.Background()
	const files = 2 * knownFirst
	_, svc, fs, other := filledDir(t, files+1)
	for i := range files {
		_, err := fs.Stat(ctx, fmt.Sprint("/d/f", i))
		must(t, err)
	}
	must(t, fs.Remove(ctx, "/d/f0"))
	release := svc.hold()
	for i := 1; i < files; i++ {
		must(t, fs.Remove(ctx, fmt.Sprint("/d/f", i)))
	}
	if s := fs.Deferred(); s.Held != 1 || s.Removed < files-1 {
		t.Fatalf("%+v", s)
	}
	release()
	if _, err := fs.OpenFile(ctx, fmt.Sprint("/d/f", files), os.O_CREATE|os.O_EXCL|os.O_RDWR,
		0o644); errs.KindOf(err) != errs.Exists {
		t.Errorf("a file that nobody here has looked at: %v", err)
	}
	if err := fs.Remove(ctx, "/d"); errs.KindOf(err) != errs.NotEmpty {
		t.Errorf("the directory is removed: %v", err)
	}
	left := 0
	must(t, other.ReadDir(ctx, "/d", func(meta.Entry) error { left++; return nil }))
	if left != 2 { // the last file, and sub
		t.Errorf("%d names are left", left)
	}
}

func listAll(t *testing.T, fs *FS, path string) {
	t.Helper()
	ctx := context.Background()
	dir := ino(t, fs, path)
	for cookie := uint64(0); ; {
		page, err := fs.ReadDirPage(ctx, meta.Cred{}, dir, cookie, 100, true)
		if must(t, err); len(page) == 0 {
			return
		}
		cookie = page[len(page)-1].Cookie
	}
}

// TestListedDirectoryIsHeld: names in a directory that was listed are removed and made without the
// service, which is told later; and others see it as soon as it has returned.
func TestListedDirectoryIsHeld(t *testing.T) {
	ctx := context.Background()
	_, svc, fs, other := listedDir(t, 5)
	release := svc.hold()
	for i := range 4 {
		must(t, fs.Remove(ctx, fmt.Sprint("/d/f", i)))
	}
	must(t, fs.Remove(ctx, "/d/sub"))
	if s := fs.Deferred(); s.Removed != 5 || s.Untold != 5 {
		t.Fatalf("%+v", s)
	}
	numbered(t, fs)
	must(t, fs.Mkdir(ctx, "/d/new", 0o755))
	release()
	for _, name := range []string{"f0", "f1", "f2", "f3", "sub"} {
		if _, err := other.Stat(ctx, "/d/"+name); errs.KindOf(err) != errs.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"f4", "new"} {
		if _, err := other.Stat(ctx, "/d/"+name); err != nil {
			t.Error(err)
		}
	}
	if d, err := other.Stat(ctx, "/d"); err != nil || d.Nlink != 3 {
		t.Errorf("%+v %v", d, err)
	}
}

// TestFilesOfOthersAreRemovedAtOnce: a file that another client has open, or knows, is removed at
// the service when that returns, also in a directory that is held.
func TestFilesOfOthersAreRemovedAtOnce(t *testing.T) {
	ctx := context.Background()
	_, svc, fs, other := listedDir(t, 4)
	f, err := other.OpenFile(ctx, "/d/f1", os.O_RDWR, 0)
	must(t, err)
	defer f.Close(ctx)
	listAll(t, fs, "/d")
	must(t, fs.Remove(ctx, "/d/f0"))
	must(t, fs.Remove(ctx, "/d/f1"))
	release := svc.hold()
	defer release()
	if a, err := f.Stat(ctx); err != nil || a.Nlink != 0 {
		t.Errorf("%+v %v", a, err)
	}
}

// TestHeldFileThatWasWritten: a file that this client opens for writing is one that others may know
// again when that is closed.
func TestHeldFileThatWasWritten(t *testing.T) {
	ctx := context.Background()
	_, _, fs, _ := listedDir(t, 4)
	must(t, fs.Remove(ctx, "/d/f0")) // it asks for the others
	f1 := ino(t, fs, "/d/f1")
	if fs.cache.Tenure(f1) == 0 {
		t.Fatal("the file was not asked for")
	}
	f, err := fs.OpenFile(ctx, "/d/f1", os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(ctx, []byte("more"), 0)
	must(t, err)
	must(t, f.Close(ctx))
	if fs.cache.Tenure(f1) != 0 {
		t.Error("the file still counts as known to nobody else")
	}
	must(t, fs.Remove(ctx, "/d/f1"))
}
