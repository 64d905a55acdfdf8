package store

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

// open opens a file for writing, while other sessions give back what is asked of them.
func (w *lessor) open(c meta.Caller, ino meta.Ino, others ...meta.Caller) meta.Handle {
	w.Helper()
	type answer struct {
		h   meta.Handle
		err error
	}
	got := make(chan answer, 1)
	go func() {
		h, err := w.s.Open(context.Background(), c, ino, meta.OpenWrite)
		got <- answer{h, err}
	}()
	for len(got) == 0 {
		for _, o := range others {
			w.listen(o.Session, w.listen(o.Session).Recalls...)
		}
		time.Sleep(time.Millisecond)
	}
	a := <-got
	w.must(a.err)
	return a.h
}

// TestSpilledBeforeATruncation: what a client says it has left at the I/O servers is heeded once. A
// second handle of it that is closed says the same of what was cut long ago: that is not cut again,
// as who writes by then would be fenced off.
func TestSpilledBeforeATruncation(t *testing.T) {
	w := newLessor(t, Options{})
	a, b, c := w.session("a"), w.session("b"), w.session("c")
	first := w.create(a, "f")
	ino := first.Attr.Ino
	second := w.open(a, ino)
	spilled := meta.SpilledUnder(first.Attr.TruncSeq)
	w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: first.ID, Spilled: spilled}))
	w.open(b, ino, a)
	cut := w.inode(ino).TruncSeq
	if cut == first.Attr.TruncSeq {
		t.Fatal("what was spilled is not cut before somebody else writes")
	}
	w.mustWrite(b, a, ino)
	w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: second.ID, Spilled: spilled}))
	w.open(c, ino, a, b)
	if now := w.inode(ino).TruncSeq; now != cut {
		t.Fatalf("it was cut again: truncation %d, then %d", cut, now)
	}
}

// TestWhoMayWriteIsNotFenced: a client closes one of its handles, says that it could not move the
// file out, and goes on writing through another one: it opens a third, and may tell what it has.
func TestWhoMayWriteIsNotFenced(t *testing.T) {
	w := newLessor(t, Options{})
	a, b := w.session("a"), w.session("b")
	first := w.create(a, "f")
	ino, seq := first.Attr.Ino, first.Attr.TruncSeq
	w.open(a, ino)
	w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: first.ID, Spilled: meta.SpilledUnder(seq)}))
	w.open(a, ino)
	_, err := w.s.Commit(t.Context(), a, meta.Change{Ino: ino, Size: 1, TruncSeq: seq, Whole: true,
		Data: []byte("x"), Epoch: w.s.leases.Epoch(a.Session)}, false)
	w.must(err)
	w.open(b, ino, a)
	if w.inode(ino).TruncSeq == seq {
		t.Fatal("somebody else writes before what was spilled is cut")
	}
}

// TestSpilledInAnEarlierLife: the service is restarted before the client that has left something at
// the I/O servers could say so.
func TestSpilledInAnEarlierLife(t *testing.T) {
	w := newLessor(t, Options{})
	a, b := w.session("a"), w.session("b")
	h := w.create(a, "f")
	w.restart()
	w.listen(a.Session)
	w.listen(b.Session)
	_, err := w.s.Claim(t.Context(), a.Session, w.s.life, []meta.Claimed{{Handle: h.ID,
		Ino: h.Attr.Ino, Flags: meta.OpenWrite, Spilled: meta.SpilledUnder(h.Attr.TruncSeq)}}, true)
	w.must(err)
	_, err = w.s.Claim(t.Context(), b.Session, w.s.life, nil, true)
	w.must(err)
	w.open(b, h.Attr.Ino, a)
	if w.inode(h.Attr.Ino).TruncSeq == h.Attr.TruncSeq {
		t.Fatal("somebody else writes before what was spilled is cut")
	}
}
