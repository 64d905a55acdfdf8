package metatest

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func testRename(e *env) {
	a, b := e.mkdir(meta.RootIno, "a"), e.mkdir(meta.RootIno, "b")
	f := e.mkfile(a, "f")
	e.must(e.rename(a, "f", a, "g", 0))
	e.must(e.rename(a, "g", b, "h", meta.RenameNoReplace))
	if got, err := e.lookup(b, "h"); err != nil || got.Ino != f {
		e.Fatalf("%v: %d, want %d", err, got.Ino, f)
	}
	if n := len(e.names(a)); n != 0 {
		e.Fatalf("%d names left behind", n)
	}
	victim := e.mkfile(a, "victim")
	e.must(e.rename(b, "h", a, "victim", 0))
	_, err := e.Service.GetAttr(e.ctx, e.root(), victim)
	e.want(errs.NotFound, err, "replaced file")
	// A directory may replace an empty one.
	full := e.mkdir(b, "full")
	inside := e.mkfile(full, "x")
	empty := e.mkdir(a, "empty")
	e.must(e.rename(b, "full", a, "empty", 0))
	_, err = e.Service.GetAttr(e.ctx, e.root(), empty)
	e.want(errs.NotFound, err, "replaced directory")
	if got, err := e.lookup(full, "x"); err != nil || got.Ino != inside {
		e.Fatalf("%v: what was in the directory is %d, want %d", err, got.Ino, inside)
	}
	// Two names of one inode: nothing happens.
	_, err = e.Service.Link(e.ctx, e.root(), f, b, "second")
	e.must(err)
	e.must(e.rename(a, "victim", b, "second", 0))
	if e.names(a)["victim"] != f || e.names(b)["second"] != f || e.attr(f).Nlink != 2 {
		e.Fatal("a rename between two names of one inode changed something")
	}
	e.must(e.rename(a, "victim", a, "victim", 0))
}

func testRenameRefusals(e *env) {
	d, full := e.mkdir(meta.RootIno, "d"), e.mkdir(meta.RootIno, "full")
	f, sub := e.mkfile(full, "f"), e.mkdir(full, "sub")
	_ = f
	deep := e.mkdir(sub, "deep")
	for _, c := range []struct {
		what    string
		dir     meta.Ino
		name    string
		newDir  meta.Ino
		newName string
		flags   meta.RenameFlags
		want    errs.Kind
	}{
		{"nothing", d, "x", d, "y", 0, errs.NotFound},
		{"onto taken", full, "f", full, "sub", meta.RenameNoReplace, errs.Exists},
		{"file onto directory", full, "f", full, "sub", 0, errs.IsDir},
		{"directory onto file", full, "sub", full, "f", 0, errs.NotDir},
		{"onto full directory", meta.RootIno, "d", meta.RootIno, "full", 0, errs.NotEmpty},
		{"below itself", full, "sub", deep, "x", 0, errs.Invalid},
		{"into itself", full, "sub", sub, "x", 0, errs.Invalid},
		{"onto its parent", full, "sub", meta.RootIno, "full", 0, errs.NotEmpty},
		{"exchange with nothing", full, "f", full, "x", meta.RenameExchange, errs.NotFound},
		{"exchange with its parent", full, "sub", meta.RootIno, "full", meta.RenameExchange,
			errs.Invalid},
		{"dot", d, ".", meta.RootIno, "x", 0, errs.Busy},
		{"onto dots", meta.RootIno, "d", d, "..", 0, errs.Busy},
		{"both flags", full, "f", full, "x", meta.RenameExchange | meta.RenameNoReplace, errs.Invalid},
		{"unknown flag", full, "f", full, "x", 8, errs.Invalid},
		{"into a file", full, "sub", f, "x", 0, errs.NotDir},
		{"into nothing", full, "f", 999_999, "x", 0, errs.NotFound},
	} {
		e.want(c.want, e.rename(c.dir, c.name, c.newDir, c.newName, c.flags), c.what)
	}
}

func testRenameExchange(e *env) {
	a, b := e.mkdir(meta.RootIno, "a"), e.mkdir(meta.RootIno, "b")
	file, dir := e.mkfile(a, "x"), e.mkdir(b, "y")
	inside := e.mkfile(dir, "inside")
	e.must(e.rename(a, "x", b, "y", meta.RenameExchange))
	if e.names(a)["x"] != dir || e.names(b)["y"] != file || e.names(dir)["inside"] != inside {
		e.Fatal("names are not swapped")
	}
	if up, err := e.lookup(dir, ".."); err != nil || up.Ino != a {
		e.Fatalf("%v: parent of the directory is %d, want %d", err, up.Ino, a)
	}
	if e.attr(a).Nlink != 3 || e.attr(b).Nlink != 2 {
		e.Fatalf("links %d and %d, want 3 and 2", e.attr(a).Nlink, e.attr(b).Nlink)
	}
}

func testRenameParents(e *env) {
	a, b := e.mkdir(meta.RootIno, "a"), e.mkdir(meta.RootIno, "b")
	c := e.mkdir(a, "c")
	if e.attr(a).Nlink != 3 || e.attr(b).Nlink != 2 {
		e.Fatal("a sub-directory is not counted as a link")
	}
	ctime := e.attr(c).Ctime
	e.must(e.rename(a, "c", b, "c", 0))
	if e.attr(a).Nlink != 2 || e.attr(b).Nlink != 3 || !e.attr(c).Ctime.After(ctime) {
		e.Fatal("links or ctime do not follow a directory to its new parent")
	}
	e.must(e.rename(meta.RootIno, "a", c, "a", 0))
	e.want(errs.Invalid, e.rename(meta.RootIno, "b", a, "b", 0), "below its grandchild")
	e.must(e.rename(b, "c", meta.RootIno, "c", 0))
	e.must(e.rename(meta.RootIno, "b", a, "b", 0))
	if up, err := e.lookup(b, ".."); err != nil || up.Ino != a {
		e.Fatalf("%v: parent is %d, want %d", err, up.Ino, a)
	}
}
