package client

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestDirectoriesOfNewFiles: what a client knows of a directory in which it makes files and
// directories, or opens files that others have made, is what the service knows; and a file that it
// makes in a directory that it knows costs one request.
func TestDirectoriesOfNewFiles(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, withLongLeases(store.Options{}))
	svc := &counting{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	other := c.client(Options{})
	listened(t, fs)
	must(t, other.Mkdir(ctx, "/d", 0o777))
	d, err := other.Stat(ctx, "/d")
	must(t, err)
	same := func(after string) {
		t.Helper()
		got, err := fs.GetAttr(ctx, *fs.opts.Cred, d.Ino)
		must(t, err)
		want, err := c.service().GetAttr(ctx, meta.Caller{}, d.Ino)
		must(t, err)
		if got.Size != want.Size || got.Nlink != want.Nlink || got.Mtime != want.Mtime ||
			got.Ctime != want.Ctime {
			t.Fatalf("after %s: it takes the directory for %+v, it is %+v", after, got, want)
		}
	}
	touch(t, other, "/d/empty")
	same("others made a file")
	f, err := fs.OpenFile(ctx, "/d/empty", os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	same("a file was opened that is as good as new")
	must(t, f.Close(ctx))
	for i := range 3 {
		name := fmt.Sprint("/d/f", i)
		if _, err := fs.Stat(ctx, name); err == nil {
			t.Fatal("it is there")
		}
		var f *File
		asked := svc.during(func() {
			f, err = fs.Create(ctx, name)
			must(t, err)
			same("a file was made")
		})
		if asked["getattr"] > 0 || asked["create"] != 1 {
			t.Errorf("for a file and its directory the service was asked for %v", asked)
		}
		must(t, f.Close(ctx))
		must(t, fs.Mkdir(ctx, fmt.Sprint("/d/d", i), 0o700))
		same("a directory was made")
		must(t, fs.Remove(ctx, name))
		same("a file was removed")
	}
}
