package store

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
)

// TestClients: sessions are listed with their names and open files, and not after their end.
func TestClients(t *testing.T) {
	ctx := context.Background()
	engine := memkv.New(memkv.Options{})
	defer engine.Close()
	s, err := New(ctx, engine, Options{Objects: metatest.NewObjects(), RootMode: 0o777})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	srv := meta.Server{ID: 1, Addr: "x", StoreID: 1, Total: 1 << 30, Free: 1 << 30}
	if err := s.Join(ctx, srv, meta.SignJoin(capability.Key{}.ServerKey(1), &srv)); err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, name := range []string{"one", "two"} {
		session, err := s.NewSession(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, session.ID)
	}
	a, err := s.Make(ctx, meta.Caller{Session: ids[1]}, meta.RootIno, "f",
		meta.NewFile{Type: meta.Regular, Mode: 0o644})
	if err == nil {
		_, err = s.Open(ctx, meta.Caller{Session: ids[1], ReqID: [16]byte{1}}, a.Ino, meta.OpenRead)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := []Client{{ids[1], "two", 1}, {ids[0], "one", 0}}
	if got := s.Clients(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := s.EndSession(ctx, ids[1]); err != nil {
		t.Fatal(err)
	}
	if got := s.Clients(); len(got) != 1 || got[0] != want[1] {
		t.Errorf("%+v after the end of one", got)
	}
}
