package client

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// TestListsUnderLeases: what lists allow a user of the library is answered from what is known under
// a lease, and is new at once when this client or another has changed it.
func TestListsUnderLeases(t *testing.T) {
	ctx := context.Background()
	c, svc, fs := lone(t)
	other := c.client(Options{})
	must(t, fs.Mkdir(ctx, "/d", 0o700))
	f, err := fs.Create(ctx, "/d/f")
	must(t, err)
	write(t, f, []byte("data"), 0)
	must(t, f.Close(ctx))
	d, err := fs.Stat(ctx, "/d")
	must(t, err)
	must(t, fs.Chmod(ctx, "/d/f", 0o600))
	u := meta.Cred{UID: 2000, GID: 2000, Groups: []uint32{55}}
	set := func(by *FS, ino meta.Ino, text string) {
		t.Helper()
		l, err := acl.ParseText(text)
		must(t, err)
		must(t, by.SetXattr(ctx, meta.Cred{}, ino, acl.Access, []byte(l), false, false))
	}
	try := func(what string, want errs.Kind) {
		t.Helper()
		a, err := fs.Lookup(ctx, u, d.Ino, "f")
		if err == nil {
			err = fs.readDir(ctx, fs.Caller(u), "/d", d.Ino, func(meta.Entry) error { return nil })
		}
		if err == nil {
			var f *File
			if f, err = fs.OpenIno(ctx, u, a.Ino, meta.OpenRead); err == nil {
				must(t, f.Close(ctx))
			}
		}
		if errs.KindOf(err) != want {
			t.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
	const none, user = "u::rwx,g::---,o::---", "u::rwx,u:2000:r-x,g::---,m::r-x,o::---"
	const group = "u::rwx,g::---,g:55:r--,m::r--,o::---"
	try("without a list", errs.Access)
	for _, by := range []*FS{fs, other} {
		set(by, d.Ino, user)
		try("with a list of the directory", errs.Access)
		set(by, f.Ino(), group)
		try("with both lists", errs.OK)
		try("again", errs.OK)
		wantCalls(t, "what is known", svc.during(func() { try("from memory", errs.OK) }), nil)
		set(by, d.Ino, none)
		try("with the file's only", errs.Access)
		set(by, f.Ino(), none)
	}
	a, err := fs.GetAttr(ctx, meta.Cred{}, d.Ino)
	if err != nil || a.ACL != "" || a.Mode != 0o700 {
		t.Errorf("%v: %o, %s", err, a.Mode, a.ACL)
	}
}

// TestParentsOfMovedDirectories: what is known of a directory is not where it was.
func TestParentsOfMovedDirectories(t *testing.T) {
	ctx := context.Background()
	c, _, fs := lone(t)
	other := c.client(Options{})
	for _, name := range []string{"/a", "/b", "/a/sub"} {
		must(t, fs.Mkdir(ctx, name, 0o755))
	}
	sub, err := fs.Stat(ctx, "/a/sub")
	must(t, err)
	for i, to := range []string{"/b", "/a", "/b", "/a"} {
		from := map[string]string{"/a": "/b", "/b": "/a"}[to]
		must(t, []*FS{fs, other}[i/2].Rename(ctx, from+"/sub", to+"/sub"))
		dir, err := fs.Stat(ctx, to)
		must(t, err)
		_, err = fs.Stat(ctx, to+"/sub")
		must(t, err)
		if a, known := fs.KnownRights(sub.Ino); known && a.Parent != dir.Ino {
			t.Errorf("in %s the parent is %d, not %d", to, a.Parent, dir.Ino)
		}
	}
}
