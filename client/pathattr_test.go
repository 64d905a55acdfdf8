package client

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestPathAttributes changes all that programs change by path, of a file and of the link to it.
func TestPathAttributes(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{Cred: &meta.Cred{}})
	ctx := context.Background()
	touch(t, fs, "/file")
	must(t, fs.Symlink(ctx, "file", "/link"))
	must(t, fs.Chown(ctx, "/link", 7, -1))
	must(t, fs.Lchown(ctx, "/link", -1, 9))
	must(t, fs.Chmod(ctx, "/file", 0o751|os.ModeSetuid|os.ModeSticky))
	then := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	must(t, fs.Chtimes(ctx, "/link", time.Time{}, then))
	must(t, fs.Lchtimes(ctx, "/link", then.Add(1), time.Time{}))
	file, err := fs.Stat(ctx, "/link")
	must(t, err)
	link, err := fs.Lstat(ctx, "/link")
	must(t, err)
	if file.UID != 7 || file.GID != 0 || link.UID != 0 || link.GID != 9 {
		t.Errorf("owners %d:%d and %d:%d", file.UID, file.GID, link.UID, link.GID)
	}
	if file.Mode != 0o5751 || FileMode(&file) != 0o751|os.ModeSetuid|os.ModeSticky {
		t.Errorf("mode %o, %v", file.Mode, FileMode(&file))
	}
	if file.Mtime != meta.TimeOf(then) || file.Atime == meta.TimeOf(then) ||
		link.Atime != meta.TimeOf(then.Add(1)) || link.Mtime == meta.TimeOf(then) {
		t.Errorf("times %+v, %+v", file, link)
	}
	must(t, fs.Touch(ctx, "/link", false, true))
	must(t, fs.Ltouch(ctx, "/link", true, false))
	file, err = fs.Stat(ctx, "/file")
	must(t, err)
	link, err = fs.Lstat(ctx, "/link")
	must(t, err)
	if !file.Mtime.After(meta.TimeOf(then)) || !link.Atime.After(meta.TimeOf(then.Add(1))) {
		t.Errorf("times are not now: %s, %s", file.Mtime, link.Atime)
	}
	if err := fs.Chown(ctx, "/absent", 1, 1); errs.KindOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
}

// TestTouchIsForWriters: a time other than now is set by the owner only.
func TestTouchIsForWriters(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	root := c.client(Options{Cred: &meta.Cred{}})
	user := c.client(Options{Cred: &meta.Cred{UID: 5, GID: 5}})
	ctx := context.Background()
	touch(t, root, "/file")
	must(t, root.Chmod(ctx, "/file", 0o666))
	must(t, user.Touch(ctx, "/file", true, true))
	then := time.Unix(1, 0)
	if err := user.Chtimes(ctx, "/file", then, then); errs.KindOf(err) != errs.Perm {
		t.Errorf("%v", err)
	}
	must(t, root.Chmod(ctx, "/file", 0o644))
	if err := user.Touch(ctx, "/file", true, true); errs.KindOf(err) != errs.Access {
		t.Errorf("%v", err)
	}
}

func TestMknod(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{Cred: &meta.Cred{}})
	ctx := context.Background()
	for _, want := range []struct {
		path string
		t    meta.Type
		mode os.FileMode
		dev  uint32
	}{
		{"/fifo", meta.Fifo, os.ModeNamedPipe, 0},
		{"/socket", meta.Socket, os.ModeSocket, 0},
		{"/null", meta.CharDevice, os.ModeDevice | os.ModeCharDevice, 0x103},
		{"/disk", meta.BlockDevice, os.ModeDevice, 0x800},
		{"/plain", meta.Regular, 0, 0},
	} {
		must(t, fs.Mknod(ctx, want.path, want.t, 0o640, want.dev))
		a, err := fs.Lstat(ctx, want.path)
		must(t, err)
		if FileMode(&a) != want.mode|0o640 || a.Rdev != want.dev {
			t.Errorf("%s: %v, device %#x", want.path, FileMode(&a), a.Rdev)
		}
	}
	if err := fs.Mknod(ctx, "/fifo", meta.Fifo, 0, 0); errs.KindOf(err) != errs.Exists {
		t.Errorf("%v", err)
	}
	if err := fs.Mknod(ctx, "/dir", meta.Directory, 0, 0); errs.KindOf(err) != errs.Invalid {
		t.Errorf("%v", err)
	}
}

func TestRenames(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	must(t, fs.Symlink(ctx, "1", "/one"))
	must(t, fs.Symlink(ctx, "2", "/two"))
	if err := fs.RenameNoReplace(ctx, "/one", "/two"); errs.KindOf(err) != errs.Exists {
		t.Errorf("%v", err)
	}
	must(t, fs.Exchange(ctx, "/one", "/two"))
	if target, err := fs.Readlink(ctx, "/one"); err != nil || target != "2" {
		t.Errorf("%q, %v", target, err)
	}
	must(t, fs.RenameNoReplace(ctx, "/one", "/three"))
	if err := fs.Exchange(ctx, "/one", "/two"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
}

func TestPathXattrs(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	touch(t, fs, "/file")
	if all, err := fs.Lxattrs(ctx, "/file"); err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
	must(t, fs.LsetXattr(ctx, "/file", Xattr{"user.b", []byte{0, 1}}))
	must(t, fs.LsetXattr(ctx, "/file", Xattr{"user.a", nil}))
	must(t, fs.LsetXattr(ctx, "/file", Xattr{"user.b", []byte("again")}))
	all, err := fs.Lxattrs(ctx, "/file")
	if err != nil || len(all) != 2 || all[0].Name != "user.a" || string(all[1].Value) != "again" {
		t.Fatalf("%v, %v", all, err)
	}
}
