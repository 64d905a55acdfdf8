package store_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// shelf is one server's objects by name.
type shelf struct {
	*metatest.Objects
	mu   sync.Mutex
	have map[meta.ObjectRef]bool
}

func (s *shelf) write(o meta.ObjectRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have[o] = true
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.have)
}

// ListObjects returns pages of two.
func (s *shelf) ListObjects(_ context.Context, _ uint32, after meta.ObjectRef) (
	[]meta.ObjectRef, error) {

	s.mu.Lock()
	defer s.mu.Unlock()
	var page []meta.ObjectRef
	for o := range s.have {
		if compare(o, after) > 0 {
			page = append(page, o)
		}
	}
	slices.SortFunc(page, compare)
	return page[:min(len(page), 2)], nil
}

func compare(a, b meta.ObjectRef) int {
	return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(a.Gen, b.Gen),
		cmp.Compare(a.Stripe, b.Stripe))
}

func (s *shelf) RemoveObject(_ context.Context, server uint32, o meta.ObjectRef) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.have[o] || server != 1 {
		return errs.NotFound
	}
	delete(s.have, o)
	return nil
}

func (s *shelf) Remove(ctx context.Context, f meta.FileRef, stripe int) error {
	s.mu.Lock()
	delete(s.have, meta.ObjectRef{Ino: f.Ino, Gen: f.Gen})
	s.mu.Unlock()
	return s.Objects.Remove(ctx, f, stripe)
}

// TestObjectsThatNobodyNamesAreCollected: a create that a power cut undid and a write that came
// after the removal leave objects; those go, and no other does: files, an unlinked file that is
// open, a volume, and numbers that the service never gave out.
func TestObjectsThatNobodyNamesAreCollected(t *testing.T) {
	objects := &shelf{Objects: metatest.NewObjects(), have: map[meta.ObjectRef]bool{}}
	w := &world{t: t, engine: memkv.New(memkv.Options{}), objects: objects.Objects}
	start := func() {
		var err error
		w.store, err = store.New(context.Background(), w.engine, store.Options{Objects: objects,
			Key: w.key, Tick: 2 * time.Millisecond, CapTTL: 20 * time.Millisecond,
			CollectEvery: 10 * time.Millisecond, CollectPause: time.Millisecond})
		w.must(err)
		w.join(meta.Server{ID: 1, Addr: "a", StoreID: 1})
		if w.session != 0 { // nobody else claims what it had open
			w.must(w.store.EndSession(t.Context(), w.session))
		}
		info, err := w.store.NewSession(t.Context(), "collect")
		w.must(err)
		w.session = info.ID
	}
	start()
	t.Cleanup(func() {
		w.store.Stop()
		_ = w.engine.Close()
	})
	ref := func(a meta.Attr) meta.ObjectRef { return meta.ObjectRef{Ino: a.Ino, Gen: a.Gen} }

	w.must(w.store.Sync(t.Context()))
	undone := w.create("undone").Attr
	objects.write(ref(undone))
	w.engine = w.engine.Crash()
	w.store.Stop()
	start()
	if _, err := w.store.Lookup(t.Context(), meta.Caller{}, meta.RootIno, "undone"); err == nil {
		t.Fatal("the create was durable: the test shows nothing")
	}

	file, open, late := w.create("file").Attr, w.create("open").Attr, w.create("late")
	vol, err := w.store.CreateVolume(t.Context(), meta.Caller{Session: w.session}, "vol", 1<<20,
		meta.NewFile{})
	w.must(err)
	attr, err := w.store.GetAttr(t.Context(), meta.Caller{Session: w.session}, vol.Ino)
	w.must(err)
	unknown := meta.ObjectRef{Ino: file.Ino + 1<<30, Gen: 7}
	stay := []meta.ObjectRef{ref(file), ref(open), ref(attr), unknown}
	for _, o := range stay {
		objects.write(o)
	}
	w.must(metatest.Failed(w.store.Remove(t.Context(), meta.Caller{}, meta.RootIno, "open", false)))
	c := meta.Caller{Session: w.session}
	w.must(w.store.Close(t.Context(), c, meta.Closing{Handle: late.ID}))
	w.must(metatest.Failed(w.store.Remove(t.Context(), meta.Caller{}, meta.RootIno, "late", false)))
	objects.write(ref(late.Attr)) // it was on its way
	objects.write(meta.ObjectRef{Ino: file.Ino, Gen: file.Gen + 1})

	awaitCollected(w, objects, len(stay))
	objects.mu.Lock()
	defer objects.mu.Unlock()
	for _, o := range stay {
		if !objects.have[o] {
			t.Errorf("%+v was collected", o)
		}
	}
	st, err := w.store.Status()
	w.must(err)
	if st.Collected < 2 || st.Unnamed != 1 {
		t.Errorf("status: %d collected, %d left alone", st.Collected, st.Unnamed)
	}
}

// awaitCollected waits until n objects are left, and some rounds more.
func awaitCollected(w *world, objects *shelf, n int) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); objects.count() > n; {
		if time.Now().After(deadline) {
			w.t.Fatalf("%d objects, %d are named", objects.count(), n)
		}
		w.must(w.store.KeepAlive(w.t.Context(), w.session))
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
}
