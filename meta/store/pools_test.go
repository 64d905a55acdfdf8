package store_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestPoolsAreRestored: a dump has pools and policies, and a service that runs on what was loaded
// follows them.
func TestPoolsAreRestored(t *testing.T) {
	p := newPatient(t)
	ctx, c := t.Context(), meta.Caller{Session: p.session}
	made, err := p.store.CreatePool(ctx, c, "one", []uint32{1})
	p.must(err)
	want := layout.Policy{Pool: "one", Unit: layout.UnitMin}
	p.must(p.store.SetLayout(ctx, c, p.dir, want))
	b := p.backup(7, func() {})

	engine := memkv.New(memkv.Options{})
	defer engine.Close()
	_, err = store.Load(ctx, engine, bytes.NewReader(b), store.LoadOptions{
		Report: func(problem string) { t.Error(problem) }})
	p.must(err)
	s, err := store.New(ctx, engine, store.Options{Objects: p.objects})
	p.must(err)
	defer s.Stop()
	pools, err := s.ListPools(ctx, c)
	p.must(err)
	if len(pools) != 1 || pools[0].ID != made.ID || !slices.Equal(pools[0].Servers, []uint32{1}) {
		t.Errorf("pools %+v, want %+v", pools, made)
	}
	if got, err := s.GetLayout(ctx, c, p.dir); err != nil || got.Policy != want {
		t.Errorf("%v: %+v", err, got)
	}
}
