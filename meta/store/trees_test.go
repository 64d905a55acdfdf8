package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestTreeOfAnAbsentServer: a large tree is removed while a server is away. All goes but the
// objects there; those go when it returns.
func TestTreeOfAnAbsentServer(t *testing.T) {
	h := newHospital(t)
	const n = 3000
	dir, err := h.s.Make(t.Context(), h.c, meta.RootIno, "tree",
		meta.NewFile{Type: meta.Directory, Mode: 0o755})
	h.must(err)
	for i := range n {
		f, err := h.s.Create(t.Context(), h.c, dir.Ino, fmt.Sprint(i),
			meta.NewFile{Mode: 0o600, Width: 2}, meta.OpenWrite)
		h.must(err)
		h.must(h.s.Close(t.Context(), h.c, wrote(f.ID, 5, 0, 1)))
	}
	h.away()
	h.ward.hang(2)
	h.must(h.s.RemoveTree(t.Context(), h.c, meta.RootIno, "tree"))
	h.eventually("server 1 has removed its part of all", func() bool { return h.ward.count(1) == n })
	h.eventually("only server 2's part is left", func() bool { return h.queued() == n })
	if asked := h.ward.count(2); asked > 0 {
		t.Errorf("the server that is away was asked %d times", asked)
	}
	h.ward.hang(0)
	h.join(2)
	h.eventually("all is removed", func() bool { return h.queued() == 0 })
	if asked := h.ward.count(2); asked != n {
		t.Errorf("the server that came back was asked %d times for %d objects", asked, n)
	}
	verify(t, h.s)
}

// TestPowerCutsWhileATreeIsRemoved: however often the power is cut, the tree is there as a whole or
// its name is gone; in the end nothing is left, and nothing else has changed.
func TestPowerCutsWhileATreeIsRemoved(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	w := newWorld(t)
	c := meta.Caller{}
	mk := func(dir meta.Ino, name string, typ meta.Type) meta.Ino {
		a, err := w.store.Make(t.Context(), c, dir, name, meta.NewFile{Type: typ, Mode: 0o755})
		w.must(err)
		return a.Ino
	}
	stay := mk(meta.RootIno, "stay", meta.Directory)
	want := w.tree()
	dirs := []meta.Ino{mk(meta.RootIno, "tree", meta.Directory)}
	for i := range 400 {
		dir := dirs[rng.IntN(len(dirs))]
		if i%4 == 0 {
			dirs = append(dirs, mk(dir, fmt.Sprint("d", i), meta.Directory))
		} else {
			ino := mk(dir, fmt.Sprint("f", i), meta.Regular)
			if i%5 == 0 {
				_, err := w.store.Link(t.Context(), c, ino, dir, fmt.Sprint("l", i))
				w.must(err)
			}
		}
	}
	_, err := w.store.SetQuota(t.Context(), c, dirs[0], meta.Usage{}) // is being counted meanwhile
	w.must(err)
	w.must(w.store.Sync(t.Context()))
	w.must(w.store.RemoveTree(t.Context(), c, meta.RootIno, "tree"))
	var sessions []uint64
	for range 10 {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		if rng.IntN(2) == 0 {
			w.must(w.store.Sync(t.Context()))
		}
		sessions = append(sessions, w.session)
		w.cut()
		if verify(t, w.store); t.Failed() {
			t.FailNow()
		}
		if _, err := w.store.Lookup(t.Context(), c, meta.RootIno, "tree"); err == nil {
			w.must(w.store.RemoveTree(t.Context(), c, meta.RootIno, "tree"))
		}
	}
	for _, id := range sessions { // they have nothing to claim
		w.must(w.store.EndSession(t.Context(), id))
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		st, err := w.store.StatFS(t.Context(), meta.RootIno)
		w.must(err)
		if st.Files == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d inodes are left", st.Files)
		}
	}
	if got := w.tree(); got != want {
		t.Fatalf("the tree beside is %s, was %s", got, want)
	}
	if _, err := w.store.GetAttr(t.Context(), c, stay); err != nil {
		t.Fatal(err)
	}
	verify(t, w.store)
}

// TestTreeRate: a tree is not removed faster than it may be, and operations go on meanwhile.
func TestTreeRate(t *testing.T) {
	const entries, rate = 600, 1000
	s, err := store.New(t.Context(), memkv.New(memkv.Options{}), store.Options{
		Objects: metatest.NewObjects(), Tick: time.Millisecond, TreeRate: rate})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	a, err := s.Make(t.Context(), meta.Caller{}, meta.RootIno, "d",
		meta.NewFile{Type: meta.Directory, Mode: 0o755})
	for i := 0; i < entries && err == nil; i++ {
		_, err = s.Make(t.Context(), meta.Caller{}, a.Ino, fmt.Sprint(i), meta.NewFile{Type: meta.Fifo})
	}
	if err == nil {
		err = s.RemoveTree(t.Context(), meta.Caller{}, meta.RootIno, "d")
	}
	begun := time.Now()
	for err == nil {
		var st store.Status
		if st, err = s.Status(); st.Files == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A tenth of a second's work may be done at once.
	if took := time.Since(begun); took < 400*time.Millisecond {
		t.Errorf("%d entries at %d a second took %v", entries, rate, took)
	}
}

// TestRepairKeepsTreesThatAreRemoved: what is left of a removal when records are lost goes on after
// the repair, and what was not in the tree stays.
func TestRepairKeepsTreesThatAreRemoved(t *testing.T) {
	for seed := range uint64(20) {
		engine := memkv.New(memkv.Options{})
		opt := store.Options{Objects: metatest.NewObjects(), Tick: time.Millisecond, TreeRate: 1}
		s, err := store.New(t.Context(), engine, opt)
		if err != nil {
			t.Fatal(err)
		}
		mk := func(dir meta.Ino, name string) meta.Ino {
			a, err := s.Make(t.Context(), meta.Caller{}, dir, name,
				meta.NewFile{Type: meta.Directory, Mode: 0o755})
			if err != nil {
				t.Fatal(err)
			}
			return a.Ino
		}
		mk(meta.RootIno, "stay")
		tree := mk(meta.RootIno, "tree")
		for i := range 30 {
			mk(mk(tree, fmt.Sprint("d", i)), "below")
		}
		if err := s.RemoveTree(t.Context(), meta.Caller{}, meta.RootIno, "tree"); err != nil {
			t.Fatal(err)
		}
		s.Stop()
		if seed > 0 {
			loseRecords(t, engine, rand.New(rand.NewPCG(seed, 3)))
		}
		err = store.Repair(t.Context(), engine, func(text string) { t.Log(text) })
		if err != nil {
			t.Fatal(err)
		}
		opt.TreeRate = 0
		if s, err = store.New(t.Context(), engine, opt); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			st, err := s.Status()
			if err != nil || time.Now().After(end) {
				t.Fatalf("%v: %d trees are left", err, st.Trees)
			}
			if st.Trees == 0 {
				break
			}
		}
		verify(t, s)
		if _, err := s.Lookup(t.Context(), meta.Caller{}, meta.RootIno, "stay"); err != nil && seed == 0 {
			t.Error(err)
		}
		s.Stop()
	}
}
