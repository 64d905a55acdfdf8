package metatest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// together runs fn n times at once.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// testRaceCreateRmdir: a name made in a directory and the removal of the directory never both
// succeed.
func testRaceCreateRmdir(e *env) {
	for round := range 60 {
		name := fmt.Sprint("d", round)
		dir := e.mkdir(meta.RootIno, name)
		var made, removed error
		together(2, func(i int) {
			if i == 0 {
				_, made = e.Service.Make(e.ctx, e.root(), dir, "f", meta.NewFile{Type: meta.Fifo})
			} else {
				removed = e.rmdir(meta.RootIno, name)
			}
		})
		switch {
		case made == nil:
			e.want(errs.NotEmpty, removed, "rmdir after a create")
		default:
			e.want(errs.NotFound, made, "create after rmdir")
			e.must(removed)
		}
	}
}

// testRaceCreates: creates in one directory all succeed, and the directory counts them.
func testRaceCreates(e *env) {
	dir := e.mkdir(meta.RootIno, "d")
	const workers, each = 16, 25
	var same atomic.Int32
	together(workers, func(i int) {
		for k := range each {
			typ := meta.Fifo
			if k%5 == 0 {
				typ = meta.Directory
			}
			f := meta.NewFile{Type: typ}
			_, err := e.Service.Make(e.ctx, e.root(), dir, fmt.Sprint(i, ".", k), f)
			if err != nil {
				e.Error(err)
			}
			_, err = e.Service.Make(e.ctx, e.root(), dir, fmt.Sprint("same", k), f)
			if err == nil {
				same.Add(1)
			} else if errs.KindOf(err) != errs.Exists {
				e.Error(err)
			}
		}
	})
	a := e.attr(dir)
	if n := len(e.names(dir)); n != workers*each+each || a.Size != int64(n) || same.Load() != each {
		e.Fatalf("%d names, %d counted, %d of %d contested ones made", n, a.Size, same.Load(), each)
	}
	if a.Nlink != 2+workers*each/5+each/5 {
		e.Fatalf("%d links", a.Nlink)
	}
}

// testRaceCycles moves directories into each other. Whatever succeeds, every directory is
// reachable from the root afterwards.
func testRaceCycles(e *env) {
	const n = 5
	for range 12 {
		top := e.mkdir(meta.RootIno, "top")
		var dirs [n]meta.Ino
		for i := range dirs {
			dirs[i] = e.mkdir(top, fmt.Sprint("d", i))
		}
		together(n, func(i int) {
			name := fmt.Sprint("d", i)
			err := e.rename(top, name, dirs[(i+1)%n], name, 0)
			if k := errs.KindOf(err); k != errs.OK && k != errs.Invalid {
				e.Error(err)
			}
		})
		reached := 0
		var walk func(dir meta.Ino)
		walk = func(dir meta.Ino) {
			reached++
			for _, ino := range e.names(dir) {
				walk(ino)
			}
		}
		walk(top)
		if reached != n+1 {
			e.Fatalf("%d of %d directories can be reached", reached, n+1)
		}
		e.must(e.rename(meta.RootIno, "top", meta.RootIno, fmt.Sprint("done", top), 0))
	}
}

// testRaceLinks makes and removes names of one inode at once: its link count is right at the end.
func testRaceLinks(e *env) {
	f := e.mkfile(meta.RootIno, "f")
	together(8, func(i int) {
		for k := range 10 {
			name := fmt.Sprint("l", i, ".", k)
			if _, err := e.Service.Link(e.ctx, e.root(), f, meta.RootIno, name); err != nil {
				e.Error(err)
			}
			if k%2 == 0 {
				if err := e.remove(meta.RootIno, name); err != nil {
					e.Error(err)
				}
			}
		}
	})
	if a := e.attr(f); a.Nlink != 1+8*5 {
		e.Fatalf("%d links, want %d", a.Nlink, 1+8*5)
	}
}

// testRaceOpenUnlink opens, closes and unlinks at once: in the end nothing is left, neither the
// inode nor its objects.
func testRaceOpenUnlink(e *env) {
	for round := range 25 {
		name := fmt.Sprint("f", round)
		h, err := e.create(meta.RootIno, name, meta.OpenWrite)
		e.must(err)
		ino := h.Attr.Ino
		together(6, func(i int) {
			switch i {
			case 0:
				if err := e.remove(meta.RootIno, name); err != nil {
					e.Error(err)
				}
			case 1:
				if err := e.Service.Close(e.ctx, e.root(), wrote(h.ID, 5, 0, 1)); err != nil {
					e.Error(err)
				}
			default:
				h, err := e.Service.Open(e.ctx, e.root(), ino, readWrite)
				if err == nil {
					err = e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: h.ID, Dirty: i%2 == 0,
						Change: meta.Change{Size: 5, Mtime: meta.UnixTime(0, 1)}})
				}
				if err != nil && errs.KindOf(err) != errs.NotFound {
					e.Error(err)
				}
			}
		})
		_, err = e.Service.GetAttr(e.ctx, e.root(), ino)
		e.want(errs.NotFound, err, "inode without names and handles")
		e.eventually("its objects are removed", func() bool { return e.objects.look(ino).removed })
	}
}
