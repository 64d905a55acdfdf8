package metatest

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

func testSessions(e *env) {
	info, err := e.Service.NewSession(e.ctx, "a client")
	e.must(err)
	other, err := e.Service.NewSession(e.ctx, "a client")
	e.must(err)
	if info.ID == 0 || info.ID == other.ID || info.ClusterID == 0 ||
		info.ClusterID != other.ClusterID || info.LeaseMs != uint32(lease.Milliseconds()) {
		e.Fatalf("%+v and %+v", info, other)
	}
	_, err = e.Service.NewSession(e.ctx, string(make([]byte, 256)))
	e.want(errs.NameTooLong, err, "long client name")
	e.must(e.Service.KeepAlive(e.ctx, info.ID))
	e.must(e.Service.EndSession(e.ctx, info.ID))
	e.want(errs.Stale, e.Service.KeepAlive(e.ctx, info.ID), "ended session")
	e.must(e.Service.EndSession(e.ctx, info.ID))
	e.must(e.Service.Sync(e.ctx))
	// A session that is kept alive lives; the other one ends.
	for range 4 {
		e.clock.advance(lease / 2)
		e.must(e.Service.KeepAlive(e.ctx, e.session))
		time.Sleep(2 * tick)
	}
	e.eventually("the silent session is ended", func() bool { return e.ended(other.ID) })
	e.want(errs.Stale, e.Service.KeepAlive(e.ctx, other.ID), "silent session")
	again, err := e.Service.NewSession(e.ctx, "a client")
	if err != nil || again.ClusterID != info.ClusterID {
		e.Fatalf("%v: the cluster's id changed", err)
	}
}

// testDeadWriter: a client that dies may write until its capabilities have run out. Until then its
// file is measured whenever somebody asks; then it is measured for the last time and closed.
func testDeadWriter(e *env) {
	dead := meta.Caller{Session: e.newSession()}
	h, err := e.Service.Create(e.ctx, dead, meta.RootIno, "f", meta.NewFile{Mode: 0o644}, readWrite)
	e.must(err)
	gone, err := e.Service.Create(e.ctx, dead, meta.RootIno, "g", meta.NewFile{Mode: 0o644},
		readWrite)
	e.must(err)
	e.must(e.remove(meta.RootIno, "g"))
	e.objects.Write(h.Attr.Ino, 1000)
	e.objects.Write(gone.Attr.Ino, 1000)
	e.clock.advance(lease - time.Second)
	e.must(e.Service.KeepAlive(e.ctx, e.session))
	e.clock.advance(2 * time.Second)
	e.eventually("the session is ended", func() bool { return e.ended(dead.Session) })
	_, err = e.Service.Open(e.ctx, dead, h.Attr.Ino, meta.OpenRead)
	e.want(errs.Stale, err, "open by a dead session")
	time.Sleep(3 * tick)
	e.objects.Write(h.Attr.Ino, 2000)
	if a := e.attr(h.Attr.Ino); !a.Writers || a.Size != 2000 {
		e.Fatalf("closed before its capabilities have run out: %+v", a)
	}
	// The file's server is away when the time comes: that is waited for.
	e.objects.Fail(errs.Disconnected)
	e.clock.advance(capTTL)
	e.must(e.keepOwn())
	time.Sleep(3 * tick)
	e.objects.Fail(nil)
	e.eventually("the dead writer's file is closed with its measured size", func() bool {
		a := e.attr(h.Attr.Ino)
		return !a.Writers && a.Size == 2000 && a.DataVersion > h.Attr.DataVersion
	})
	if !e.attr(h.Attr.Ino).Holes {
		e.Fatal("a dead writer's file is taken for dense, which nobody knows")
	}
	e.joinAll()
	e.eventually("what it had open without a name is removed", func() bool {
		return e.objects.look(gone.Attr.Ino).removed
	})
}

// testDeadReader: what a dead session had open for reading stays, without a name too, until its
// capabilities have run out: until then it may read, and must not find zeroes.
func testDeadReader(e *env) {
	dead := meta.Caller{Session: e.newSession()}
	var inos []meta.Ino
	for _, name := range []string{"before", "after"} {
		ino := e.mkfile(meta.RootIno, name)
		e.close(e.open(ino, meta.OpenWrite))
		e.objects.Write(ino, 1000)
		_, err := e.Service.Open(e.ctx, dead, ino, meta.OpenRead)
		e.must(err)
		inos = append(inos, ino)
	}
	e.must(e.remove(meta.RootIno, "before"))
	e.clock.advance(lease - time.Second)
	renewed, err := e.Service.Renew(e.ctx, dead, nil)
	if err != nil || len(renewed) != 0 {
		e.Fatal(err, renewed)
	}
	e.must(e.Service.KeepAlive(e.ctx, e.session))
	e.clock.advance(lease + time.Second)
	e.must(e.keepOwn())
	e.eventually("the session is ended", func() bool { return e.ended(dead.Session) })
	e.must(e.remove(meta.RootIno, "after"))
	_, err = e.Service.Renew(e.ctx, dead, nil)
	e.want(errs.Stale, err, "renewal by a dead session")
	e.clock.advance(capTTL - time.Second)
	e.must(e.keepOwn())
	time.Sleep(5 * tick)
	for _, ino := range inos {
		if e.objects.look(ino).removed {
			e.Fatal("removed while a capability of a dead session is valid")
		}
		// A client that comes back in time goes on with a new session.
		e.close(e.open(ino, meta.OpenRead))
	}
	e.clock.advance(2 * time.Second)
	e.must(e.keepOwn())
	e.joinAll()
	e.eventually("both are removed", func() bool {
		return e.objects.look(inos[0]).removed && e.objects.look(inos[1]).removed
	})
}

// testDeadAndIdle: the times of a file tell when it was written, not when a client died.
func testDeadAndIdle(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	h := e.open(ino, meta.OpenWrite)
	e.objects.Write(ino, 1000)
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 1000, 0, 77)))
	was := e.attr(ino)
	dead := meta.Caller{Session: e.newSession()}
	_, err := e.Service.Open(e.ctx, dead, ino, readWrite)
	e.must(err)
	e.clock.advance(lease + time.Second)
	e.must(e.keepOwn())
	e.eventually("the session is ended", func() bool { return e.ended(dead.Session) })
	e.clock.advance(2 * capTTL)
	e.must(e.keepOwn())
	e.eventually("its handle is closed", func() bool { return !e.attr(ino).Writers })
	is := e.attr(ino)
	if is.Mtime != was.Mtime || is.Ctime != was.Ctime || is.Size != was.Size {
		e.Fatalf("nobody wrote it: %+v became %+v", was, is)
	}
	if is.DataVersion <= was.DataVersion {
		e.Fatal("it may have been overwritten, and nobody is told")
	}
}

// testTakenBack: an opening whose answer was lost leaves no handle, whether it comes before the
// Close that takes it back or after it.
func testTakenBack(e *env) {
	ino := e.mkfile(meta.RootIno, "f")
	for i, before := range []bool{true, false} {
		c := e.root()
		c.ReqID = [16]byte{9, 8, 7, byte(i)}
		id := meta.HandleOf(c.ReqID)
		if before {
			h, err := e.Service.Open(e.ctx, c, ino, readWrite)
			e.must(err)
			if h.ID != id {
				e.Fatalf("handle %x, want %x", h.ID, id)
			}
		}
		for range 2 { // its answer may be lost too
			e.must(e.Service.Close(e.ctx, c, meta.Closing{Handle: id}))
		}
		if _, err := e.Service.Open(e.ctx, c, ino, readWrite); err == nil {
			e.Fatal("an opening that was taken back was done")
		}
		if e.attr(ino).Writers {
			e.Fatal("an opening that was taken back left a handle")
		}
		e.want(errs.Closed, e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: id}), "no handle")
	}
	e.must(e.remove(meta.RootIno, "f"))
	e.eventually("it is removed", func() bool { return e.objects.look(ino).removed })
}

// ended asks for a session without renewing it.
func (e *env) ended(session uint64) bool {
	_, err := e.Service.Open(e.ctx, meta.Caller{Session: session}, 999_999, meta.OpenRead)
	return errs.KindOf(err) == errs.Stale
}

// keepOwn renews the suite's own session, or makes a new one after a leap of the clock.
func (e *env) keepOwn() error {
	if e.Service.KeepAlive(e.ctx, e.session) == nil {
		return nil
	}
	info, err := e.Service.NewSession(e.ctx, "suite")
	e.session = info.ID
	return err
}

func testEndedSession(e *env) {
	own := e.session
	e.session = e.newSession()
	h, err := e.create(meta.RootIno, "f", readWrite)
	e.must(err)
	e.objects.Write(h.Attr.Ino, 123)
	unlinked, err := e.create(meta.RootIno, "g", meta.OpenWrite)
	e.must(err)
	e.must(e.remove(meta.RootIno, "g"))
	e.must(e.Service.EndSession(e.ctx, e.session))
	e.want(errs.Closed, e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: h.ID}), "handle of it")
	e.session = own
	if a := e.attr(h.Attr.Ino); a.Writers || a.Size != 123 {
		e.Fatalf("after the end of the session: %+v", a)
	}
	_, err = e.Service.GetAttr(e.ctx, e.root(), unlinked.Attr.Ino)
	e.want(errs.NotFound, err, "what it had open without a name")
}

func testHandlesSurviveRestart(e *env) {
	h, err := e.create(meta.RootIno, "f", readWrite)
	e.must(err)
	dead := meta.Caller{Session: e.newSession()}
	theirs, err := e.Service.Open(e.ctx, dead, h.Attr.Ino, meta.OpenWrite)
	e.must(err)
	e.clock.advance(lease - time.Second)
	e.restart(held(h, readWrite))
	e.claim(dead.Session, held(theirs, meta.OpenWrite))
	e.clock.advance(lease - time.Second) // leases began anew
	e.must(e.Service.KeepAlive(e.ctx, e.session))
	e.must(e.Service.KeepAlive(e.ctx, dead.Session))
	renewed, err := e.Service.Renew(e.ctx, e.root(), []uint64{h.ID})
	if err != nil || len(renewed[0].Caps) == 0 {
		e.Fatalf("%v: handle is lost: %+v", err, renewed)
	}
	e.objects.Write(h.Attr.Ino, 10)
	if a := e.attr(h.Attr.Ino); !a.Writers || a.Size != 10 {
		e.Fatalf("%+v", a)
	}
	e.must(e.Service.Close(e.ctx, e.root(), wrote(h.ID, 10, 0, 1)))
	if a := e.attr(h.Attr.Ino); !a.Writers {
		e.Fatal("the other session's handle is lost")
	}
	// A session that was ending is ended after the restart.
	e.clock.advance(lease + time.Second)
	e.eventually("the other session is ended", func() bool {
		e.must(e.keepOwn())
		return e.ended(dead.Session)
	})
	e.restart()
	e.eventually("its handle is closed", func() bool {
		// Time goes on: the restart may have come before its end was written down.
		e.clock.advance(capTTL / 4)
		e.must(e.keepOwn())
		return !e.attr(h.Attr.Ino).Writers
	})
}
