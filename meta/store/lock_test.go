package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestDeadHolderIsNotWaitedFor: where the service sees that the process of a client is dead, those
// who wait for its locks get them, long before its lease is over.
func TestDeadHolderIsNotWaitedFor(t *testing.T) {
	var killed atomic.Bool
	s, err := store.New(t.Context(), memkv.New(memkv.Options{}), store.Options{
		Objects: metatest.NewObjects(), Tick: time.Millisecond,
		Dead: func(client string) (bool, bool) { return client == "a" && killed.Load(), true },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	var c [2]meta.Caller
	for i, name := range []string{"a", "b"} {
		info, err := s.NewSession(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c[i] = meta.Caller{Session: info.ID, ReqID: [16]byte{byte(i) + 1}}
	}
	l := meta.Lock{Ino: meta.RootIno, Kind: meta.LockFlock, Type: meta.LockExclusive,
		End: meta.LockEndMax}
	for i, want := range []meta.LockState{meta.LockGranted, meta.LockQueued} {
		if state, err := s.Lock(t.Context(), c[i], l, meta.LockWait); err != nil || state != want {
			t.Fatal(state, err)
		}
	}
	news, err := s.AwaitLocks(t.Context(), c[1], 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	life := news.Life
	news, err = s.AwaitLocks(t.Context(), c[1], life, 0, 20*time.Millisecond)
	if err != nil || len(news.Events) != 0 {
		t.Fatalf("both have it: %v %v", news, err)
	}
	killed.Store(true)
	news, err = s.AwaitLocks(t.Context(), c[1], life, 0, 10*time.Second)
	if err != nil || len(news.Events) != 1 || news.Events[0].Kind != errs.OK {
		t.Fatalf("the lock of the dead is kept: %v %v", news, err)
	}
}
