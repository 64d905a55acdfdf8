package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// awayObjects are I/O servers that count truncations, and do not answer while they are away.
type awayObjects struct {
	noObjects
	away atomic.Bool
	cuts atomic.Int32
}

func (o *awayObjects) Truncate(ctx context.Context, _ meta.FileRef, _ int64) error {
	for o.away.Load() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	o.cuts.Add(1)
	return nil
}

// newAway is a service with such servers, and two clients.
func newAway(t *testing.T) (w *lessor, o *awayObjects, a, b meta.Caller) {
	o = &awayObjects{}
	w = newLessor(t, Options{})
	w.opt.Objects = o
	w.restart()
	return w, o, w.session("a"), w.session("b")
}

// TestTruncationOfSpilledFilesCuts: who cuts a small file says that it has left something at the
// I/O servers, or another client has: it is cut there, too. Otherwise nobody is asked.
func TestTruncationOfSpilledFilesCuts(t *testing.T) {
	w, o, a, _ := newAway(t)
	for i, mask := range []meta.SetMask{0, meta.SetSpilled, 0} {
		h := w.create(a, fmt.Sprint(i))
		if i == 2 {
			w.s.leases.Lapse(h.Attr.Ino)
		}
		before := o.cuts.Load()
		_, err := w.s.SetAttr(t.Context(), a, h.Attr.Ino, meta.SetSize|mask, meta.Attr{Size: 1})
		w.must(err)
		if cuts := o.cuts.Load() - before; cuts != int32(min(i, 1)) {
			t.Errorf("case %d: cut %d times at the I/O servers", i, cuts)
		}
		if n := w.inode(h.Attr.Ino); n.Size != 1 || n.TruncSeq != 1 || n.has(flagPending) {
			t.Errorf("case %d: %+v", i, n)
		}
	}
}

// TestFencedSmallFileIsLookedAt: its attributes are known while the I/O servers that may have some
// of it are away.
func TestFencedSmallFileIsLookedAt(t *testing.T) {
	w, o, a, b := newAway(t)
	h := w.create(a, "f")
	o.away.Store(true)
	defer o.away.Store(false)
	_, err := w.s.update(t.Context(), &a, func(tx *txn) error {
		n, err := tx.inode(h.Attr.Ino)
		if err == nil {
			tx.fence(h.Attr.Ino, n)
			tx.putInode(h.Attr.Ino, n)
		}
		return err
	})
	w.must(err)
	w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: h.ID}))
	start := time.Now()
	_, err = w.s.GetAttr(t.Context(), b, h.Attr.Ino)
	w.must(err)
	if d := time.Since(start); d > time.Second {
		t.Fatalf("it took %v", d)
	}
}

// TestOpeningWaitsForServersWithoutTheTurn: a file whose truncation is pending at servers that are
// away is opened to be cut again; others can be closed meanwhile.
func TestOpeningWaitsForServersWithoutTheTurn(t *testing.T) {
	w, o, a, b := newAway(t)
	h := w.create(a, "f")
	ino := h.Attr.Ino
	_, err := w.s.SetAttr(t.Context(), a, ino, meta.SetSize, meta.Attr{Size: 0})
	w.must(err)
	_, err = w.s.update(t.Context(), &a, func(tx *txn) error {
		n, err := tx.inode(ino)
		if err == nil {
			tx.fence(ino, n)
			tx.putInode(ino, n)
		}
		return err
	})
	w.must(err)
	o.away.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		_, err := w.s.Open(ctx, b, ino, meta.OpenWrite|meta.OpenTruncate)
		opened <- err
	}()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		w.listen(a.Session, w.listen(a.Session).Recalls...)
		time.Sleep(time.Millisecond)
	}
	closing, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	ended, err := w.s.CloseMany(closing, a, []meta.Closing{{Handle: h.ID}})
	w.must(err)
	if ended[0].Kind != errs.OK {
		t.Error(ended[0].Kind)
	}
	cancel()
	o.away.Store(false)
	<-opened
}

// TestClosingInManyQuotas: files that are closed together may each have a quota of their own.
func TestClosingInManyQuotas(t *testing.T) {
	w := newLessor(t, Options{})
	a := w.session("a")
	var list []meta.Closing
	for i := range 40 {
		dir, err := w.s.Make(t.Context(), a, meta.RootIno, fmt.Sprint(i),
			meta.NewFile{Type: meta.Directory, Mode: 0o777})
		w.must(err)
		q, err := w.s.SetQuota(t.Context(), a, dir.Ino, meta.Usage{Bytes: 1 << 20})
		w.must(err)
		for end := time.Now().Add(time.Minute); q.Counting && time.Now().Before(end); {
			q, err = w.s.GetQuota(t.Context(), a, dir.Ino)
			w.must(err)
		}
		h, err := w.s.Create(t.Context(), a, dir.Ino, "f", meta.NewFile{Mode: 0o666}, meta.OpenWrite)
		w.must(err)
		list = append(list, meta.Closing{Handle: h.ID, Dirty: true, Change: meta.Change{
			Ino: h.Attr.Ino, Size: 100, Whole: true, Data: make([]byte, 100),
			Epoch: w.s.leases.Epoch(a.Session)}})
	}
	ended, err := w.s.CloseMany(t.Context(), a, list)
	w.must(err)
	for i, e := range ended {
		if e.Kind != errs.OK {
			t.Errorf("%d: %v", i, e.Kind)
		}
	}
}

// TestReadersHearOfTheQuota: whoever opens a file hears whether its size is bounded; the same
// client may write it through another handle.
func TestReadersHearOfTheQuota(t *testing.T) {
	w := newLessor(t, Options{})
	a := w.session("a")
	_, err := w.s.SetQuota(t.Context(), a, meta.RootIno, meta.Usage{Bytes: 1 << 20})
	w.must(err)
	h := w.create(a, "f")
	r, err := w.s.Open(t.Context(), a, h.Attr.Ino, meta.OpenRead)
	w.must(err)
	if !h.Bounded || !r.Bounded {
		t.Fatalf("bounded: the writer hears %v, the reader %v", h.Bounded, r.Bounded)
	}
}

// TestEndedClientIsKeptOff: a client whose process is known to be dead may have begun to move a
// small file out.
func TestEndedClientIsKeptOff(t *testing.T) {
	w := newLessor(t, Options{})
	a, b := w.session("a"), w.session("b")
	ino := w.create(a, "f").Attr.Ino
	w.open(b, ino, a)
	w.mustWrite(a, b, ino)
	before := w.inode(ino).TruncSeq
	w.must(w.s.EndSession(t.Context(), a.Session)) // in its name, as EndClient does
	_, _, err := w.s.ReadSmall(t.Context(), b, ino)
	w.must(err)
	if w.inode(ino).TruncSeq == before {
		t.Fatal("the dead client can still write")
	}
}

// TestSilentAfterARestart: a client that may be moving a small file out is not heard of after a
// restart. Another one that has the file open keeps it off before it writes.
func TestSilentAfterARestart(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newLessor(t, Options{LeaseTime: 500 * time.Millisecond})
		a, b := w.session("a"), w.session("b")
		ino := w.create(a, "f").Attr.Ino
		h := w.open(b, ino, a)
		w.mustWrite(a, b, ino)
		w.restart()
		w.listen(b.Session)
		claim := func() {
			_, err := w.s.Claim(t.Context(), b.Session, w.s.life, []meta.Claimed{
				{Handle: h.ID, Ino: ino, Flags: meta.OpenWrite}}, true)
			w.must(err)
		}
		if !late {
			claim()
		}
		<-w.s.sessions.calm
		if late {
			claim()
		}
		before := w.inode(ino).TruncSeq
		if _, _, err := w.s.ReadSmall(t.Context(), b, ino); err != nil {
			t.Fatal(err)
		}
		if w.inode(ino).TruncSeq == before {
			t.Errorf("late %v: who was not heard of can still write", late)
		}
	}
}

// TestClaimTwiceAtOnce: a handle that is claimed by two requests at once is there once.
func TestClaimTwiceAtOnce(t *testing.T) {
	w := newLessor(t, Options{})
	a := w.session("a")
	h := w.create(a, "f")
	o, err := newOpening(&a, meta.OpenWrite)
	w.must(err)
	o.id, o.ino = h.ID, h.Attr.Ino
	w.must(w.s.sessions.reserve(a.Session, w.s.opt.HandlesMax, w.s.opt.HandlesAllMax))
	w.must(w.s.addHandle(o))
	w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: h.ID}))
	if st, err := w.s.Status(); err != nil || st.Handles != 0 || w.inode(o.ino).has(flagWriters) {
		t.Fatalf("%d handles are left, flags %#x, %v", st.Handles, w.inode(o.ino).Flags, err)
	}
}
