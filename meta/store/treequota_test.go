package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// grove is a store in which trees with quotas are removed.
type grove struct {
	*testing.T
	s *store.Store
}

func newGrove(t *testing.T, rate int) *grove {
	s, err := store.New(t.Context(), memkv.New(memkv.Options{}), store.Options{
		Objects: metatest.NewObjects(), Tick: time.Millisecond, TreeRate: rate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return &grove{t, s}
}

func (g *grove) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func (g *grove) make(dir meta.Ino, name string, typ meta.Type) meta.Ino {
	g.Helper()
	a, err := g.s.Make(g.Context(), meta.Caller{}, dir, name, meta.NewFile{Type: typ, Mode: 0o755})
	g.must(err)
	return a.Ino
}

func (g *grove) limit(dir meta.Ino) error {
	_, err := g.s.SetQuota(g.Context(), meta.Caller{}, dir, meta.Usage{Inodes: 100})
	return err
}

func (g *grove) quotas() []meta.Quota {
	g.Helper()
	all, err := g.s.ListQuotas(g.Context(), meta.Caller{}, 0, meta.QuotaPageMax)
	g.must(err)
	return all
}

// TestTreeOfManyQuotas: quotas end with the directories of a tree that is removed, however many
// stand beside each other: what they add to a transaction counts when it is filled.
func TestTreeOfManyQuotas(t *testing.T) {
	g := newGrove(t, 0)
	top := g.make(meta.RootIno, "tree", meta.Directory)
	for i := range 40 {
		dir := g.make(top, fmt.Sprint("d", i), meta.Directory)
		g.must(g.limit(dir))
		if i%4 == 0 {
			g.make(dir, "f", meta.Fifo)
		}
	}
	g.must(g.s.RemoveTree(g.Context(), meta.Caller{}, meta.RootIno, "tree"))
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		st, err := g.s.Status()
		g.must(err)
		if st.Files == 1 && st.Trees == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d inodes and %d trees are left", st.Files, st.Trees)
		}
	}
	if left := g.quotas(); len(left) > 0 {
		t.Errorf("quotas are left: %+v", left)
	}
	verify(t, g.s)
}

// TestQuotasBesideARemovedTree: while a tree that has quotas is being removed, quotas are set,
// listed and compared with each other elsewhere, but not set in what has no name.
func TestQuotasBesideARemovedTree(t *testing.T) {
	g := newGrove(t, 1)
	top := g.make(meta.RootIno, "tree", meta.Directory)
	inner := g.make(top, "inner", meta.Directory)
	g.must(g.limit(inner))
	for i := range 50 {
		g.make(inner, fmt.Sprint(i), meta.Fifo)
	}
	g.must(g.s.RemoveTree(g.Context(), meta.Caller{}, meta.RootIno, "tree"))
	if err := g.limit(top); errs.KindOf(err) != errs.NotFound {
		t.Errorf("a quota of a directory without a name: %v", err)
	}
	a := g.make(meta.RootIno, "a", meta.Directory)
	b := g.make(meta.RootIno, "b", meta.Directory)
	g.must(g.limit(a))
	g.must(metatest.Failed(g.s.Rename(g.Context(), meta.Caller{}, meta.RootIno, "b", a, "b", 0)))
	if q, err := g.s.GetQuota(g.Context(), meta.Caller{}, b); err != nil || q.Path != "/a" {
		t.Errorf("the moved directory is in the tree of %+v, %v", q, err)
	}
	if all := g.quotas(); len(all) != 2 || all[0].Dir != inner || all[0].Path != "" {
		t.Errorf("quotas: %+v", all)
	}
	verify(t, g.s)
}
