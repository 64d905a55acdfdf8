package metatest

import (
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

const readWrite = meta.OpenRead | meta.OpenWrite

func (e *env) create(dir meta.Ino, name string, flags meta.OpenFlags) (meta.Handle, error) {
	return e.Service.Create(e.ctx, e.root(), dir, name, meta.NewFile{Mode: 0o644}, flags)
}

func testCreate(e *env) {
	h, err := e.create(meta.RootIno, "f", readWrite|meta.OpenExclusive)
	e.must(err)
	if h.ID == 0 || h.Attr.Type != meta.Regular || !h.Attr.Writers ||
		h.Attr.Layout.Validate() != nil || len(h.Caps) != h.Attr.Layout.Width() {
		e.Fatalf("got %+v", h)
	}
	if e.objects.measured() != 0 {
		e.Fatal("a create contacted I/O servers")
	}
	_, err = e.create(meta.RootIno, "f", readWrite|meta.OpenExclusive)
	e.want(errs.Exists, err, "exclusive create of what is there")
	again, err := e.create(meta.RootIno, "f", meta.OpenRead)
	if err != nil || again.Attr.Ino != h.Attr.Ino || again.ID == h.ID {
		e.Fatalf("%v: %+v", err, again)
	}
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 500, h.Attr.TruncSeq, 77)))
	e.close(again)
	if a := e.attr(h.Attr.Ino); a.Size != 500 || a.Writers || a.DataVersion == h.Attr.DataVersion {
		e.Fatalf("after close: %+v", a)
	}
	e.want(errs.Closed, e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: h.ID}), "second close")
	// Truncation on the way.
	h, err = e.create(meta.RootIno, "f", meta.OpenWrite|meta.OpenTruncate)
	e.must(err)
	if h.Attr.Size != 0 || h.Attr.TruncSeq != 1 || e.objects.look(h.Attr.Ino).truncSeq != 1 {
		e.Fatalf("not truncated: %+v, objects %+v", h.Attr, e.objects.look(h.Attr.Ino))
	}
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 500, h.Attr.TruncSeq, 77)))
	if h = e.open(h.Attr.Ino, meta.OpenRead|meta.OpenTruncate); h.Attr.Size != 0 || h.Attr.Writers {
		e.Fatalf("opened for reading and not truncated: %+v", h.Attr)
	}
	e.close(h)
	// Whoever creates a file may write it, whatever its mode says.
	dir := e.mustMake(meta.RootIno, "d", meta.NewFile{Type: meta.Directory, Mode: 0o777}).Ino
	c := e.user(alice)
	h, err = e.Service.Create(e.ctx, c, dir, "ro", meta.NewFile{Mode: 0o400}, meta.OpenWrite)
	e.must(err)
	e.must(e.Service.Close(e.ctx, c, meta.Closing{Handle: h.ID}))
	_, err = e.Service.Create(e.ctx, c, dir, "ro", meta.NewFile{Mode: 0o400}, meta.OpenWrite)
	e.want(errs.Access, err, "second create of a read-only file")
}

func testOpenRefusals(e *env) {
	dir, f := e.mkdir(meta.RootIno, "d"), e.mkfile(meta.RootIno, "f")
	link := e.mustMake(meta.RootIno, "l", meta.NewFile{Type: meta.Symlink, Target: "f"}).Ino
	pipe := e.mustMake(meta.RootIno, "p", meta.NewFile{Type: meta.Fifo}).Ino
	stranger := e.root()
	stranger.Session = 12345
	for _, c := range []struct {
		what  string
		c     meta.Caller
		ino   meta.Ino
		flags meta.OpenFlags
		want  errs.Kind
	}{
		{"directory", e.root(), dir, meta.OpenRead, errs.IsDir},
		{"symlink", e.root(), link, meta.OpenRead, errs.Loop},
		{"pipe", e.root(), pipe, meta.OpenRead, errs.Unsupported},
		{"nothing", e.root(), 999_999, meta.OpenRead, errs.NotFound},
		{"no flags", e.root(), f, 0, errs.Invalid},
		{"truncate without the right to write", e.user(alice), f, meta.OpenRead | meta.OpenTruncate,
			errs.Access},
		{"exclusive", e.root(), f, meta.OpenRead | meta.OpenExclusive, errs.Invalid},
		{"unknown flag", e.root(), f, meta.OpenRead | 1<<7, errs.Invalid},
		{"no session", stranger, f, meta.OpenRead, errs.Stale},
	} {
		_, err := e.Service.Open(e.ctx, c.c, c.ino, c.flags)
		e.want(c.want, err, c.what)
	}
	_, err := e.create(meta.RootIno, "d", meta.OpenRead)
	e.want(errs.IsDir, err, "create of a directory's name")
	_, err = e.create(meta.RootIno, "l", meta.OpenRead)
	e.want(errs.Loop, err, "create of a symlink's name")
}

func testCapabilities(e *env) {
	f := e.mkfile(meta.RootIno, "f")
	for flags, rights := range map[meta.OpenFlags]capability.Rights{
		meta.OpenRead: capability.Read, meta.OpenWrite: capability.Write,
		readWrite: capability.Read | capability.Write,
	} {
		h := e.open(f, flags)
		e.checkCaps(h, rights)
		e.clock.advance(20 * time.Second)
		renewed, err := e.Service.Renew(e.ctx, e.root(), []uint64{h.ID, h.ID + 1})
		if err != nil || len(renewed) != 2 || renewed[0].ID != h.ID {
			e.Fatalf("%v: %+v", err, renewed)
		}
		e.checkCaps(renewed[0], rights)
		if renewed[1].ID != h.ID+1 || renewed[1].Caps != nil {
			e.Fatalf("an unknown handle is renewed: %+v", renewed[1])
		}
		e.close(h)
	}
	_, err := e.Service.Renew(e.ctx, meta.Caller{Session: 12345}, nil)
	e.want(errs.Stale, err, "renewal for a session that is not there")
}

func (e *env) checkCaps(h meta.Handle, rights capability.Rights) {
	e.Helper()
	if len(h.Caps) != 3 {
		e.Fatalf("%d capabilities for 3 servers", len(h.Caps))
	}
	for i, server := range h.Attr.Layout.Servers {
		c, err := e.key.ServerKey(server).Verify(h.Caps[i][:])
		e.must(err)
		now := e.clock.read()
		e.must(c.Check(capability.Need{File: uint64(h.Attr.Ino), Gen: h.Attr.Gen, Rights: rights,
			Session: e.session, Server: server, Layout: h.Attr.Layout.Version}, now))
		if c.Rights != rights || c.Expiry.Sub(now) > capability.TTLMax ||
			c.Expiry.Sub(now) < capability.TTLMax-time.Second {
			e.Fatalf("capability is %+v", c)
		}
	}
}

func testCommit(e *env) {
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	ino, version := h.Attr.Ino, h.Attr.DataVersion
	commit := func(size int64, seq uint64, mtime int64) meta.Attr {
		e.Helper()
		a, err := e.Service.Commit(e.ctx, e.root(), told(ino, size, seq, mtime), true)
		e.must(err)
		if a.DataVersion <= version {
			e.Fatal("the data version is not raised")
		}
		version = a.DataVersion
		return a
	}
	base := h.Attr.Mtime.UnixNano()
	if a := commit(100, 0, base+5); a.Size != 100 || a.Mtime != meta.UnixTime(0, base+5) {
		e.Fatalf("%+v", a)
	}
	if a := commit(50, 0, base+3); a.Size != 100 || a.Mtime != meta.UnixTime(0, base+5) {
		e.Fatalf("a smaller size or an earlier time won: %+v", a)
	}
	_, err = e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetSize, meta.Attr{Size: 10})
	e.must(err)
	if a := e.attr(ino); a.Size != 10 || a.TruncSeq != 1 {
		e.Fatalf("%+v", a)
	}
	version = e.attr(ino).DataVersion
	if a := commit(90, 0, base+9); a.Size != 10 {
		e.Fatalf("a size from before the truncation won: %+v", a)
	}
	if a := commit(20, 1, base+10); a.Size != 20 {
		e.Fatalf("%+v", a)
	}
	for _, size := range []int64{-1, 1<<60 + 1} {
		_, err = e.Service.Commit(e.ctx, e.root(), told(ino, size, 1, 0), false)
		if k := errs.KindOf(err); k != errs.Invalid && k != errs.TooBig {
			e.Fatalf("size %d: %v", size, err)
		}
	}
	e.close(h)
	_, err = e.Service.Commit(e.ctx, e.root(), told(ino, 30, 1, 0), false)
	e.want(errs.Closed, err, "commit without an open file")
}

func testTruncate(e *env) {
	f := e.mkfile(meta.RootIno, "f")
	cut := func(size int64) meta.Attr {
		e.Helper()
		a, err := e.Service.SetAttr(e.ctx, e.root(), f, meta.SetSize, meta.Attr{Size: size})
		e.must(err)
		return a
	}
	before := e.attr(f)
	if a := cut(0); a.TruncSeq != 0 || e.objects.look(f).truncSeq != 0 {
		e.Fatal("an empty file that nobody writes was truncated at the I/O servers")
	}
	a := cut(1000)
	if o := e.objects.look(f); a.Size != 1000 || a.TruncSeq != 1 || o.truncSeq != 1 ||
		o.size != 1000 || a.DataVersion <= before.DataVersion || !a.Mtime.After(before.Mtime) {
		e.Fatalf("%+v, objects %+v", a, o)
	}
	if a := cut(10); a.Size != 10 || e.objects.look(f).size != 10 {
		e.Fatalf("%+v", a)
	}
}

func testTruncateSurvivesRestart(e *env) {
	f := e.mkfile(meta.RootIno, "f")
	_, err := e.Service.SetAttr(e.ctx, e.root(), f, meta.SetSize, meta.Attr{Size: 100})
	e.must(err)
	e.objects.Fail(errs.TimedOut)
	_, err = e.Service.SetAttr(e.ctx, e.root(), f, meta.SetSize, meta.Attr{Size: 7})
	e.want(errs.TimedOut, err, "truncation without I/O servers")
	if e.objects.look(f).size != 100 {
		e.Fatal("it was carried out all the same")
	}
	e.restart()
	e.objects.Fail(nil)
	e.eventually("the truncation is carried out after the restart", func() bool {
		return e.objects.look(f).size == 7
	})
	if a := e.attr(f); a.Size != 7 || a.TruncSeq != 2 {
		e.Fatalf("%+v", a)
	}
}

// testTruncateOrder: a file that is cut and then extended shows zeros between, so no truncation
// may be left out at the I/O servers, not even when the one before it could not be carried out.
func testTruncateOrder(e *env) {
	f := e.mkfile(meta.RootIno, "f")
	cut := func(size int64) error {
		_, err := e.Service.SetAttr(e.ctx, e.root(), f, meta.SetSize, meta.Attr{Size: size})
		return err
	}
	e.must(cut(100))
	e.objects.Fail(errs.TimedOut)
	e.want(errs.TimedOut, cut(10), "truncation without I/O servers")
	e.objects.Fail(nil)
	e.must(cut(200))
	if o := e.objects.look(f); len(o.cuts) != 3 || o.cuts[1] != 10 || o.cuts[2] != 200 {
		e.Fatalf("truncations at the I/O servers: %v", o.cuts)
	}
}

func testSizeWhileWriting(e *env) {
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	ino := h.Attr.Ino
	e.objects.Write(ino, 4096)
	if a := e.attr(ino); a.Size != 4096 || !a.Writers {
		e.Fatalf("GetAttr: %+v", a)
	}
	if a, err := e.lookup(meta.RootIno, "f"); err != nil || a.Size != 4096 {
		e.Fatalf("Lookup: %v %+v", err, a)
	}
	if l := e.list(meta.RootIno, 10); l[0].Attr.Size != 4096 {
		e.Fatalf("ReadDir: %+v", l[0].Attr)
	}
	other := e.open(ino, meta.OpenRead)
	if other.Attr.Size != 4096 {
		e.Fatalf("Open: %+v", other.Attr)
	}
	// A truncation in between is not undone by what is measured.
	_, err = e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetSize, meta.Attr{Size: 5})
	e.must(err)
	if a := e.attr(ino); a.Size != 5 {
		e.Fatalf("after truncation: %+v", a)
	}
	e.close(other)
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 5, 1, 1)))
	n := e.objects.measured()
	if a := e.attr(ino); a.Size != 5 || a.Writers || e.objects.measured() != n {
		e.Fatalf("closed file: %+v, measured %v", a, e.objects.measured() != n)
	}
}

func testSizeUnknown(e *env) {
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	_, err = e.Service.Commit(e.ctx, e.root(), told(h.Attr.Ino, 300, 0, 1), false)
	e.must(err)
	e.objects.Write(h.Attr.Ino, 400)
	e.objects.Fail(errs.TimedOut)
	if a := e.attr(h.Attr.Ino); a.Size != 300 {
		e.Fatalf("the only writer itself does not get the stored size: %+v", a)
	}
	stranger := meta.Caller{Session: e.newSession()}
	_, err = e.Service.GetAttr(e.ctx, stranger, h.Attr.Ino)
	e.want(errs.TimedOut, err, "size of what another writes, without its I/O server")
	if a, err := e.Service.Lookup(e.ctx, stranger, meta.RootIno, "f"); err != nil || a.Size != 300 {
		e.Fatalf("%v: lookup does not give the stored size: %+v", err, a)
	}
	e.objects.Fail(nil)
	if a, err := e.Service.GetAttr(e.ctx, stranger, h.Attr.Ino); err != nil || a.Size != 400 {
		e.Fatalf("%v: %+v", err, a)
	}
	e.close(h)
}

func testUnlinkedButOpen(e *env) {
	h, err := e.create(meta.RootIno, "f", readWrite)
	e.must(err)
	ino := h.Attr.Ino
	second := e.open(ino, meta.OpenRead)
	e.objects.Write(ino, 10)
	e.must(e.remove(meta.RootIno, "f"))
	if a := e.attr(ino); a.Nlink != 0 || a.Size != 10 {
		e.Fatalf("open file without a name: %+v", a)
	}
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 20, 0, 1)))
	e.restart(held(second, meta.OpenRead))
	if a := e.attr(ino); a.Size != 20 || a.Writers {
		e.Fatalf("%+v", a)
	}
	if e.objects.look(ino).removed {
		e.Fatal("objects of an open file are removed")
	}
	e.close(second)
	_, err = e.Service.GetAttr(e.ctx, e.root(), ino)
	e.want(errs.NotFound, err, "orphan after its last close")
	e.eventually("its objects are removed", func() bool { return e.objects.look(ino).removed })
}

func testRemovalIsRetried(e *env) {
	var inos []meta.Ino
	for _, name := range []string{"a", "b", "c"} {
		h, err := e.create(meta.RootIno, name, meta.OpenWrite)
		e.must(err)
		e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 10, 0, 1)))
		e.must(e.Service.SetXattr(e.ctx, e.root(), h.Attr.Ino, "user.x", []byte("1"), false, false))
		inos = append(inos, h.Attr.Ino)
	}
	never := e.mkfile(meta.RootIno, "never-written")
	e.objects.Fail(errs.TimedOut)
	for _, name := range []string{"a", "b", "c", "never-written"} {
		e.must(e.remove(meta.RootIno, name))
	}
	time.Sleep(4 * tick)
	e.restart()
	e.objects.Fail(nil)
	e.eventually("all objects are removed", func() bool {
		for _, ino := range inos {
			if !e.objects.look(ino).removed {
				return false
			}
		}
		return true
	})
	if e.objects.look(never).removed {
		e.Fatal("I/O servers were bothered with a file that nobody ever wrote")
	}
}
