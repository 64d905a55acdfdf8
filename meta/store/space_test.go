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

// TestWhatWorksWithoutSpace: on an engine that takes only what makes room, everything works that
// removing, cutting and reading files needs, and everything that makes more is refused.
func TestWhatWorksWithoutSpace(t *testing.T) {
	var full atomic.Bool
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
