package metatest

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// testAppend: reservations of two clients never meet, whatever the I/O servers know by then.
func testAppend(e *env) {
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	ino := h.Attr.Ino
	info, err := e.Service.NewSession(e.ctx, "other")
	e.must(err)
	other := meta.Caller{Session: info.ID}
	far, err := e.Service.Open(e.ctx, other, ino, meta.OpenWrite)
	e.must(err)

	at := func(want int64, c meta.Caller, h meta.Handle, n int64) meta.Attr {
		e.Helper()
		off, a, err := e.Service.Append(e.ctx, c, h.ID, n)
		if err != nil || off != want || a.Ino != ino {
			e.Fatalf("%d bytes reserved at %d of inode %d, want %d: %v", n, off, a.Ino, want, err)
		}
		return a
	}
	at(0, e.root(), h, 10)
	at(10, other, far, 5)
	if a := e.attr(ino); a.Size != 0 {
		e.Fatalf("a reservation made the file %d bytes long", a.Size)
	}
	e.objects.Write(ino, 15)
	at(15, e.root(), h, 5)
	e.objects.Write(ino, 100) // a writer that does not append
	at(100, other, far, 5)

	// What is given back is reserved again, unless something lies behind it.
	at(105, e.root(), h, 5)
	_, _, err = e.Service.Append(e.ctx, e.root(), h.ID, 0)
	e.must(err)
	at(105, other, far, 5)
	at(110, e.root(), h, 5)
	_, _, err = e.Service.Append(e.ctx, other, far.ID, 0)
	e.must(err)
	at(115, other, far, 5)

	_, err = e.Service.SetAttr(e.ctx, e.root(), ino, meta.SetSize, meta.Attr{Size: 7})
	e.must(err)
	if a := at(7, other, far, 5); a.TruncSeq != 1 {
		e.Fatalf("reserved under truncate sequence %d", a.TruncSeq)
	}
	e.close(h)
	at(12, other, far, 5)
	// Reservations die with the service: who had one reserves again.
	e.restart()
	e.claim(other.Session, held(far, meta.OpenWrite))
	at(7, other, far, 5)
	e.must(e.Service.Close(e.ctx, other, meta.Closing{Handle: far.ID}))
	h = e.open(ino, meta.OpenWrite)
	at(7, e.root(), h, 5) // nothing was written: the reservations ended with the last writer
	e.close(h)
}

func testAppendRefusals(e *env) {
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	r := e.open(h.Attr.Ino, meta.OpenRead)
	for _, c := range []struct {
		what   string
		kind   errs.Kind
		handle uint64
		n      int64
	}{
		{"a handle that only reads", errs.Closed, r.ID, 1},
		{"an unknown handle", errs.Closed, r.ID + h.ID + 1, 1},
		{"a negative length", errs.Invalid, h.ID, -1},
		{"more than a file can have", errs.TooBig, h.ID, layout.FileSizeMax + 1},
	} {
		_, _, err := e.Service.Append(e.ctx, e.root(), c.handle, c.n)
		e.want(c.kind, err, c.what)
	}
	e.objects.Fail(errs.Disconnected)
	_, _, err = e.Service.Append(e.ctx, e.root(), h.ID, 1)
	if err == nil {
		e.Fatal("reserved behind an end that nobody has told")
	}
	e.objects.Fail(nil)
	e.close(r)
	e.close(h)
}

// testAppendsInOrder: nobody is told of what lies behind an append whose data is not there, and
// whoever has made it waits, at most for the time of a lease.
func testAppendsInOrder(e *env) {
	h, err := e.create(meta.RootIno, "f", meta.OpenWrite)
	e.must(err)
	ino := h.Attr.Ino
	other := meta.Caller{Session: e.newSession()}
	far, err := e.Service.Open(e.ctx, other, ino, meta.OpenWrite)
	e.must(err)
	size := func(want int64) {
		e.Helper()
		if a := e.attr(ino); a.Size != want {
			e.Fatalf("the file has %d bytes, want %d", a.Size, want)
		}
	}
	end := int64(0)
	for what, ends := range map[string]func() error{
		"said":     func() error { return e.Service.Appended(e.ctx, e.root(), h.ID) },
		"the next": func() error { _, _, err := e.Service.Append(e.ctx, e.root(), h.ID, 1); return err },
		"too late": func() error { e.clock.advance(leaseTime + time.Millisecond); return nil },
	} {
		_, _, err = e.Service.Append(e.ctx, e.root(), h.ID, 10)
		e.must(err)
		off, _, err := e.Service.Append(e.ctx, other, far.ID, 5)
		e.must(err)
		first := off - 10
		e.objects.Write(ino, off+5)
		size(first)
		over, done := e.background(func() error { return e.Service.Appended(e.ctx, other, far.ID) })
		for range 20 {
			time.Sleep(tick)
			size(first)
		}
		if done() {
			e.Fatalf("%s: the second append does not wait for the first one", what)
		}
		e.must(ends())
		e.must(over())
		end = off + 5
		size(end)
		e.must(e.Service.Appended(e.ctx, e.root(), h.ID)) // there may be none
	}
	// Who closes the file has nothing on its way any more.
	_, _, err = e.Service.Append(e.ctx, e.root(), h.ID, 10)
	e.must(err)
	off, _, err := e.Service.Append(e.ctx, other, far.ID, 5)
	e.must(err)
	e.objects.Write(ino, off+5)
	e.close(h)
	e.must(e.Service.Appended(e.ctx, other, far.ID))
	size(off + 5)
	e.want(errs.Closed, e.Service.Appended(e.ctx, e.root(), h.ID), "by a handle that is closed")
	e.must(e.Service.Close(e.ctx, other, meta.Closing{Handle: far.ID}))
}
