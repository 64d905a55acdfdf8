package store_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
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

// TestDeadHolderRefusesNobody: the same for programs that do not wait for a lock, and try again and
// again or only ask who has it, as SQLite does.
func TestDeadHolderRefusesNobody(t *testing.T) {
	l := meta.Lock{Ino: meta.RootIno, Kind: meta.LockRange, Type: meta.LockExclusive,
		End: meta.LockEndMax}
	tries := map[string]func(s *store.Store, c meta.Caller) (refused bool, err error){
		"try": func(s *store.Store, c meta.Caller) (bool, error) {
			_, err := s.Lock(t.Context(), c, l, meta.LockTry)
			if errs.KindOf(err) == errs.Busy {
				return true, nil
			}
			return false, err
		},
		"test": func(s *store.Store, c meta.Caller) (bool, error) {
			_, found, err := s.TestLock(t.Context(), c, l)
			return found, err
		},
	}
	for name, try := range tries {
		t.Run(name, func(t *testing.T) {
			var killed atomic.Bool
			s, err := store.New(t.Context(), memkv.New(memkv.Options{}), store.Options{
				Objects: metatest.NewObjects(), Tick: time.Millisecond, Lease: time.Hour,
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
				c[i] = meta.Caller{Session: info.ID}
			}
			if _, err := s.Lock(t.Context(), c[0], l, meta.LockTry); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
			if refused, err := try(s, c[1]); err != nil || !refused {
				t.Fatalf("both have it: %v", err)
			}
			killed.Store(true)
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				c[1].ReqID[0]++
				refused, err := try(s, c[1])
				if err != nil {
					t.Fatal(err)
				}
				if !refused {
					return
				}
				if time.Now().After(end) {
					t.Fatal("the lock of the dead is kept")
				}
			}
		})
	}
}

// TestVolumeOfTheDeadAfterARestart: a service that has just started does not know what clients have
// open, and need not wait for one whose process is dead.
func TestVolumeOfTheDeadAfterARestart(t *testing.T) {
	var killed atomic.Bool
	engine := memkv.New(memkv.Options{})
	defer engine.Close()
	objects := metatest.NewObjects()
	begin := func() *store.Store {
		s, err := store.New(t.Context(), engine, store.Options{Objects: objects,
			Tick: 2 * time.Millisecond, Lease: time.Hour,
			Dead: func(client string) (bool, bool) { return client == "a" && killed.Load(), true }})
		if err != nil {
			t.Fatal(err)
		}
		srv := meta.Server{ID: 1, Addr: "a", StoreID: 1}
		var key capability.Key
		if err := s.Join(t.Context(), srv, meta.SignJoin(key.ServerKey(1), &srv)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	open := func(s *store.Store, client string) error {
		info, err := s.NewSession(t.Context(), client)
		if err == nil {
			_, _, err = s.OpenVolume(t.Context(), meta.Caller{Session: info.ID}, "v", meta.OpenWrite, 0)
		}
		return err
	}
	s := begin()
	if _, err := s.CreateVolume(t.Context(), meta.Caller{}, "v", 1<<20, meta.NewFile{}); err != nil {
		t.Fatal(err)
	}
	if err := open(s, "a"); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s = begin()
	defer s.Stop()
	if err := open(s, "b"); errs.KindOf(err) != errs.Again {
		t.Fatalf("opened although a living client may have it open: %v", err)
	}
	killed.Store(true)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := open(s, "b")
		if err == nil {
			return
		}
		if errs.KindOf(err) != errs.Again || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
