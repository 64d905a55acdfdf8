package metatest

import (
	"fmt"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func treeCases() []testCase {
	return []testCase{
		{"RemoveTree", testRemoveTree},
		{"RemoveTreePlain", testRemoveTreePlain},
		{"RemoveTreeOpen", testRemoveTreeOpen},
		{"RemoveTreeRights", testRemoveTreeRights},
		{"RemoveTreeRestart", testRemoveTreeRestart},
		{"RemoveTreeReplay", testRemoveTreeReplay},
		{"RemoveTreeMoves", testRemoveTreeMoves},
	}
}

func (e *env) removeTree(c meta.Caller, dir meta.Ino, name string) error {
	return e.Service.RemoveTree(e.ctx, c, dir, name)
}

// files is how many inodes there are.
func (e *env) files() int64 {
	e.Helper()
	st, err := e.Service.StatFS(e.ctx, meta.RootIno)
	e.must(err)
	return st.Files
}

// mktree makes directories, each with files and two directories, to a depth.
func (e *env) mktree(dir meta.Ino, name string, depth, files int) meta.Ino {
	e.Helper()
	top := e.mkdir(dir, name)
	for i := range files {
		e.mkfile(top, fmt.Sprint("f", i))
	}
	if depth > 0 {
		e.mktree(top, "a", depth-1, files)
		e.mktree(top, "b", depth-1, files)
	}
	return top
}

// testRemoveTree: the name is gone at once, all that was below it a little later; what has a name
// elsewhere, or was never below it, stays.
func testRemoveTree(e *env) {
	before := e.files()
	stay := e.mkdir(meta.RootIno, "stay")
	top := e.mktree(meta.RootIno, "tree", 3, 40)
	linked := e.mkfile(top, "linked")
	_, err := e.Service.Link(e.ctx, e.root(), linked, stay, "kept")
	e.must(err)
	// Two names of one file in one directory.
	_, err = e.Service.Link(e.ctx, e.root(), linked, top, "twice")
	e.must(err)
	e.mustMake(top, "symlink", meta.NewFile{Type: meta.Symlink, Target: "x"})
	e.must(e.Service.SetXattr(e.ctx, e.root(), top, "user.x", []byte("y"), false, false))

	e.must(e.removeTree(e.root(), meta.RootIno, "tree"))
	_, err = e.lookup(meta.RootIno, "tree")
	e.want(errs.NotFound, err, "lookup of a removed tree")
	_, err = e.Service.Make(e.ctx, e.root(), top, "late", meta.NewFile{Type: meta.Fifo})
	e.want(errs.NotFound, err, "make in a removed directory")
	_, err = e.lookup(top, "..")
	e.want(errs.NotFound, err, ".. of a removed directory")
	e.mkdir(meta.RootIno, "tree") // the name is free
	e.must(e.rmdir(meta.RootIno, "tree"))
	e.eventually("the tree is gone", func() bool { return e.files() == before+2 })
	if a := e.attr(linked); a.Nlink != 1 {
		e.Fatalf("a file with a name elsewhere has %d links", a.Nlink)
	}
	if a := e.attr(meta.RootIno); a.Size != 1 || a.Nlink != 3 {
		e.Fatalf("the root has %d entries and %d links", a.Size, a.Nlink)
	}
}

// testRemoveTreePlain: what is no directory, and an empty one, goes at once.
func testRemoveTreePlain(e *env) {
	e.mkfile(meta.RootIno, "f")
	e.mkdir(meta.RootIno, "d")
	e.must(e.removeTree(e.root(), meta.RootIno, "f"))
	e.must(e.removeTree(e.root(), meta.RootIno, "d"))
	if n := e.names(meta.RootIno); len(n) != 0 {
		e.Fatalf("left: %v", n)
	}
	e.want(errs.NotFound, e.removeTree(e.root(), meta.RootIno, "f"), "remove of nothing")
	for name, kind := range map[string]errs.Kind{".": errs.Invalid, "..": errs.NotEmpty,
		"": errs.NotFound, "a/b": errs.Invalid} {
		e.want(kind, e.removeTree(e.root(), meta.RootIno, name), fmt.Sprintf("remove of %q", name))
	}
	file := e.mkfile(meta.RootIno, "f")
	e.want(errs.NotDir, e.removeTree(e.root(), file, "x"), "remove in a file")
}

// testRemoveTreeOpen: an open file lives on until it is closed; then its objects go.
func testRemoveTreeOpen(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	h, err := e.Service.Create(e.ctx, e.root(), e.mkdir(dir, "sub"), "open", meta.NewFile{},
		meta.OpenRead|meta.OpenWrite)
	e.must(err)
	e.objects.Write(h.Attr.Ino, 100)
	before := e.files()
	e.must(e.removeTree(e.root(), meta.RootIno, "d"))
	e.eventually("both directories are gone", func() bool { return e.files() == before-2 })
	if a := e.attr(h.Attr.Ino); a.Nlink != 0 || a.Size != 100 {
		e.Fatalf("the open file has %d links and %d bytes", a.Nlink, a.Size)
	}
	e.close(h)
	e.eventually("its objects are gone", func() bool { return e.objects.look(h.Attr.Ino).removed })
	_, err = e.Service.GetAttr(e.ctx, e.root(), h.Attr.Ino)
	e.want(errs.NotFound, err, "stat of what is gone")
}

// testRemoveTreeRights: as rm -r, but all or nothing.
func testRemoveTreeRights(e *env) {
	top := e.owned(meta.RootIno, "top", meta.Directory, 0o777)
	alices := e.user(alice)
	make := func(dir meta.Ino, name string, c meta.Caller, typ meta.Type, mode uint32) meta.Ino {
		e.Helper()
		a, err := e.Service.Make(e.ctx, c, dir, name, meta.NewFile{Type: typ, Mode: mode})
		e.must(err)
		return a.Ino
	}
	refused := func(what string, kind errs.Kind, c meta.Caller, dir meta.Ino, name string) {
		e.Helper()
		files := e.files()
		e.want(kind, e.removeTree(c, dir, name), what)
		_, err := e.lookup(dir, name)
		e.must(err)
		if now := e.files(); now != files {
			e.Fatalf("%s: %d of %d inodes are left of a tree that was refused", what, now, files)
		}
	}
	// Files of others go, empty directories of others too, whatever their modes.
	before := e.files()
	dir := make(top, "mixed", alices, meta.Directory, 0o777)
	make(dir, "roots", e.root(), meta.Regular, 0)
	make(dir, "empty", e.root(), meta.Directory, 0)
	e.must(e.removeTree(alices, top, "mixed"))
	e.eventually("the tree is gone", func() bool { return e.files() == before })
	// A directory that is not empty must be the caller's to read, write and search.
	for _, mode := range []uint32{0o755, 0o773, 0o776, 0o700} {
		dir = make(top, fmt.Sprintf("closed%o", mode), alices, meta.Directory, 0o777)
		deep := make(make(dir, "a", alices, meta.Directory, 0o755), "b", e.root(), meta.Directory, mode)
		make(deep, "f", e.root(), meta.Regular, 0o666)
		refused("closed", errs.Access, alices, top, fmt.Sprintf("closed%o", mode))
	}
	// The directory that the name is taken from counts as in rmdir.
	shut := make(meta.RootIno, "shut", e.root(), meta.Directory, 0o755)
	dir = make(shut, "d", e.root(), meta.Directory, 0o777)
	make(dir, "f", alices, meta.Regular, 0o666)
	refused("not to be written", errs.Access, alices, shut, "d")
	// Sticky: only one's own, or from one's own directory.
	dir = make(top, "sticky", e.user(bob), meta.Directory, 0o1777)
	make(dir, "alices", alices, meta.Regular, 0o666)
	make(dir, "bobs", e.user(bob), meta.Regular, 0o666)
	refused("sticky", errs.Perm, alices, top, "sticky")
	e.must(e.removeTree(e.user(bob), top, "sticky"))
}

// testRemoveTreeRestart: a removal goes on after a restart, and comes to its end.
func testRemoveTreeRestart(e *env) {
	before := e.files()
	for i := range 4 {
		e.mktree(meta.RootIno, fmt.Sprint("t", i), 3, 60)
	}
	for i := range 4 {
		e.must(e.removeTree(e.root(), meta.RootIno, fmt.Sprint("t", i)))
		e.restart()
		if e.Verify != nil {
			e.Verify(e)
		}
	}
	e.eventually("all trees are gone", func() bool { return e.files() == before })
}

// testRemoveTreeReplay: repeated after a lost answer it is not done twice.
func testRemoveTreeReplay(e *env) {
	e.mktree(meta.RootIno, "t", 1, 2)
	c := e.root()
	c.ReqID = [16]byte{1: 1}
	e.must(e.removeTree(c, meta.RootIno, "t"))
	again := e.mktree(meta.RootIno, "t", 1, 2)
	e.must(e.removeTree(c, meta.RootIno, "t"))
	if a, err := e.lookup(meta.RootIno, "t"); err != nil || a.Ino != again {
		e.Fatalf("a repetition removed another tree: %v", err)
	}
}

// testRemoveTreeMoves: what is moved out before its turn stays, and nothing can be moved into a
// directory that is gone.
func testRemoveTreeMoves(e *env) {
	for i := range 20 {
		top := e.mktree(meta.RootIno, fmt.Sprint("t", i), 1, 30)
		sub := e.names(top)["b"]
		e.must(e.removeTree(e.root(), meta.RootIno, fmt.Sprint("t", i)))
		outside := e.mkdir(meta.RootIno, fmt.Sprint("o", i))
		err := e.rename(sub, "f7", outside, "saved", 0)
		if k := errs.KindOf(err); k != errs.OK && k != errs.NotFound {
			e.Fatal(err)
		}
		if err == nil {
			if a, err := e.lookup(outside, "saved"); err != nil || a.Nlink != 1 {
				e.Fatalf("what was moved out: %v, %d links", err, a.Nlink)
			}
		}
		e.want(errs.NotFound, e.rename(meta.RootIno, fmt.Sprint("o", i), top, "in", 0),
			"move into a directory that is gone")
		e.want(errs.NotFound, e.rename(meta.RootIno, fmt.Sprint("o", i), sub, "in", 0),
			"move into a directory whose tree is gone")
	}
	e.eventually("only what was outside is left", func() bool {
		return e.files() <= 1+20+20 && len(e.names(meta.RootIno)) == 20
	})
}
