package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
)

// afterwards is an engine that runs something when a commit is there for all to see and its owner
// has not heard of it.
type afterwards struct {
	kv.Store
	run atomic.Pointer[func()] // once
}

func (a *afterwards) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	r, err := a.Store.Commit(ctx, t)
	if run := a.run.Swap(nil); run != nil {
		(*run)()
	}
	return r, err
}

// lessor is a service that lends, with a clock that the test moves.
type lessor struct {
	*testing.T
	engine *afterwards
	opt    Options
	s      *Store
	passed atomic.Int64
}

func newLessor(t *testing.T, opt Options) *lessor {
	w := &lessor{T: t, engine: &afterwards{Store: memkv.New(memkv.Options{})}, opt: opt}
	w.opt.Objects = noObjects{}
	w.opt.Clock = func() time.Time { return time.Unix(1_800_000_000, w.passed.Load()) }
	w.opt.Pulse = w.opt.Clock
	w.start()
	t.Cleanup(func() { w.s.Stop(); _ = w.engine.Close() })
	return w
}

func (w *lessor) start() {
	s, err := New(w.Context(), w.engine, w.opt)
	w.must(err)
	w.s = s
	w.join()
}

// join has the I/O server say that it is there.
func (w *lessor) join() {
	w.Helper()
	srv := meta.Server{ID: 1, Addr: "nowhere"}
	w.must(w.s.Join(w.Context(), srv, meta.SignJoin(capability.Key{}.ServerKey(1), &srv)))
}

func (w *lessor) restart() {
	w.s.Stop()
	w.start()
}

func (w *lessor) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// session begins one that listens.
func (w *lessor) session(name string) meta.Caller {
	w.Helper()
	info, err := w.s.NewSession(w.Context(), name)
	w.must(err)
	w.listen(info.ID)
	return meta.Caller{Session: info.ID, Leases: true}
}

func (w *lessor) listen(session uint64, acks ...meta.Recall) meta.Heard {
	w.Helper()
	for i := range acks {
		acks[i].MoveOut = false // nothing was begun
	}
	h, err := w.s.Listen(w.Context(), meta.Listening{Session: session, Acks: acks})
	w.must(err)
	return h
}

func (w *lessor) create(c meta.Caller, name string) meta.Handle {
	w.Helper()
	h, err := w.s.Create(w.Context(), c, meta.RootIno, name, meta.NewFile{Mode: 0o666},
		meta.OpenRead|meta.OpenWrite)
	w.must(err)
	return h
}

// mustWrite has a get the lease to write, which b gives back.
func (w *lessor) mustWrite(a, b meta.Caller, ino meta.Ino) {
	w.Helper()
	got := make(chan meta.Attr, 1)
	go func() {
		at, _, _ := w.s.ReadSmall(context.Background(), a, ino)
		got <- at
	}()
	for len(got) == 0 {
		w.listen(b.Session, w.listen(b.Session).Recalls...)
		time.Sleep(time.Millisecond)
	}
	if at := <-got; at.Lease != meta.LeaseWrite {
		w.Fatalf("it gets lease %d", at.Lease)
	}
}

func (w *lessor) inode(ino meta.Ino) (n *inode) {
	w.Helper()
	w.must(w.s.look(func(t *txn) (err error) {
		n, err = t.inode(ino)
		return err
	}))
	return n
}

// TestWhoCreatesIsNotTakenForDead: somebody finds a file whose creator does not know yet that it is
// there. It is being written nevertheless.
func TestWhoCreatesIsNotTakenForDead(t *testing.T) {
	w := newLessor(t, Options{})
	a := w.session("a")
	w.create(a, "first") // numbers are set aside
	found := make(chan error, 1)
	look := func() {
		go func() {
			_, err := w.s.Find(context.Background(), meta.Caller{}, meta.RootIno, "f")
			found <- err
		}()
		select {
		case err := <-found:
			found <- err
		case <-time.After(100 * time.Millisecond): // it waits for the creator
		}
	}
	w.engine.run.Store(&look)
	h := w.create(a, "f")
	for end := time.Now().Add(time.Minute); ; {
		for _, r := range w.listen(a.Session).Recalls {
			w.listen(a.Session, r)
		}
		select {
		case err := <-found:
			w.must(err)
			if !w.inode(h.Attr.Ino).has(flagWriters) {
				t.Fatal("a file that is open for writing is not marked")
			}
			return
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("the file is never found")
		}
	}
}

// TestDeadWriterIsFenced: a session that had a small file to write dies with its capabilities still
// good for a while. Whoever writes next keeps it from what it may have begun.
func TestDeadWriterIsFenced(t *testing.T) {
	t.Run("by an opening", func(t *testing.T) { testDeadWriter(t, false) })
	t.Run("by who has it open", func(t *testing.T) { testDeadWriter(t, true) })
}

func testDeadWriter(t *testing.T, opened bool) {
	w := newLessor(t, Options{Tick: time.Millisecond})
	a, b := w.session("a"), w.session("b")
	ino := w.create(a, "f").Attr.Ino
	if opened {
		// It is the last one who gets the lease.
		first := make(chan error, 1)
		go func() {
			_, err := w.s.Open(context.Background(), b, ino, meta.OpenWrite)
			first <- err
		}()
		for done := false; !done; time.Sleep(time.Millisecond) {
			w.listen(a.Session, w.listen(a.Session).Recalls...)
			done = len(first) > 0
		}
		w.must(<-first)
		w.mustWrite(a, b, ino)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		w.passed.Add(int64(time.Second))
		w.listen(b.Session)
		if st, err := w.s.Status(); err == nil && st.Sessions == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a silent session does not die")
		}
	}
	if n, _ := w.s.sessions.writers(ino); n == 0 {
		t.Fatal("its capabilities have not run out")
	}
	before := w.inode(ino).TruncSeq
	if opened {
		w.fencedBy(b, ino)
	} else {
		_, err := w.s.Open(t.Context(), b, ino, meta.OpenWrite)
		w.must(err)
	}
	if n := w.inode(ino); n.TruncSeq == before {
		t.Fatal("the dead writer can still write")
	}
}

// fencedBy has a session ask for the lease of a file that it has open, as clients do: first by a
// look at it, and then, as that does not bring it, with the data.
func (w *lessor) fencedBy(c meta.Caller, ino meta.Ino) {
	w.Helper()
	at, err := w.s.GetAttr(w.Context(), c, ino)
	w.must(err)
	if at.Lease == meta.LeaseWrite {
		w.Fatal("the lease is lent while the last holder is not kept off")
	}
	at, _, err = w.s.ReadSmall(w.Context(), c, ino)
	w.must(err)
	if at.Lease != meta.LeaseWrite {
		w.Fatalf("it gets lease %d", at.Lease)
	}
}

// TestLeftoversAreCut: a small file of whose data I/O servers may have some, because its writer
// died or could not move it out, is cut there when somebody looks at it.
func TestLeftoversAreCut(t *testing.T) {
	for _, died := range []bool{true, false} {
		w := newLessor(t, Options{Tick: time.Millisecond})
		a, b := w.session("a"), w.session("b")
		h := w.create(a, "f")
		ino := h.Attr.Ino
		if !died {
			spilled := meta.SpilledUnder(h.Attr.TruncSeq)
			w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: h.ID, Spilled: spilled}))
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			w.passed.Add(int64(time.Second))
			w.join() // it is carried out in the background at servers that are up
			w.listen(b.Session)
			if st, err := w.s.Status(); died && (err != nil || st.Sessions > 1) {
				continue
			}
			_, err := w.s.GetAttr(t.Context(), b, ino)
			w.must(err)
			if n := w.inode(ino); n.TruncSeq > 0 && !n.has(flagWriters|flagPending) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("died %v: what is at the I/O servers is not cut: %+v", died, w.inode(ino))
			}
		}
	}
}

// TestClosingInGraceKeepsNobodyFromClaims: two clients had a file open for writing. One closes it
// before the other has claimed it.
func TestClosingInGraceKeepsNobodyFromClaims(t *testing.T) {
	w := newLessor(t, Options{LeaseTime: time.Minute, Lease: time.Hour})
	a, b := w.session("a"), w.session("b")
	plain := a
	plain.Leases = false // so that it is not small
	ha := w.create(plain, "f")
	plain.Session = b.Session
	hb, err := w.s.Open(t.Context(), plain, ha.Attr.Ino, meta.OpenWrite)
	w.must(err)
	w.restart()
	claim := func(c meta.Caller, h meta.Handle, last bool) error {
		_, err := w.s.Claim(t.Context(), c.Session, w.s.life, []meta.Claimed{{Handle: h.ID,
			Ino: ha.Attr.Ino, Flags: meta.OpenWrite}}, last)
		return err
	}
	w.must(claim(b, hb, true))
	for _, many := range []bool{false, true} {
		end := meta.Closing{Handle: hb.ID, Dirty: true,
			Change: meta.Change{Ino: ha.Attr.Ino, Size: 1, Mtime: meta.UnixTime(0, 1)}}
		closed := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if many {
				_, err := w.s.CloseMany(ctx, b, []meta.Closing{end})
				closed <- err
				return
			}
			closed <- w.s.Close(ctx, b, end)
		}()
		time.Sleep(20 * time.Millisecond)
		claimed := make(chan error, 1)
		go func() { claimed <- claim(a, ha, false) }()
		select {
		case err := <-claimed:
			w.must(err)
		case <-time.After(20 * time.Second):
			t.Fatal("a claim waits for who waits for claims")
		}
		cancel()
		if err := <-closed; errs.KindOf(err) != errs.Canceled {
			t.Fatalf("closed before all have claimed: %v", err)
		}
		w.must(w.s.closeHandle(t.Context(), &a, w.s.sessions.byID[a.Session].open[ha.ID], &closing{}))
		delete(w.s.sessions.byID[a.Session].taken, ha.ID)
	}
}

// TestNobodyIsAloneBeforeAllHaveClaimed: the grace time is over and a client of the last process
// was not heard of. It may be writing.
func TestNobodyIsAloneBeforeAllHaveClaimed(t *testing.T) {
	w := newLessor(t, Options{LeaseTime: 100 * time.Millisecond})
	a, b := w.session("a"), w.session("b")
	plain := a
	plain.Leases = false
	ha := w.create(plain, "f")
	w.restart()
	w.listen(b.Session)
	_, err := w.s.Claim(t.Context(), b.Session, w.s.life, nil, true)
	w.must(err)
	hb, err := w.s.Open(t.Context(), b, ha.Attr.Ino, meta.OpenWrite)
	w.must(err)
	if hb.Attr.Lease == meta.LeaseWrite {
		t.Fatal("it is told that it is the only one who writes")
	}
	w.listen(a.Session)
	_, err = w.s.Claim(t.Context(), a.Session, w.s.life, []meta.Claimed{{Handle: ha.ID,
		Ino: ha.Attr.Ino, Flags: meta.OpenWrite}}, true)
	w.must(err)
	got, err := w.s.GetAttr(t.Context(), b, ha.Attr.Ino)
	w.must(err)
	if got.Lease == meta.LeaseWrite {
		t.Fatal("it is told so although two write")
	}
}

// TestAPauseOfTheServiceCostsNoLease: the service stands still for a little longer than a lease
// while somebody is asked for one. The answer is heard afterwards.
func TestAPauseOfTheServiceCostsNoLease(t *testing.T) {
	w := newLessor(t, Options{Tick: time.Millisecond, LeaseTime: 2 * time.Second})
	a, b := w.session("a"), w.session("b")
	for lent := false; !lent; { // nothing is before the service is calm
		at, err := w.s.GetAttr(t.Context(), a, meta.RootIno)
		w.must(err)
		lent = at.Lease != meta.LeaseNone
	}
	made := make(chan error, 1)
	go func() {
		_, err := w.s.Make(context.Background(), b, meta.RootIno, "d", meta.NewFile{
			Type: meta.Directory})
		made <- err
	}()
	var recalls []meta.Recall
	for len(recalls) == 0 {
		recalls = w.listen(a.Session).Recalls
		time.Sleep(time.Millisecond)
	}
	w.passed.Add(int64(w.s.opt.LeaseTime + 500*time.Millisecond)) // it did not run
	time.Sleep(100 * time.Millisecond)
	w.listen(a.Session, recalls...)
	w.must(<-made)
	if n := w.s.leases.Counts().Expired; n != 0 {
		t.Fatal("a client lost its leases because the service did not run")
	}
}

// TestRepeatedOpeningsOfAnotherLife: the file was removed since, or somebody found nobody writing.
func TestRepeatedOpeningsOfAnotherLife(t *testing.T) {
	w := newLessor(t, Options{})
	a, b := w.session("a"), w.session("b")
	creating, opening := a, a
	creating.ReqID, opening.ReqID = [16]byte{1}, [16]byte{2}
	w.create(creating, "gone")
	kept := w.create(a, "kept")
	w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: kept.ID}))
	_, err := w.s.Open(t.Context(), opening, kept.Attr.Ino, meta.OpenWrite)
	w.must(err)
	w.restart()
	for _, c := range []meta.Caller{a, b} {
		w.listen(c.Session)
		_, err = w.s.Claim(t.Context(), c.Session, w.s.life, nil, true)
		w.must(err)
	}
	w.must(metatest.Failed(w.s.Remove(t.Context(), b, meta.RootIno, "gone", false)))
	_, err = w.s.Create(t.Context(), creating, meta.RootIno, "gone", meta.NewFile{Mode: 0o666},
		meta.OpenRead|meta.OpenWrite)
	if st, _ := w.s.Status(); errs.KindOf(err) != errs.NotFound || st.Handles != 0 {
		t.Fatalf("a file that is gone is opened: %v, %d handles", err, st.Handles)
	}
	_, err = w.s.GetAttr(t.Context(), b, kept.Attr.Ino)
	w.must(err)
	if w.inode(kept.Attr.Ino).has(flagWriters) {
		t.Fatal("a file that nobody writes is not settled")
	}
	_, err = w.s.Open(t.Context(), opening, kept.Attr.Ino, meta.OpenWrite)
	w.must(err)
	if !w.inode(kept.Attr.Ino).has(flagWriters) {
		t.Fatal("a file that is open for writing is not marked")
	}
}

// TestRemovedFilesTakeNoLeases: who makes files and removes them keeps no leases on them.
func TestRemovedFilesTakeNoLeases(t *testing.T) {
	w := newLessor(t, Options{})
	a := w.session("a")
	for range 100 {
		h := w.create(a, "f")
		w.must(w.s.Close(t.Context(), a, meta.Closing{Handle: h.ID}))
		w.must(metatest.Failed(w.s.Remove(t.Context(), a, meta.RootIno, "f", false)))
	}
	if n := w.s.leases.Counts().Leases; n > 1 {
		t.Fatalf("%d leases", n)
	}
}
