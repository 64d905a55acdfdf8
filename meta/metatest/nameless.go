package metatest

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// namelessCases are about files that are made without a name.
func namelessCases() []testCase {
	return []testCase{
		{"Nameless", testNameless},
		{"NamelessLinked", testNamelessLinked},
		{"NamelessRefusals", testNamelessRefusals},
		{"NamelessOfTheDead", testNamelessOfTheDead},
		{"NamelessQuota", testNamelessQuota},
		{"NamelessReplay", testNamelessReplay},
		{"RaceNameless", testRaceNameless},
	}
}

const nameless = readWrite | meta.OpenNameless

// temp makes a nameless file in the root.
func (e *env) temp(c meta.Caller, flags meta.OpenFlags) meta.Handle {
	e.Helper()
	h, err := e.Service.Create(e.ctx, c, meta.RootIno, "", meta.NewFile{Mode: 0o640}, flags)
	e.must(err)
	return h
}

// gone waits until an inode is no more.
func (e *env) gone(ino meta.Ino) {
	e.Helper()
	e.eventually("a nameless file is gone", func() bool {
		_, err := e.Service.GetAttr(e.ctx, e.root(), ino)
		return errs.KindOf(err) == errs.NotFound
	})
}

// testNameless: it has no name, is kept by its handles, also over a restart, and is gone with the
// last one.
func testNameless(e *env) {
	before := e.attr(meta.RootIno)
	h := e.temp(e.root(), nameless)
	ino := h.Attr.Ino
	if h.Attr.Nlink != 0 || h.Attr.Type != meta.Regular || h.Attr.Mode != 0o640 || !h.Attr.Writers {
		e.Fatalf("%+v", h.Attr)
	}
	if is := e.attr(meta.RootIno); is.Size != before.Size || is.Mtime != before.Mtime ||
		is.Ctime != before.Ctime {
		e.Fatalf("the directory has changed: %+v", is)
	}
	e.objects.Write(ino, 10)
	second := e.open(ino, meta.OpenRead)
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 10, 0, 1)))
	e.restart(held(second, meta.OpenRead))
	if a := e.attr(ino); a.Nlink != 0 || a.Size != 10 {
		e.Fatalf("%+v", a)
	}
	e.close(second)
	e.gone(ino)
	e.eventually("its objects are removed", func() bool { return e.objects.look(ino).removed })
	// One that nobody claims is gone with the restart.
	lost := e.temp(e.root(), nameless)
	e.restart()
	e.gone(lost.Attr.Ino)
}

// testNamelessLinked: a link gives it a name, and then it is like others.
func testNamelessLinked(e *env) {
	h := e.temp(e.root(), nameless)
	ino := h.Attr.Ino
	e.objects.Write(ino, 10)
	a, err := e.Service.Link(e.ctx, e.root(), ino, meta.RootIno, "f")
	if err != nil || a.Nlink != 1 || !a.Ctime.After(h.Attr.Ctime) || a.Btime != h.Attr.Btime {
		e.Fatalf("%v: %+v", err, a)
	}
	a, err = e.Service.Link(e.ctx, e.root(), ino, meta.RootIno, "g")
	if err != nil || a.Nlink != 2 {
		e.Fatalf("%v: %+v", err, a)
	}
	e.must(e.remove(meta.RootIno, "g"))
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 10, 0, 1)))
	e.restart()
	if got, err := e.lookup(meta.RootIno, "f"); err != nil || got.Ino != ino || got.Size != 10 {
		e.Fatalf("%v: %+v", err, got)
	}
	h = e.open(ino, meta.OpenRead)
	e.must(e.remove(meta.RootIno, "f"))
	_, err = e.Service.Link(e.ctx, e.root(), ino, meta.RootIno, "back")
	e.want(errs.NotFound, err, "a second first name")
	e.close(h)
	e.gone(ino)
}

func testNamelessRefusals(e *env) {
	create := func(c meta.Caller, dir meta.Ino, name string, flags meta.OpenFlags) error {
		_, err := e.Service.Create(e.ctx, c, dir, name, meta.NewFile{Mode: 0o600}, flags)
		return err
	}
	file := e.mkfile(meta.RootIno, "f")
	dir := e.owned(meta.RootIno, "d", meta.Directory, 0o755)
	e.want(errs.Invalid, create(e.root(), dir, "name", nameless), "with a name")
	e.want(errs.NotFound, create(e.root(), dir, "", readWrite), "without, and not said so")
	e.want(errs.Invalid, create(e.root(), dir, "", nameless|meta.OpenTruncate), "truncated")
	e.want(errs.NotDir, create(e.root(), file, "", nameless), "in a file")
	e.want(errs.NotFound, create(e.root(), 999_999, "", nameless), "nowhere")
	e.want(errs.Access, create(e.user(bob), dir, "", nameless), "by who may not write there")
	_, err := e.Service.Open(e.ctx, e.root(), file, meta.OpenRead|meta.OpenNameless)
	e.want(errs.Invalid, err, "opened as nameless")
	h := e.temp(e.root(), nameless|meta.OpenExclusive)
	_, err = e.Service.Link(e.ctx, e.root(), h.Attr.Ino, meta.RootIno, "l")
	e.want(errs.NotFound, err, "a name for what was to have none")
	e.close(h)
	h = e.temp(e.root(), nameless)
	_, err = e.Service.Link(e.ctx, e.user(bob), h.Attr.Ino, dir, "l")
	e.want(errs.Access, err, "linked by who may not write there")
	_, err = e.Service.Link(e.ctx, e.root(), h.Attr.Ino, meta.RootIno, "f")
	e.want(errs.Exists, err, "linked to a name that is there")
	e.close(h)
	e.gone(h.Attr.Ino)
}

// testNamelessOfTheDead: with a client's session its nameless files end.
func testNamelessOfTheDead(e *env) {
	dead := meta.Caller{Session: e.newSession()}
	left, linked := e.temp(dead, nameless), e.temp(dead, nameless)
	_, err := e.Service.Link(e.ctx, dead, linked.Attr.Ino, meta.RootIno, "kept")
	e.must(err)
	e.must(e.Service.EndSession(e.ctx, dead.Session))
	e.gone(left.Attr.Ino)
	if a, err := e.lookup(meta.RootIno, "kept"); err != nil || a.Ino != linked.Attr.Ino {
		e.Fatalf("%v: %+v", err, a)
	}
}

// testNamelessQuota: it counts where it was made, and then where it gets its name.
func testNamelessQuota(e *env) {
	one, two := e.mkdir(meta.RootIno, "one"), e.mkdir(meta.RootIno, "two")
	e.setQuota(one, 0, 3)
	e.setQuota(two, 0, 2)
	var all []meta.Handle
	for range 2 {
		h, err := e.Service.Create(e.ctx, e.root(), one, "", meta.NewFile{}, nameless)
		e.must(err)
		all = append(all, h)
	}
	e.uses(one, 0, 3)
	_, err := e.Service.Create(e.ctx, e.root(), one, "", meta.NewFile{}, nameless)
	e.want(errs.Quota, err, "one more than there may be")
	_, err = e.Service.Link(e.ctx, e.root(), all[0].Attr.Ino, two, "f")
	e.must(err)
	e.uses(one, 0, 2)
	e.uses(two, 0, 2)
	_, err = e.Service.Link(e.ctx, e.root(), all[1].Attr.Ino, two, "g")
	e.want(errs.Quota, err, "a name where there is no room")
	for _, h := range all {
		e.close(h)
	}
	e.gone(all[1].Attr.Ino)
	e.uses(one, 0, 1)
	e.uses(two, 0, 2)
}

// testNamelessReplay: a request that is repeated makes one file.
func testNamelessReplay(e *env) {
	c := e.root()
	c.ReqID = [16]byte{1, 2, 3}
	h, again := e.temp(c, nameless), e.temp(c, nameless)
	if again.Attr.Ino != h.Attr.Ino || again.ID != h.ID {
		e.Fatalf("%d and %d were made", h.Attr.Ino, again.Attr.Ino)
	}
	link := e.root()
	link.ReqID = [16]byte{4, 5, 6}
	for range 2 {
		a, err := e.Service.Link(e.ctx, link, h.Attr.Ino, meta.RootIno, "f")
		if err != nil || a.Nlink != 1 {
			e.Fatalf("%v: %+v", err, a)
		}
	}
	e.close(h)
	if a := e.attr(h.Attr.Ino); a.Nlink != 1 {
		e.Fatalf("%+v", a)
	}
}

// testRaceNameless: a link and the last close at the same time. The file has its name, or the link
// has failed and it is gone.
func testRaceNameless(e *env) {
	const rounds = 100
	for range rounds {
		h := e.temp(e.root(), nameless)
		var wg sync.WaitGroup
		var linked, closed error
		wg.Go(func() { _, linked = e.Service.Link(e.ctx, e.root(), h.Attr.Ino, meta.RootIno, "f") })
		wg.Go(func() { closed = e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: h.ID}) })
		wg.Wait()
		e.must(closed)
		switch errs.KindOf(linked) {
		case errs.OK:
			if a, err := e.lookup(meta.RootIno, "f"); err != nil || a.Ino != h.Attr.Ino || a.Nlink != 1 {
				e.Fatalf("%v: %+v", err, a)
			}
			e.must(e.remove(meta.RootIno, "f"))
		case errs.NotFound:
		default:
			e.Fatal(linked)
		}
		e.gone(h.Attr.Ino)
	}
}
