package metatest

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// testHoles: which files may have holes.
func testHoles(e *env) {
	set := func(ino meta.Ino, mask meta.SetMask, size int64) {
		e.Helper()
		_, err := e.Service.SetAttr(e.ctx, e.root(), ino, mask, meta.Attr{Size: size})
		e.must(err)
	}
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	f := h.Attr.Ino
	want := func(holes bool, what string) {
		e.Helper()
		if a := e.attr(f); a.Holes != holes {
			e.Fatalf("%s: %+v", what, a)
		}
	}
	e.objects.Write(f, 1000)
	want(false, "being written")
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 1000, h.Attr.TruncSeq, 1)))
	want(false, "written")
	set(f, meta.SetSize, 1000)
	want(false, "truncated to its size")
	set(f, meta.SetSize, 1001)
	want(true, "extended")
	set(f, meta.SetSize, 900)
	want(true, "cut")
	set(f, meta.SetSize, 0)
	want(false, "cut to nothing")
	h = e.open(f, meta.OpenWrite)
	w := wrote(h.ID, 0, h.Attr.TruncSeq, 1)
	w.Change.Holes = true
	e.must(e.Service.Close(e.ctx, e.root(), w))
	want(true, "its writer says so")
	e.restart()
	want(true, "after a restart")
	seq := e.attr(f).TruncSeq
	set(f, meta.SetSize, 0) // it is empty, but space may be reserved for it
	want(false, "cut to nothing again")
	if now := e.attr(f).TruncSeq; now <= seq {
		e.Fatalf("the I/O servers were not told to give back what is reserved: %d", now)
	}
	e.close(e.open(f, meta.OpenWrite|meta.OpenTruncate))
	want(false, "opened with truncation")
}

// testSpaceOfHoles: GetAttr asks for the space of such files, once for the same data; nobody else
// does, and who does not want to know waits for nothing.
func testSpaceOfHoles(e *env) {
	f := e.mkfile(meta.RootIno, "f")
	_, err := e.Service.SetAttr(e.ctx, e.root(), f, meta.SetSize, meta.Attr{Size: 1000})
	e.must(err)
	look := func() int64 {
		e.Helper()
		a, err := e.lookup(meta.RootIno, "f")
		e.must(err)
		list, err := e.Service.ReadDir(e.ctx, e.root(), meta.RootIno, 0, 9, true)
		e.must(err)
		if len(list) != 1 || !a.Holes || list[0].Attr.Allocated != a.Allocated {
			e.Fatalf("%+v, %+v", a, list)
		}
		return a.Allocated
	}
	if n := look(); n >= 0 || e.objects.spacesAsked() != 0 {
		e.Fatalf("space %d before anybody asked", n)
	}
	for range 3 {
		if a := e.attr(f); a.Allocated != 500 {
			e.Fatalf("%+v", a)
		}
	}
	if n, asked := look(), e.objects.spacesAsked(); n != 500 || asked != 1 {
		e.Fatalf("space %d, asked for %d times", n, asked)
	}
	h := e.open(f, meta.OpenWrite)
	for i := range 3 { // other data, although nobody has said so yet
		e.objects.Write(f, int64(2000+1000*i))
		if a := e.attr(f); a.Allocated != a.Size/2 {
			e.Fatalf("%+v", a)
		}
	}
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 4000, h.Attr.TruncSeq, 1)))
	if n := look(); n >= 0 {
		e.Fatalf("space %d of other data", n)
	}
	asked := e.objects.spacesAsked()
	e.objects.Fail(errs.Disconnected)
	for range 3 {
		if a := e.attr(f); !a.Holes || a.Allocated >= 0 || a.Size != 4000 {
			e.Fatalf("without an I/O server: %+v", a)
		}
	}
	if n := e.objects.spacesAsked() - asked; n != 1 {
		e.Fatalf("%d questions to servers that are away", n)
	}
	e.objects.Fail(nil)
}
