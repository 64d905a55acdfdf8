package store_test

import (
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/meta"
)

func (w *world) join(srv meta.Server) {
	w.t.Helper()
	w.must(w.store.Join(w.t.Context(), srv, meta.SignJoin(w.key.ServerKey(srv.ID), &srv)))
}

func (w *world) create(name string) meta.Handle {
	w.t.Helper()
	h, err := w.store.Create(w.t.Context(), meta.Caller{Session: w.session}, meta.RootIno, name,
		meta.NewFile{Mode: 0o600}, meta.OpenRead|meta.OpenWrite)
	w.must(err)
	return h
}

func (w *world) lifeOf(h meta.Handle) uint32 {
	w.t.Helper()
	c, err := w.key.ServerKey(1).Verify(h.Caps[0][:])
	w.must(err)
	return c.Life
}

// TestLostMemoryIsInCapabilities: files from before a server lost its memory are lost, files that
// were made or cut to nothing since are not, whatever else restarts.
func TestLostMemoryIsInCapabilities(t *testing.T) {
	w := newWorld(t)
	first := meta.Server{ID: 1, Addr: "a", StoreID: 1, Life: 11}
	w.join(first)
	a, b := w.create("a"), w.create("b")
	if w.lifeOf(a) != 11 {
		t.Fatalf("life %d before any loss", w.lifeOf(a))
	}
	again := first
	again.Life = 12
	w.join(again)
	w.join(again) // a heartbeat is no loss
	renewed := func(h meta.Handle) meta.Handle {
		out, err := w.store.Renew(t.Context(), meta.Caller{Session: w.session}, []uint64{h.ID})
		w.must(err)
		return out[0]
	}
	if got := w.lifeOf(renewed(a)); got != capability.Lost {
		t.Errorf("a file from before the loss has life %d", got)
	}
	if got := w.lifeOf(w.create("c")); got != 12 {
		t.Errorf("a new file has life %d", got)
	}
	_, err := w.store.SetAttr(t.Context(), meta.Caller{Session: w.session}, b.Attr.Ino, meta.SetSize,
		meta.Attr{Size: 0})
	w.must(err)
	if got := w.lifeOf(renewed(b)); got != 12 {
		t.Errorf("a file that was cut to nothing has life %d", got)
	}
	_, err = w.store.SetAttr(t.Context(), meta.Caller{Session: w.session}, a.Attr.Ino, meta.SetSize,
		meta.Attr{Size: 5})
	w.must(err)
	if got := w.lifeOf(renewed(a)); got != capability.Lost {
		t.Errorf("a file that was cut in the middle has life %d", got)
	}
	w.must(w.store.Sync(t.Context()))
	w.store.Stop()
	w.engine, err = w.engine.Reopen()
	w.must(err)
	w.start() // joins without a life: the server has lost its memory once more
	h, err := w.store.Open(t.Context(), meta.Caller{Session: w.session}, b.Attr.Ino, meta.OpenRead)
	w.must(err)
	if got := w.lifeOf(h); got != capability.Lost {
		t.Errorf("after another loss the file has life %d", got)
	}
}

// TestNumbersThatServersHoldAreSkipped: a service that knows less than its servers gives out none
// of the numbers that they have objects of, and no name of an object twice.
func TestNumbersThatServersHoldAreSkipped(t *testing.T) {
	w := newWorld(t)
	before := w.create("before").Attr
	held := uint64(before.Ino) + 5000
	w.join(meta.Server{ID: 1, Addr: "a", StoreID: 1, MaxFile: held})
	after := w.create("after").Attr
	if uint64(after.Ino) <= held {
		t.Errorf("number %d is given out, a server has objects up to %d", after.Ino, held)
	}
	w.cut()
	if ino := w.create("later").Attr.Ino; ino <= after.Ino {
		t.Errorf("number %d after %d", ino, after.Ino)
	}
	gens := map[uint32]bool{}
	for _, name := range []string{"1", "2", "3", "4"} {
		gens[w.create(name).Attr.Gen] = true
	}
	if len(gens) < 3 {
		t.Errorf("generations %v: files share them", gens)
	}
}
