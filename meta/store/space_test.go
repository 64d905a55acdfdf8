package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
)

// newFullWorld is a store whose engine takes only what makes room, once it is told to.
func newFullWorld(t *testing.T) (*world, *atomic.Bool) {
	full := &atomic.Bool{}
	w := &world{t: t, objects: metatest.NewObjects(), engine: memkv.New(memkv.Options{
		Before: func(x *kv.Txn) error {
			if full.Load() && !x.MakesRoom {
				return errs.NoSpace
			}
			return nil
		}})}
	w.start()
	t.Cleanup(func() {
		w.store.Stop()
		_ = w.engine.Close()
	})
	return w, full
}

// TestWhatWorksWithoutSpace: on an engine that takes only what makes room, everything works that
// removing, cutting and reading files needs, and everything that makes more is refused.
func TestWhatWorksWithoutSpace(t *testing.T) {
	w, full := newFullWorld(t)
	ctx, s := t.Context(), w.store
	c := meta.Caller{Session: w.session}
	var inos []meta.Ino
	for i := range 3 {
		h, err := s.Create(ctx, c, meta.RootIno, fmt.Sprint("f", i), meta.NewFile{Mode: 0o644},
			meta.OpenRead|meta.OpenWrite)
		w.must(err)
		w.must(s.Close(ctx, c, wrote(h.ID, 1000, h.Attr.TruncSeq, 1)))
		inos = append(inos, h.Attr.Ino)
	}
	_, err := s.Make(ctx, c, meta.RootIno, "d", meta.NewFile{Type: meta.Directory, Mode: 0o755})
	w.must(err)
	w.must(s.SetXattr(ctx, c, inos[0], "user.a", []byte("1"), false, false))

	full.Store(true)
	refused := func(what string, err error) {
		t.Helper()
		if errs.KindOf(err) != errs.NoSpace {
			t.Errorf("%s without space: %v", what, err)
		}
	}
	_, err = s.Create(ctx, c, meta.RootIno, "new", meta.NewFile{Mode: 0o644}, meta.OpenWrite)
	refused("creating", err)
	_, err = s.Make(ctx, c, meta.RootIno, "e", meta.NewFile{Type: meta.Directory, Mode: 0o755})
	refused("mkdir", err)
	_, err = s.SetAttr(ctx, c, inos[0], meta.SetSize, meta.Attr{Size: 1 << 20})
	refused("growing", err)

	info, err := s.NewSession(ctx, "another")
	w.must(err)
	other := meta.Caller{Session: info.ID}
	srv := meta.Server{ID: 1, Addr: "a", StoreID: 1}
	w.must(s.Join(ctx, srv, meta.SignJoin(w.key.ServerKey(1), &srv)))
	h, err := s.Open(ctx, other, inos[0], meta.OpenRead)
	w.must(err)
	_, err = s.SetAttr(ctx, c, inos[0], meta.SetSize, meta.Attr{Size: 10})
	w.must(err)
	k, err := s.Create(ctx, c, meta.RootIno, "f1", meta.NewFile{Mode: 0o644},
		meta.OpenWrite|meta.OpenTruncate) // as a shell cuts a file that exists
	w.must(err)
	w.must(s.Close(ctx, c, meta.Closing{Handle: k.ID}))
	w.must(s.RemoveXattr(ctx, c, inos[0], "user.a"))
	for i := range 3 {
		w.must(metatest.Failed(s.Remove(ctx, c, meta.RootIno, fmt.Sprint("f", i), false)))
	}
	w.must(metatest.Failed(s.Remove(ctx, c, meta.RootIno, "d", true)))
	w.must(s.Close(ctx, other, meta.Closing{Handle: h.ID}))
	w.must(s.EndSession(ctx, info.ID))
	for gone := false; !gone; time.Sleep(time.Millisecond) { // the remains, in the background
		st, err := s.Status()
		w.must(err)
		gone = st.Removed == 3 && st.Queued == 0
	}
	full.Store(false)
	verify(t, s)
}

// TestRemovalsToldWithoutSpace: what a session has removed in a directory that it holds alone is
// carried out on a full disk, though it is told together with what is refused there.
func TestRemovalsToldWithoutSpace(t *testing.T) {
	w, full := newFullWorld(t)
	ctx := t.Context()
	c := meta.Caller{Session: w.session, Leases: true}
	heard, err := w.store.Listen(ctx, meta.Listening{Session: w.session})
	w.must(err)
	dir, err := w.store.Make(ctx, c, meta.RootIno, "d",
		meta.NewFile{Type: meta.Directory, Mode: 0o755, Sole: true})
	w.must(err)
	next, _, err := w.store.Numbers(ctx, c, 10)
	w.must(err)
	of := func(kind meta.DeferredKind, n int) meta.Deferred {
		return meta.Deferred{Kind: kind, Dir: dir.Ino, Name: fmt.Sprint(n), Ino: next + meta.Ino(n),
			At: meta.Time{Sec: 1}, File: meta.NewFile{Type: meta.Fifo}}
	}
	tell := func(id byte, list []meta.Deferred, wants ...errs.Kind) {
		t.Helper()
		c.ReqID = [16]byte{id, 15: 7}
		for range 2 { // the answer may be lost
			out, err := w.store.TellMany(ctx, c, heard.Epoch, list)
			w.must(err)
			for i := range out {
				if out[i].Kind != wants[i] {
					t.Fatalf("%d: %v, want %v", i, out[i].Kind, wants[i])
				}
			}
		}
	}
	made := []meta.Deferred{of(meta.DeferMake, 1), of(meta.DeferMake, 2), of(meta.DeferMake, 3)}
	tell(1, made, errs.OK, errs.OK, errs.OK)
	full.Store(true)
	tell(2, []meta.Deferred{of(meta.DeferRemove, 1), of(meta.DeferMake, 4), of(meta.DeferRemove, 2),
		{Kind: meta.DeferTouch, Dir: dir.Ino, At: meta.Time{Sec: 2}}, of(meta.DeferRemove, 3)},
		errs.OK, errs.NoSpace, errs.OK, errs.NoSpace, errs.OK)
	full.Store(false)
	verify(t, w.store)
}
