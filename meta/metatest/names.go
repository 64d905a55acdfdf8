package metatest

import (
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func testMake(e *env) {
	for _, f := range []meta.NewFile{
		{Type: meta.Regular, Mode: 0o640},
		{Type: meta.Directory, Mode: 0o1750},
		{Type: meta.Symlink, Mode: 0o777, Target: "../somewhere"},
		{Type: meta.Fifo, Mode: 0o600},
		{Type: meta.Socket, Mode: 0o600},
		{Type: meta.CharDevice, Mode: 0o600, Rdev: 0x105},
		{Type: meta.BlockDevice, Mode: 0o600, Rdev: 0x800},
	} {
		name := string(rune('a' + f.Type))
		made := e.mustMake(meta.RootIno, name, f)
		found, err := e.lookup(meta.RootIno, name)
		e.must(err)
		for _, a := range []meta.Attr{made, found, e.attr(made.Ino)} {
			if a.Ino != made.Ino || a.Type != f.Type || a.Mode != f.Mode || a.Rdev != f.Rdev ||
				a.Gen == 0 || a.Mtime == (meta.Time{}) || a.Mtime != a.Ctime || a.Atime != a.Mtime {
				e.Fatalf("made %+v, got %+v", f, a)
			}
			want := map[bool]uint32{true: 2, false: 1}[f.Type == meta.Directory]
			if a.Nlink != want {
				e.Fatalf("type %d has %d links, want %d", f.Type, a.Nlink, want)
			}
		}
		if f.Type == meta.Symlink {
			target, err := e.Service.ReadLink(e.ctx, e.root(), made.Ino)
			if err != nil || target != f.Target || made.Size != int64(len(f.Target)) {
				e.Fatalf("%v: target %q, size %d", err, target, made.Size)
			}
		} else {
			_, err := e.Service.ReadLink(e.ctx, e.root(), made.Ino)
			e.want(errs.Invalid, err, "ReadLink of what is no symlink")
		}
	}
}

func testMakeRefusals(e *env) {
	dir, file := e.mkdir(meta.RootIno, "d"), e.mkfile(meta.RootIno, "f")
	long := strings.Repeat("x", meta.NameMax+1)
	regular := meta.NewFile{Type: meta.Regular, Mode: 0o644}
	for _, c := range []struct {
		what string
		dir  meta.Ino
		name string
		f    meta.NewFile
		want errs.Kind
	}{
		{"taken name", meta.RootIno, "d", regular, errs.Exists},
		{"dot", dir, ".", regular, errs.Exists},
		{"dots", dir, "..", regular, errs.Exists},
		{"in a file", file, "x", regular, errs.NotDir},
		{"in nothing", 999_999, "x", regular, errs.NotFound},
		{"no name", dir, "", regular, errs.NotFound},
		{"long name", dir, long, regular, errs.NameTooLong},
		{"slash", dir, "a/b", regular, errs.Invalid},
		{"NUL", dir, "a\x00", regular, errs.Invalid},
		{"no type", dir, "x", meta.NewFile{Mode: 0o644}, errs.Invalid},
		{"unknown type", dir, "x", meta.NewFile{Type: 99}, errs.Invalid},
		{"odd mode", dir, "x", meta.NewFile{Type: meta.Regular, Mode: 0o10644}, errs.Invalid},
		{"no target", dir, "x", meta.NewFile{Type: meta.Symlink}, errs.NotFound},
		{"long target", dir, "x", meta.NewFile{Type: meta.Symlink,
			Target: strings.Repeat("x", meta.SymlinkMax+1)}, errs.NameTooLong},
	} {
		_, err := e.Service.Make(e.ctx, e.root(), c.dir, c.name, c.f)
		e.want(c.want, err, c.what)
	}
	e.mkfile(dir, long[1:])
	if n := len(e.names(dir)); n != 1 {
		e.Fatalf("%d entries after refusals and the longest name, want 1", n)
	}
}

func testDevices(e *env) {
	open := meta.NewFile{Type: meta.Directory, Mode: 0o777}
	dir := e.mustMake(meta.RootIno, "open", open).Ino
	for _, typ := range []meta.Type{meta.CharDevice, meta.BlockDevice} {
		_, err := e.Service.Make(e.ctx, e.user(alice), dir, "dev", meta.NewFile{Type: typ, Rdev: 1})
		e.want(errs.Perm, err, "a device made by a user")
	}
	_, err := e.Service.Make(e.ctx, e.user(alice), dir, "pipe", meta.NewFile{Type: meta.Fifo})
	e.must(err)
}

func testLookup(e *env) {
	a := e.mkdir(meta.RootIno, "a")
	b := e.mkdir(a, "b")
	for _, c := range []struct {
		dir  meta.Ino
		name string
		want meta.Ino
	}{
		{meta.RootIno, ".", meta.RootIno}, {meta.RootIno, "..", meta.RootIno},
		{meta.RootIno, "a", a}, {a, "b", b}, {b, "..", a}, {b, ".", b},
	} {
		got, err := e.lookup(c.dir, c.name)
		if err != nil || got.Ino != c.want {
			e.Fatalf("lookup of %q in %d: %d %v, want %d", c.name, c.dir, got.Ino, err, c.want)
		}
	}
	f := e.mkfile(a, "f")
	for _, c := range []struct {
		dir  meta.Ino
		name string
		want errs.Kind
	}{
		{a, "nothing", errs.NotFound}, {f, "x", errs.NotDir}, {f, ".", errs.NotDir},
		{1 << 40, "x", errs.NotFound},
		{a, strings.Repeat("n", meta.NameMax+1), errs.NameTooLong},
	} {
		_, err := e.lookup(c.dir, c.name)
		e.want(c.want, err, c.name)
	}
}

func testLink(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	f := e.mkfile(meta.RootIno, "f")
	a, err := e.Service.Link(e.ctx, e.root(), f, dir, "g")
	if err != nil || a.Nlink != 2 || a.Ino != f {
		e.Fatalf("%v: %+v", err, a)
	}
	for _, c := range []struct {
		what string
		ino  meta.Ino
		name string
		want errs.Kind
	}{
		{"taken name", f, "g", errs.Exists},
		{"directory", dir, "h", errs.Perm},
		{"no inode", 999_999, "h", errs.NotFound},
		{"dots", f, "..", errs.Exists},
	} {
		_, err := e.Service.Link(e.ctx, e.root(), c.ino, dir, c.name)
		e.want(c.want, err, c.what)
	}
	e.must(e.remove(meta.RootIno, "f"))
	if a := e.attr(f); a.Nlink != 1 {
		e.Fatalf("%d links after one of two names is gone", a.Nlink)
	}
	h := e.open(f, meta.OpenRead)
	e.must(e.remove(dir, "g"))
	_, err = e.Service.Link(e.ctx, e.root(), f, dir, "back")
	e.want(errs.NotFound, err, "a name for what has none left")
	e.close(h)
	_, err = e.Service.GetAttr(e.ctx, e.root(), f)
	e.want(errs.NotFound, err, "inode without names")
}

func testRemove(e *env) {
	before, err := e.Service.StatFS(e.ctx, meta.RootIno)
	e.must(err)
	dir := e.mkdir(meta.RootIno, "d")
	f := e.mkfile(dir, "f")
	e.want(errs.NotEmpty, e.rmdir(meta.RootIno, "d"), "rmdir of a full directory")
	e.must(e.remove(dir, "f"))
	_, err = e.lookup(dir, "f")
	e.want(errs.NotFound, err, "removed file")
	_, err = e.Service.GetAttr(e.ctx, e.root(), f)
	e.want(errs.NotFound, err, "removed inode")
	e.must(e.rmdir(meta.RootIno, "d"))
	_, err = e.Service.Make(e.ctx, e.root(), dir, "x", meta.NewFile{Type: meta.Regular})
	e.want(errs.NotFound, err, "a file in a removed directory")
	after, err := e.Service.StatFS(e.ctx, meta.RootIno)
	e.must(err)
	if after.Files != before.Files {
		e.Fatalf("%d inodes before, %d after", before.Files, after.Files)
	}
	if again := e.mkfile(meta.RootIno, "f"); again <= f {
		e.Fatalf("inode %d after %d: a number came back", again, f)
	}
}

// testTimeTold compares the times that removals and renames tell with those that are there.
func testTimeTold(e *env) {
	dir, other := e.mkdir(meta.RootIno, "d"), e.mkdir(meta.RootIno, "e")
	f := e.mkfile(dir, "f")
	e.mkfile(dir, "g")
	same := func(what string, at meta.Time, inos ...meta.Ino) {
		e.Helper()
		for _, ino := range inos {
			if a := e.attr(ino); at == (meta.Time{}) || a.Ctime != at {
				e.Fatalf("%s: told %v, inode %d was changed at %v", what, at, ino, a.Ctime)
			}
		}
		if m := e.attr(inos[0]).Mtime; m != at {
			e.Fatalf("%s: told %v, the directory's time is %v", what, at, m)
		}
	}
	at, err := e.Service.Rename(e.ctx, e.root(), dir, "f", other, "f", 0)
	e.must(err)
	same("rename", at, other, dir, f)
	at, err = e.Service.Remove(e.ctx, e.root(), dir, "g", false)
	e.must(err)
	same("remove", at, dir)
	c := e.root()
	c.ReqID[0] = 77
	_, err = e.Service.Remove(e.ctx, c, other, "f", false)
	e.must(err)
	later := e.mkfile(other, "later")
	if at, err := e.Service.Remove(e.ctx, c, other, "f", false); err != nil || at != (meta.Time{}) {
		e.Fatalf("repeated: told %v (%v), inode %d was made since", at, err, later)
	}
}

func testRemoveRefusals(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	file := e.mkfile(meta.RootIno, "f")
	for _, c := range []struct {
		what  string
		dir   meta.Ino
		name  string
		isDir bool
		want  errs.Kind
	}{
		{"unlink directory", meta.RootIno, "d", false, errs.IsDir},
		{"rmdir file", meta.RootIno, "f", true, errs.NotDir},
		{"unlink nothing", dir, "x", false, errs.NotFound},
		{"rmdir nothing", dir, "x", true, errs.NotFound},
		{"rmdir dot", dir, ".", true, errs.Invalid},
		{"rmdir dots", dir, "..", true, errs.NotEmpty},
		{"unlink dot", dir, ".", false, errs.IsDir},
		{"in a file", file, "x", false, errs.NotDir},
		{"no name", dir, "", false, errs.NotFound},
	} {
		e.want(c.want, Failed(e.Service.Remove(e.ctx, e.root(), c.dir, c.name, c.isDir)), c.what)
	}
}
