package metatest

import (
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// successionCases are about clients that run again.
func successionCases() []testCase {
	return []testCase{
		{"Succeed", testSucceed},
		{"SucceedLocks", testSucceedLocks},
		{"SucceedAppend", testSucceedAppend},
		{"SucceedRefused", testSucceedRefused},
		{"SucceedTold", testSucceedTold},
	}
}

// heir begins another session under a client's name.
func (e *env) heir(client string) meta.Caller {
	e.Helper()
	info, err := e.Service.NewSession(e.ctx, client)
	e.must(err)
	return meta.Caller{Session: info.ID, Leases: true}
}

// testSucceed: what a dead process had open stays there for its successor, a file without a name
// and one that only it has written included; nobody waits for its leases, and what comes late of it
// is refused. What the successor does not open again is closed.
func testSucceed(e *env) {
	old := e.heir("m")
	_, err := e.Service.Listen(e.ctx, meta.Listening{Session: old.Session})
	e.must(err)
	h, err := e.Service.Create(e.ctx, old, meta.RootIno, "f", meta.NewFile{Mode: 0o600}, readWrite)
	e.must(err)
	kept, err := e.Service.Create(e.ctx, old, meta.RootIno, "g", meta.NewFile{Mode: 0o600},
		readWrite)
	e.must(err)
	if h.Attr.Lease != meta.LeaseWrite {
		e.Fatalf("no lease: %+v", h.Attr)
	}
	_, err = e.Service.Remove(e.ctx, old, meta.RootIno, "g", false)
	e.must(err)
	next := e.heir("m")
	e.must(e.Service.Succeed(e.ctx, next, old.Session, false))
	e.must(e.Service.Succeed(e.ctx, next, old.Session, false)) // repeated
	e.want(errs.Stale, e.Service.KeepAlive(e.ctx, old.Session), "the old session")
	_, err = e.Service.Open(e.ctx, old, h.Attr.Ino, meta.OpenRead)
	e.want(errs.Stale, err, "an opening that comes late")
	_, err = e.Service.Listen(e.ctx, meta.Listening{Session: next.Session})
	e.must(err)
	for _, ino := range []meta.Ino{h.Attr.Ino, kept.Attr.Ino} {
		again, err := e.Service.Open(e.ctx, next, ino, readWrite)
		e.must(err)
		if again.Attr.Ino != ino || len(again.Caps) == 0 {
			e.Fatalf("opened again: %+v", again)
		}
	}
	e.must(e.Service.Succeed(e.ctx, next, old.Session, true))
	e.eventually("the old session is over", func() bool {
		err := e.Service.Succeed(e.ctx, next, old.Session, true)
		return errs.KindOf(err) == errs.NotFound
	})
	a, err := e.Service.GetAttr(e.ctx, next, kept.Attr.Ino)
	if err != nil || a.Nlink != 0 {
		e.Fatalf("the file without a name: %+v, %v", a, err)
	}
	e.must(e.Service.EndSession(e.ctx, next.Session))
	e.eventually("the file without a name is removed when its successor is gone", func() bool {
		_, err := e.Service.GetAttr(e.ctx, meta.Caller{Session: e.session}, kept.Attr.Ino)
		return errs.KindOf(err) == errs.NotFound
	})
}

// testSucceedLocks: locks pass to the successor, with nobody else having them in between; requests
// of the dead process that waited do not.
func testSucceedLocks(e *env) {
	ino, second := e.mkfile(meta.RootIno, "f"), e.mkfile(meta.RootIno, "g")
	a, b := e.locker("a"), e.locker("b")
	held := []meta.Lock{byteRange(ino, 1, exclusive, 0, 9), byteRange(ino, 1, shared, 20, 29),
		byteRange(ino, 2, shared, 20, 29), byteRange(second, 1, exclusive, 5, meta.LockEndMax)}
	for _, k := range held {
		a.want(granted, k, lockNow)
	}
	b.want(granted, byteRange(second, 7, exclusive, 0, 4), lockNow)
	a.want(queued, byteRange(second, 3, exclusive, 0, 4), lockWait)
	id := b.want(queued, byteRange(ino, 1, exclusive, 0, 0), lockWait)
	next := e.locker("a")
	e.must(e.Service.Succeed(e.ctx, next.caller, a.caller.Session, false))
	b.silent()
	lost, err := e.Service.ClaimLocks(e.ctx, next.caller, a.caller.Session, nil, false)
	if err != nil || len(lost) != 0 {
		e.Fatalf("%v, %v", lost, err)
	}
	e.must(e.Service.Succeed(e.ctx, next.caller, a.caller.Session, true))
	b.silent()
	var all []meta.Lock
	for after := (meta.Lock{}); ; after = all[len(all)-1] {
		page, err := e.Service.HeldLocks(e.ctx, next.caller, after)
		e.must(err)
		if len(page) == 0 {
			break
		}
		all = append(all, page[0]) // one at a time
	}
	if !slices.Equal(all, held) {
		e.Fatalf("held: %+v, want %+v", all, held)
	}
	b.unlock(byteRange(second, 7, exclusive, 0, 4))
	b.want(granted, byteRange(second, 7, exclusive, 0, 4), lockNow) // nobody waits for it any more
	next.unlock(held[0])
	b.told(id, errs.OK)
}

// testSucceedAppend: an append that a dead process has reserved room for, and not written, gets the
// same room when its successor repeats it; it is nobody else's meanwhile.
func testSucceedAppend(e *env) {
	old, other := e.heir("m"), e.heir("other")
	h, err := e.Service.Create(e.ctx, old, meta.RootIno, "f", meta.NewFile{Mode: 0o600}, readWrite)
	e.must(err)
	theirs, err := e.Service.Open(e.ctx, other, h.Attr.Ino, readWrite)
	e.must(err)
	request := func(c meta.Caller, n byte) meta.Caller {
		c.ReqID = [16]byte{1, n}
		return c
	}
	first, _, err := e.Service.Append(e.ctx, request(old, 1), h.ID, 100)
	e.must(err)
	second, _, err := e.Service.Append(e.ctx, request(other, 2), theirs.ID, 100)
	e.must(err)
	next := e.heir("m")
	e.must(e.Service.Succeed(e.ctx, next, old.Session, false))
	again, err := e.Service.Open(e.ctx, next, h.Attr.Ino, readWrite)
	e.must(err)
	e.must(e.Service.Succeed(e.ctx, next, old.Session, true))
	for _, c := range []struct {
		n    byte
		want int64
	}{{1, first}, {1, first}, {3, second + 100}} {
		off, _, err := e.Service.Append(e.ctx, request(next, c.n), again.ID, 100)
		if err != nil || off != c.want {
			e.Fatalf("request %d: %d, %v, want %d", c.n, off, err, c.want)
		}
	}
}

// testSucceedRefused: nobody takes over what another client has.
func testSucceedRefused(e *env) {
	old, thief := e.heir("a"), e.heir("b")
	e.want(errs.Perm, e.Service.Succeed(e.ctx, thief, old.Session, false), "another client")
	e.want(errs.Perm, e.Service.Succeed(e.ctx, old, old.Session, true), "itself")
	e.must(e.Service.KeepAlive(e.ctx, old.Session))
	next := e.heir("a")
	e.want(errs.NotFound, e.Service.Succeed(e.ctx, next, 12345, false), "a session that never was")
	e.must(e.Service.EndSession(e.ctx, next.Session))
	e.want(errs.Stale, e.Service.Succeed(e.ctx, next, old.Session, false), "by one that has ended")
}

// testSucceedTold: who takes the place of a session tells before what that one has done alone, in
// its name, once; a file that it had open is opened again then. What comes afterwards is too late.
func testSucceedTold(e *env) {
	t := &teller{listener: &listener{env: e, c: e.heir("m")}, at: 1_900_000_000}
	t.hear(0)
	var err error
	t.dir, err = e.Service.Make(e.ctx, t.c, meta.RootIno, "d", soleDir)
	e.must(err)
	t.numbers()
	next := e.heir("m")
	open, closed := t.make(t.dir.Ino, "open", meta.Regular), t.file(t.dir.Ino, "closed", "data")
	open.Open, open.Handle = readWrite, 12345
	list := []meta.Deferred{open, closed}
	for range 2 { // the second one repeats the first
		out, err := e.Service.TellMany(e.ctx, withID(t.c, 77), t.epoch, list)
		if e.must(err); out[0].Kind != errs.OK || out[1].Kind != errs.OK {
			e.Fatalf("%+v", out)
		}
	}
	e.must(e.Service.Succeed(e.ctx, next, t.c.Session, false))
	_, err = e.Service.TellMany(e.ctx, withID(t.c, 78), t.epoch,
		[]meta.Deferred{t.make(t.dir.Ino, "late", meta.Fifo)})
	e.want(errs.Stale, err, "what is told late")
	h, err := e.Service.Open(e.ctx, next, open.Ino, readWrite)
	if e.must(err); h.Attr.Ino != open.Ino || h.Attr.Nlink != 1 {
		e.Fatalf("opened again: %+v", h.Attr)
	}
	e.must(e.Service.Succeed(e.ctx, next, t.c.Session, true))
	a, err := e.Service.Lookup(e.ctx, next, t.dir.Ino, "closed")
	if e.must(err); a.Ino != closed.Ino || a.Size != 4 {
		e.Fatalf("the closed file: %+v", a)
	}
	_, err = e.Service.Lookup(e.ctx, next, t.dir.Ino, "late")
	e.want(errs.NotFound, err, "what was told late")
	e.must(e.Service.EndSession(e.ctx, next.Session))
}
