package metatest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// wholeTime is when a small file was written, as who tells it says.
var wholeTime = meta.UnixTime(1_900_000_000, 0)

// whole is a change of a small file.
func (l *listener) whole(a *meta.Attr, data string) meta.Change {
	return meta.Change{Ino: a.Ino, Size: int64(len(data)), TruncSeq: a.TruncSeq, Mtime: wholeTime,
		Epoch: l.epoch, Whole: true, Data: []byte(data)}
}

// createSmall makes a small file and leaves it open.
func (l *listener) createSmall(name string) meta.Handle {
	l.Helper()
	h, err := l.Service.Create(l.ctx, l.c, meta.RootIno, name, meta.NewFile{Mode: 0o644}, readWrite)
	if err != nil || !h.Attr.Small || h.Attr.Lease != meta.LeaseWrite {
		l.Fatalf("%v: %+v", err, h)
	}
	return h
}

func (l *listener) read(ino meta.Ino) string {
	l.Helper()
	a, data, err := l.Service.ReadSmall(l.ctx, l.c, ino)
	if err != nil || int64(len(data.Bytes)) != a.Size {
		l.Fatalf("%v: %d bytes, %+v", err, len(data.Bytes), a)
	}
	return string(data.Bytes)
}

func testSmallFiles(e *env) {
	l := e.listen()
	h := l.createSmall("f")
	ino := h.Attr.Ino
	a, err := e.Service.Commit(e.ctx, l.c, l.whole(&h.Attr, "hello"), false)
	if err != nil || a.Size != 5 || a.Lease != meta.LeaseWrite || a.Mtime != wholeTime {
		e.Fatalf("%v: %+v", err, a)
	}
	end := meta.Closing{Handle: h.ID, Dirty: true, Change: l.whole(&a, "hello, world")}
	e.must(e.Service.Close(e.ctx, l.c, end))
	n := e.objects.measured()
	if f := l.find(meta.RootIno, "f"); string(f.Data) != "hello, world" || f.Attr.Size != 12 ||
		f.Attr.Writers || f.Attr.Lease != meta.LeaseRead {
		e.Fatalf("%+v", f)
	}
	stranger := e.user(bob)
	if f, err := e.Service.Find(e.ctx, stranger, meta.RootIno, "f"); err != nil || f.Data == nil {
		e.Fatalf("%v: %+v", err, f)
	}
	_, err = e.Service.SetAttr(e.ctx, l.c, ino, meta.SetMode, meta.Attr{Mode: 0o600})
	e.must(err)
	if f, err := e.Service.Find(e.ctx, stranger, meta.RootIno, "f"); err != nil || f.Data != nil {
		e.Fatalf("%v: somebody reads what he may not: %+v", err, f)
	}
	_, _, err = e.Service.ReadSmall(e.ctx, stranger, ino)
	e.want(errs.Access, err, "read by a stranger")
	if h, err := e.Service.Open(e.ctx, l.c, ino, meta.OpenRead); err != nil ||
		string(h.Data) != "hello, world" || h.Attr.Lease != meta.LeaseRead {
		e.Fatalf("%v: %+v", err, h)
	}
	for _, c := range []struct {
		size int64
		want string
	}{{5, "hello"}, {8, "hello\x00\x00\x00"}, {0, ""},
		{meta.SmallMax, string(make([]byte, meta.SmallMax))}} {
		a, err := e.Service.SetAttr(e.ctx, l.c, ino, meta.SetSize, meta.Attr{Size: c.size})
		if err != nil || a.Size != c.size || l.read(ino) != c.want || a.Holes {
			e.Fatalf("cut to %d: %v: %+v", c.size, err, a)
		}
	}
	_, err = e.Service.SetAttr(e.ctx, l.c, ino, meta.SetSize, meta.Attr{Size: meta.SmallMax + 1})
	e.want(errs.Unsupported, err, "larger than a small file")
	e.restart()
	e.claim(l.c.Session)
	if got := l.read(ino); got != string(make([]byte, meta.SmallMax)) {
		e.Fatalf("after a restart: %d bytes", len(got))
	}
	if e.objects.measured() != n || e.objects.look(ino).truncSeq != 0 {
		e.Fatal("I/O servers were bothered with a small file")
	}
	l.release()
	e.must(e.remove(meta.RootIno, "f"))
}

func testSmallRefusals(e *env) {
	l := e.listen()
	h := l.createSmall("f")
	w := l.whole(&h.Attr, "x")
	for _, c := range []struct {
		what   string
		change func(w *meta.Change)
		want   errs.Kind
	}{
		{"no epoch", func(w *meta.Change) { w.Epoch = 0 }, errs.Invalid},
		{"another epoch", func(w *meta.Change) { w.Epoch-- }, errs.Fenced},
		{"another truncation", func(w *meta.Change) { w.TruncSeq++ }, errs.Fenced},
		{"too much", func(w *meta.Change) { w.Data = make([]byte, meta.SmallMax+1) }, errs.TooBig},
	} {
		bad := w
		c.change(&bad)
		_, err := e.Service.Commit(e.ctx, l.c, bad, false)
		e.want(c.want, err, c.what)
	}
	_, err := e.Service.Commit(e.ctx, l.c, w, true)
	e.must(err)
	bad := w
	bad.Epoch--
	end := meta.Closing{Handle: h.ID, Dirty: true, Change: bad}
	e.want(errs.Fenced, e.Service.Close(e.ctx, l.c, end), "close with a lease that is lost")
	ended, err := e.Service.CloseMany(e.ctx, l.c, []meta.Closing{end})
	if err != nil || ended[0] != (meta.Ended{Kind: errs.Fenced}) {
		e.Fatalf("close with a lease that is lost: %v, %v", ended, err)
	}
	if f := l.find(meta.RootIno, "f"); string(f.Data) != "x" || !f.Attr.Writers {
		e.Fatalf("what was refused counts, or the handle is closed: %+v", f)
	}
	e.must(e.Service.Close(e.ctx, l.c, meta.Closing{Handle: h.ID}))
	if f := l.find(meta.RootIno, "f"); string(f.Data) != "x" || f.Attr.Writers {
		e.Fatalf("the handle is not closed: %+v", f)
	}
	// Only who takes leases writes small files; empty ones become ordinary for others.
	l.release()
	_, err = e.Service.Open(e.ctx, e.root(), h.Attr.Ino, meta.OpenWrite)
	e.want(errs.Unsupported, err, "a writer without leases")
	empty := l.createSmall("empty")
	e.must(e.Service.Close(e.ctx, l.c, meta.Closing{Handle: empty.ID}))
	l.release()
	plain := e.open(empty.Attr.Ino, meta.OpenWrite)
	if plain.Attr.Small {
		e.Fatalf("%+v", plain)
	}
	e.close(plain)
	_, _, err = e.Service.ReadSmall(e.ctx, l.c, empty.Attr.Ino)
	e.want(errs.Invalid, err, "read of what is not small")
}

// release ends the session, so that nobody waits for it, and begins another one.
func (l *listener) release() {
	l.Helper()
	l.must(l.Service.EndSession(l.ctx, l.c.Session))
	*l = *l.listen()
}

// testMoveOut: a second writer makes the first one move the file out; there is no moment at which
// the data is nowhere.
func testMoveOut(e *env) {
	a, b := e.listen(), e.listen()
	h := a.createSmall("f")
	ino := h.Attr.Ino
	at, err := e.Service.Commit(e.ctx, a.c, a.whole(&h.Attr, "abc"), false)
	e.must(err)
	var second meta.Handle
	over, done := e.background(func() (err error) {
		second, err = e.Service.Open(e.ctx, b.c, ino, readWrite)
		return err
	})
	r := a.recalled(ino)
	if !r.MoveOut {
		e.Fatalf("%+v", r)
	}
	w := told(ino, 6, at.TruncSeq, 1.9e18)
	w.Epoch = a.epoch
	_, err = e.Service.MoveOut(e.ctx, a.c, w, at.DataVersion+1)
	e.want(errs.Conflict, err, "move out of another version")
	e.objects.Write(ino, 6)
	at, err = e.Service.MoveOut(e.ctx, a.c, w, at.DataVersion)
	if err != nil || at.Small || at.Size != 6 || done() {
		e.Fatalf("%v: %+v", err, at)
	}
	if _, err = e.Service.MoveOut(e.ctx, a.c, w, 0); err != nil {
		e.Fatalf("repeated: %v", err)
	}
	a.hear(0, r)
	e.must(over())
	if second.Attr.Small || second.Attr.Size != 6 || second.Attr.Lease != meta.LeaseNone {
		e.Fatalf("%+v", second.Attr)
	}
	e.must(e.Service.Close(e.ctx, a.c, meta.Closing{Handle: h.ID}))
	e.must(e.Service.Close(e.ctx, b.c, meta.Closing{Handle: second.ID}))
	a.release()
	b.release()
	e.must(e.remove(meta.RootIno, "f"))
	e.eventually("its objects are removed", func() bool { return e.objects.look(ino).removed })
}

// testFencedWriter: who does not answer is refused from then on, here and at the I/O servers, and
// the next writer goes on with what was told.
func testFencedWriter(e *env) {
	a, b := e.listen(), e.listen()
	h := a.createSmall("f")
	ino := h.Attr.Ino
	at, err := e.Service.Commit(e.ctx, a.c, a.whole(&h.Attr, "kept"), false)
	e.must(err)
	var second meta.Handle
	over, _ := e.background(func() (err error) {
		second, err = e.Service.Open(e.ctx, b.c, ino, readWrite)
		return err
	})
	a.recalled(ino)
	e.clock.advance(leaseTime + time.Millisecond)
	e.must(over())
	if !second.Attr.Small || second.Attr.Lease != meta.LeaseWrite || string(second.Data) != "kept" {
		e.Fatalf("%+v", second)
	}
	if second.Attr.TruncSeq <= at.TruncSeq || e.objects.look(ino).truncSeq != second.Attr.TruncSeq {
		e.Fatal("what the first writer may have begun at the I/O servers is not kept off")
	}
	_, err = e.Service.Commit(e.ctx, a.c, a.whole(&at, "late"), false)
	e.want(errs.Fenced, err, "who did not answer")
	w := told(ino, 4, at.TruncSeq, 1)
	w.Epoch = a.epoch
	_, err = e.Service.MoveOut(e.ctx, a.c, w, at.DataVersion)
	e.want(errs.Fenced, err, "who did not answer moves out")
	end := b.whole(&second.Attr, "kept, and more")
	e.must(e.Service.Close(e.ctx, b.c, meta.Closing{Handle: second.ID, Dirty: true, Change: end}))
	e.want(errs.Fenced, e.Service.Close(e.ctx, a.c, meta.Closing{Handle: h.ID, Dirty: true,
		Change: a.whole(&at, "late")}), "close")
	over, _ = e.background(func() error {
		return e.Service.Close(e.ctx, a.c, meta.Closing{Handle: h.ID})
	})
	b.hear(0, b.recalled(ino)) // the file is not being written any more
	e.must(over())
	if got := b.read(ino); got != "kept, and more" {
		e.Fatalf("%q", got)
	}
}

// testSmallReader: who reads makes the writer tell what it has, and the file stays small.
func testSmallReader(e *env) {
	a, b := e.listen(), e.listen()
	h := a.createSmall("f")
	var f meta.Found
	over, _ := e.background(func() (err error) {
		f, err = e.Service.Find(e.ctx, b.c, meta.RootIno, "f")
		return err
	})
	r := a.recalled(h.Attr.Ino)
	if r.MoveOut {
		e.Fatalf("%+v", r)
	}
	_, err := e.Service.Commit(e.ctx, a.c, a.whole(&h.Attr, "data"), false)
	e.must(err)
	a.hear(0, r)
	e.must(over())
	if string(f.Data) != "data" || f.Attr.Size != 4 || f.Attr.Lease != 0 || !f.Attr.Small {
		e.Fatalf("%+v", f)
	}
	e.must(e.Service.Close(e.ctx, a.c, meta.Closing{Handle: h.ID}))
}

// testClosedVersions: a closing that tells something says which data version it has made, also
// where others change the file at the same time; one that tells nothing has made none. A repetition
// may not know it any more, and says nothing else.
func testClosedVersions(e *env) {
	l := e.listen()
	h := l.createSmall("f")
	ino, was := h.Attr.Ino, h.Attr.DataVersion
	closing := meta.Closing{Handle: h.ID, Dirty: true, Change: l.whole(&h.Attr, "one")}
	version := func() uint64 {
		a, err := e.Service.GetAttr(e.ctx, l.c, ino)
		e.must(err)
		return a.DataVersion
	}
	c := withID(l.c, 4801)
	var first meta.Ended
	for try := range 3 {
		ended, err := e.Service.CloseMany(e.ctx, c, []meta.Closing{closing})
		e.must(err)
		if try == 0 {
			first = ended[0]
		}
		if ended[0] != first && ended[0] != (meta.Ended{}) {
			e.Fatalf("try %d: %+v, first %+v", try, ended[0], first)
		}
	}
	if first.Version != was+1 || version() != was+1 {
		e.Fatalf("made %+v of version %d; it is %d", first, was, version())
	}
	// Of several handles of one file in a batch the one that tells something has made a version.
	var list []meta.Closing
	for i := range 3 {
		h, err := e.Service.Open(e.ctx, l.c, ino, readWrite)
		e.must(err)
		list = append(list, meta.Closing{Handle: h.ID})
		if i == 1 {
			list[i].Dirty, list[i].Change = true, l.whole(&h.Attr, "two")
		}
	}
	reader, err := e.Service.Open(e.ctx, l.c, ino, meta.OpenRead)
	e.must(err)
	list = append(list, meta.Closing{Handle: reader.ID}, meta.Closing{Handle: 12345})
	ended, err := e.Service.CloseMany(e.ctx, withID(l.c, 4802), list)
	e.must(err)
	for i, got := range ended {
		want := meta.Ended{}
		if i == 1 {
			want.Version = was + 2
		}
		if i == 4 {
			want.Kind = errs.Closed
		}
		if got != want {
			e.Fatalf("%d: %+v, want %+v", i, got, want)
		}
	}
	e.must(e.Service.EndSession(e.ctx, l.c.Session))
}

// testCloseMany: a batch is as good as one by one, also repeated, and after a restart.
func testCloseMany(e *env) {
	for round, restart := range []bool{false, true} {
		l := e.listen()
		var list []meta.Closing
		var claims []meta.Claimed
		data := func(i int) string { return string(bytes.Repeat([]byte{byte(i)}, i*97%meta.SmallMax)) }
		name := func(i int) string { return fmt.Sprint(restart, i) }
		for i := range 40 {
			h := l.createSmall(name(i))
			w := meta.Closing{Handle: h.ID, Dirty: true, Change: l.whole(&h.Attr, data(i))}
			if i%7 == 3 {
				w.Change.Epoch-- // it has lost it
			}
			list = append(list, w)
			claim := held(h, readWrite)
			claim.Write, claim.DataVersion = true, h.Attr.DataVersion
			if i%5 == 0 {
				again, err := e.Service.Open(e.ctx, l.c, h.Attr.Ino, meta.OpenWrite)
				e.must(err)
				list = append(list, meta.Closing{Handle: again.ID})
				claims = append(claims, held(again, meta.OpenWrite))
			}
			claims = append(claims, claim)
		}
		list = append(list, meta.Closing{Handle: 12345})
		c := withID(l.c, 4711+uint64(round))
		first, err := e.Service.CloseMany(e.ctx, c, list)
		e.must(err)
		if restart {
			e.must(e.Service.Sync(e.ctx))
			e.restart()
			_, err := e.Service.CloseMany(e.ctx, c, list)
			e.want(errs.Again, err, "before claims")
			e.claim(l.c.Session, claims...)
		}
		again, err := e.Service.CloseMany(e.ctx, c, list)
		e.must(err)
		for i := range list {
			want, seq := errs.OK, first[i].Kind
			if list[i].Dirty && list[i].Change.Epoch != l.epoch {
				want = errs.Fenced
			}
			if list[i].Handle == 12345 {
				want = errs.Closed
			}
			if seq != want || !restart && again[i].Kind != want {
				e.Fatalf("restart %v, %d: %v, repeated %v, want %v", restart, i, seq, again[i], want)
			}
		}
		l.release()
		for i := range 40 {
			want := data(i)
			if i%7 == 3 {
				want = ""
			}
			if f := l.find(meta.RootIno, name(i)); string(f.Data) != want || f.Attr.Writers {
				e.Fatalf("restart %v: file %d: %d bytes, want %d; %+v", restart, i, len(f.Data),
					len(want), f.Attr)
			}
		}
		e.must(e.Service.EndSession(e.ctx, l.c.Session))
	}
}
