package memkv_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
)

func add(id byte, sync bool) *kv.Txn {
	return &kv.Txn{
		ReqID: kv.ReqID{id}, Adds: []kv.Add{{Key: []byte("n"), Delta: 1}}, Sync: sync,
	}
}

func count(s *memkv.Store) byte {
	snap := s.Snapshot()
	defer snap.Close()
	value, v, _ := snap.Get([]byte("n"))
	if v == 0 {
		return 0
	}
	return value[len(value)-1]
}

func TestInjectedConflictsChangeNothing(t *testing.T) {
	s := memkv.New(memkv.Options{Before: memkv.Every(2, errs.Conflict)})
	for i := byte(1); i <= 4; i++ {
		_, err := s.Commit(context.Background(), add(i, false))
		if want := i%2 == 0; errors.Is(err, errs.Conflict) != want {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	if n := count(s); n != 2 {
		t.Errorf("%d of 4 commits took effect, want 2", n)
	}
}

// TestLostAnswersAreResolvedByRepeating is what a client does about errs.MaybeDone, whether or
// not the transaction took effect.
func TestLostAnswersAreResolvedByRepeating(t *testing.T) {
	const seed = 7
	s := memkv.New(memkv.Options{
		Before: memkv.Seeded(seed, 0.3, errs.MaybeDone),
		After:  memkv.Lost(memkv.Seeded(seed+1, 0.3, errs.MaybeDone)),
	})
	lost := 0
	for i := byte(1); i <= 100; i++ {
		for {
			_, err := s.Commit(context.Background(), add(i, false))
			if err == nil {
				break
			}
			if !errors.Is(err, errs.MaybeDone) {
				t.Fatalf("Commit: %v", err)
			}
			lost++
		}
	}
	if n := count(s); n != 100 || lost == 0 {
		t.Errorf("100 requests with %d lost answers counted to %d", lost, n)
	}
}

func TestAFailedDiskMakesTheStoreReadOnly(t *testing.T) {
	broken := false
	s := memkv.New(memkv.Options{Disk: func() error {
		if broken {
			return errs.NoSpace
		}
		return nil
	}})
	commit := func(t *kv.Txn) error { _, err := s.Commit(context.Background(), t); return err }
	if err := commit(add(1, true)); err != nil {
		t.Fatal(err)
	}
	broken = true
	if err := commit(add(2, true)); !errors.Is(err, errs.NoSpace) {
		t.Errorf("commit on a full disk: %v", err)
	}
	broken = false
	for _, txn := range []*kv.Txn{add(3, false), add(1, true)} {
		if err := commit(txn); !errors.Is(err, errs.NoSpace) {
			t.Errorf("commit after the failure: %v", err)
		}
	}
	if after := s.Crash(); count(after) != 1 {
		t.Errorf("%d commits survived, want the first", count(after))
	} else if _, err := after.Commit(context.Background(), add(2, true)); err != nil {
		t.Errorf("commit after opening again: %v", err)
	}
}
