package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

func put(t testing.TB, engine kv.Store, key, value string) {
	t.Helper()
	_, err := engine.Commit(context.Background(), &kv.Txn{
		Puts: []kv.Put{{Key: []byte(key), Value: []byte(value)}}})
	if err != nil {
		t.Fatal(err)
	}
}

// watched counts conflicts.
type watched struct {
	kv.Store
	conflicts atomic.Int64
}

func (w *watched) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	r, err := w.Store.Commit(ctx, t)
	if errs.KindOf(err) == errs.Conflict {
		w.conflicts.Add(1)
	}
	return r, err
}

func newStore(t testing.TB, engine kv.Store) *store.Store {
	t.Helper()
	s, err := store.New(context.Background(), engine,
		store.Options{Objects: metatest.NewObjects(), HeartbeatMax: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		_ = engine.Close()
	})
	for id := uint32(1); id <= 4; id++ {
		srv := meta.Server{ID: id, Addr: "a", StoreID: 1}
		err := s.Join(context.Background(), srv,
			meta.SignJoin(capability.Key{}.ServerKey(id), &srv))
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestCreatesInOneDirectoryDoNotConflict: neither with each other nor with removals beside them.
func TestCreatesInOneDirectoryDoNotConflict(t *testing.T) {
	engine := &watched{Store: memkv.New(memkv.Options{})}
	s := newStore(t, engine)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 50 {
				name := fmt.Sprint(i, ".", k)
				f := meta.NewFile{Type: []meta.Type{meta.Regular, meta.Directory}[k%2]}
				_, err := s.Make(t.Context(), meta.Caller{}, meta.RootIno, name, f)
				if err == nil && k%3 == 0 {
					err = metatest.Failed(s.Remove(t.Context(), meta.Caller{}, meta.RootIno, name, k%2 == 1))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := engine.conflicts.Load(); n != 0 {
		t.Fatalf("%d conflicts", n)
	}
}

func engines(b *testing.B, run func(b *testing.B, s *store.Store)) {
	b.Run("memkv", func(b *testing.B) { run(b, newStore(b, memkv.New(memkv.Options{}))) })
	b.Run("pebblekv", func(b *testing.B) {
		engine, err := pebblekv.Open(pebblekv.Options{Dir: "meta", FS: vfs.NewMem()})
		if err != nil {
			b.Fatal(err)
		}
		run(b, newStore(b, engine))
	})
}

func BenchmarkMake(b *testing.B) {
	engines(b, func(b *testing.B, s *store.Store) {
		var n atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, err := s.Make(b.Context(), meta.Caller{}, meta.RootIno, fmt.Sprint("f", n.Add(1)),
					meta.NewFile{Type: meta.Regular, Mode: 0o644})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

func BenchmarkGetAttr(b *testing.B) {
	engines(b, func(b *testing.B, s *store.Store) {
		a, err := s.Make(b.Context(), meta.Caller{}, meta.RootIno, "f",
			meta.NewFile{Type: meta.Regular, Mode: 0o644})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := s.GetAttr(b.Context(), meta.Caller{}, a.Ino); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
