package metatest

import (
	"fmt"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func testReadDirPages(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	if n := len(e.list(dir, 10)); n != 0 {
		e.Fatalf("an empty directory has %d entries", n)
	}
	want := map[string]meta.Ino{}
	for i := range 1100 {
		name := fmt.Sprint("f", i)
		want[name] = e.mustMake(dir, name, meta.NewFile{Type: meta.Fifo}).Ino
	}
	for _, page := range []int{1, 7, 1 << 30} {
		seen := map[string]bool{}
		for _, n := range e.list(dir, page) {
			if seen[n.Name] || want[n.Name] != n.Ino || n.Type != meta.Fifo || n.Cookie == 0 ||
				n.Attr == nil || n.Attr.Ino != n.Ino {
				e.Fatalf("page size %d: wrong or repeated entry %+v", page, n)
			}
			seen[n.Name] = true
		}
		if len(seen) != len(want) {
			e.Fatalf("page size %d: %d entries of %d", page, len(seen), len(want))
		}
	}
	first, err := e.Service.ReadDir(e.ctx, e.root(), dir, 0, 1<<30, false)
	if err != nil || len(first) > meta.DirPageMax || first[0].Attr != nil {
		e.Fatalf("%v: page of %d, attributes %v", err, len(first), first[0].Attr)
	}
	file := e.mkfile(meta.RootIno, "f")
	_, err = e.Service.ReadDir(e.ctx, e.root(), file, 0, 10, false)
	e.want(errs.NotDir, err, "ReadDir of a file")
	_, err = e.Service.ReadDir(e.ctx, e.root(), dir, 0, 0, false)
	e.want(errs.Invalid, err, "page of nothing")
	last, err := e.Service.ReadDir(e.ctx, e.root(), dir, ^uint64(0), 10, false)
	if err != nil || len(last) != 0 {
		e.Fatalf("behind the last cookie: %v %v", last, err)
	}
}

// testReadDirDuringChanges reads in small pages while other names come, go, are renamed,
// replaced and exchanged. Each name that is there all the time is listed exactly once, and so is
// a file that is renamed after it was listed.
func testReadDirDuringChanges(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	const n = 40
	for i := range n {
		e.mkfile(dir, fmt.Sprint("stay", i))
		e.mkfile(dir, fmt.Sprint("go", i))
		e.mkfile(dir, fmt.Sprint("old", i))
	}
	names, inos := map[string]int{}, map[meta.Ino]int{}
	round := 0
	for cookie := uint64(0); ; round++ {
		page, err := e.Service.ReadDir(e.ctx, e.root(), dir, cookie, 7, false)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, x := range page {
			names[x.Name]++
			cookie = x.Cookie
			if strings.HasPrefix(x.Name, "old") {
				inos[x.Ino]++
				e.must(e.rename(dir, x.Name, dir, "new"+x.Name[3:], 0))
			}
			if strings.HasPrefix(x.Name, "new") {
				inos[x.Ino]++
			}
		}
		if round < n {
			e.must(e.remove(dir, fmt.Sprint("go", round)))
			e.mkfile(dir, fmt.Sprint("late", round))
			e.must(e.rename(dir, fmt.Sprint("late", round), dir, fmt.Sprint("stay", round*7%n), 0))
			e.must(e.rename(dir, fmt.Sprint("stay", round), dir, fmt.Sprint("stay", (round+11)%n),
				meta.RenameExchange))
		}
	}
	if round < 10 {
		e.Fatalf("the directory was read in %d pages: nothing could change in between", round)
	}
	for i := range n {
		if c := names[fmt.Sprint("stay", i)]; c != 1 {
			e.Fatalf("stay%d, which stayed, was listed %d times", i, c)
		}
	}
	for ino, c := range inos {
		if c != 1 {
			e.Fatalf("inode %d, renamed while it was read, was listed %d times", ino, c)
		}
	}
}

func testDirectoryAttr(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	last := e.attr(dir)
	step := func(what string, size int64, links uint32, do func()) {
		e.Helper()
		do()
		a := e.attr(dir)
		if a.Size != size || a.Nlink != links {
			e.Fatalf("%s: %d entries and %d links, want %d and %d", what, a.Size, a.Nlink, size, links)
		}
		if !a.Mtime.After(last.Mtime) || !a.Ctime.After(last.Ctime) {
			e.Fatalf("%s: times do not move on", what)
		}
		last = a
	}
	other := e.mkdir(meta.RootIno, "other")
	step("file", 1, 2, func() { e.mkfile(dir, "f") })
	step("directory", 2, 3, func() { e.mkdir(dir, "s") })
	step("link", 3, 3, func() {
		_, err := e.Service.Link(e.ctx, e.root(), e.names(dir)["f"], dir, "g")
		e.must(err)
	})
	step("rename within", 3, 3, func() { e.must(e.rename(dir, "g", dir, "h", 0)) })
	step("replace", 2, 3, func() {
		e.must(e.remove(dir, "h"))
		e.mkfile(dir, "h")
		e.must(e.rename(dir, "h", dir, "f", 0))
	})
	step("rename out", 1, 2, func() { e.must(e.rename(dir, "s", other, "s", 0)) })
	step("unlink", 0, 2, func() { e.must(e.remove(dir, "f")) })
	// An explicit time stays until the next change.
	_, err := e.Service.SetAttr(e.ctx, e.root(), dir, meta.SetMtime,
		meta.Attr{Mtime: meta.UnixTime(0, 5)})
	e.must(err)
	if a := e.attr(dir); a.Mtime != meta.UnixTime(0, 5) || !a.Ctime.After(last.Ctime) {
		e.Fatalf("mtime %d and ctime %d after utimes", a.Mtime, a.Ctime)
	}
	e.mkfile(dir, "f")
	if a := e.attr(dir); !a.Mtime.After(last.Mtime) {
		e.Fatal("a change after utimes is not seen in mtime")
	}
}
