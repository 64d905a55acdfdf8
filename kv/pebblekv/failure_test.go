package pebblekv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

// fault fails operations of a kind on files with a suffix once it is switched on, with an errno.
type fault struct {
	mu     sync.Mutex
	on     bool
	suffix string
	kinds  []errorfs.OpKind
	err    error
}

func (f *fault) String() string { return "fault" }

func (f *fault) MaybeError(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || !strings.HasSuffix(filepath.Base(op.Path), f.suffix) {
		return nil
	}
	for _, k := range f.kinds {
		if op.Kind == k {
			return f.err
		}
	}
	return nil
}

func (f *fault) set(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

func writes() []errorfs.OpKind {
	return []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData,
		errorfs.OpFileSyncTo, errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpRename}
}

// hammer commits until the store refuses, with values big enough to fill memtables. It returns
// the versions of the commits that were acknowledged as synced, by key, and the refusal.
func hammer(s *pebblekv.Store) (map[string]kv.Version, error) {
	synced := map[string]kv.Version{}
	for i := 0; ; i++ {
		key := fmt.Sprintf("k%06d", i)
		t := kv.Txn{Puts: []kv.Put{{Key: []byte(key), Value: make([]byte, 32<<10)}}, Sync: i%4 == 0}
		r, err := s.Commit(context.Background(), &t)
		if err != nil || i > 5000 {
			return synced, err
		}
		if t.Sync {
			synced[key] = r.Version
		}
	}
}

func TestAFailedWriteMakesTheStoreReadOnly(t *testing.T) {
	for _, c := range []struct {
		name   string
		suffix string
		kinds  []errorfs.OpKind
		errno  syscall.Errno
		want   errs.Kind
	}{
		{"log write", ".log", []errorfs.OpKind{errorfs.OpFileWrite}, syscall.EIO, errs.IO},
		{"log sync", ".log", writes()[1:3], syscall.EIO, errs.IO},
		{"log full", ".log", writes(), syscall.ENOSPC, errs.NoSpace},
		{"table write", ".sst", writes(), syscall.EIO, errs.IO},
		{"table full", ".sst", writes(), syscall.ENOSPC, errs.NoSpace},
		{"everything full", "", writes(), syscall.ENOSPC, errs.NoSpace},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			f := &fault{suffix: c.suffix, kinds: c.kinds, err: c.errno}
			s, err := pebblekv.Open(pebblekv.Options{
				Dir: "store", FS: errorfs.Wrap(disk, f), MemtableBytes: 1 << 20,
			})
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			first := mustCommit(t, s, kv.Txn{Puts: puts("first", "1"), Sync: true})
			f.set(true)
			synced, err := hammer(s)
			if !errors.Is(err, c.want) {
				t.Fatalf("commits on a failed disk end with %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), "read-only") {
				t.Errorf("the error does not say what happened: %v", err)
			}
			synced["first"] = first
			if c.want == errs.NoSpace {
				checkReadOnly(t, s, c.want)
				f.set(false) // there is room again
				synced["later"] = awaitCommit(t, s, kv.Txn{Puts: puts("later", "1"), Sync: true})
				checkKeys(t, s, synced)
				if err := s.Close(); err != nil {
					t.Errorf("Close of a store that has recovered: %v", err)
				}
			} else {
				f.set(false) // the disk recovers, the store must not trust it
				checkReadOnly(t, s, c.want)
				if err := s.Close(); !errors.Is(err, c.want) {
					t.Errorf("Close of a failed store: %v", err)
				}
			}
			checkAfter(t, disk.CrashClone(vfs.CrashCloneCfg{}), synced)
		})
	}
}

// checkReadOnly: nothing is committed any more, not even a repeat, and everything can be read.
func checkReadOnly(t *testing.T, s *pebblekv.Store, want errs.Kind) {
	t.Helper()
	ctx := context.Background()
	for _, txn := range []kv.Txn{{}, {Puts: puts("x", "1"), Sync: true}, {ReqID: kv.ReqID{1}}} {
		if _, err := s.Commit(ctx, &txn); !errors.Is(err, want) {
			t.Errorf("Commit after the failure: %v, want %v", err, want)
		}
	}
	if err := s.Sync(ctx); !errors.Is(err, want) {
		t.Errorf("Sync after the failure: %v, want %v", err, want)
	}
	snap := s.Snapshot()
	if value, v, err := snap.Get([]byte("first")); string(value) != "1" || v == 0 || err != nil {
		t.Errorf("Get after the failure: %q, %d, %v", value, v, err)
	}
	n := 0
	err := snap.Scan(nil, nil, func(_, _ []byte, _ kv.Version) bool { n++; return true })
	if err != nil || n == 0 {
		t.Errorf("Scan after the failure: %d keys, %v", n, err)
	}
	if err := snap.Close(); err != nil {
		t.Errorf("Snapshot.Close: %v", err)
	}
}

// checkAfter opens what was left and demands what had been acknowledged as synced.
func checkAfter(t *testing.T, disk *vfs.MemFS, synced map[string]kv.Version) {
	t.Helper()
	s, err := pebblekv.Open(pebblekv.Options{Dir: "store", FS: disk})
	if err != nil {
		t.Fatalf("Open after the failure: %v", err)
	}
	checkKeys(t, s, synced)
	mustCommit(t, s, kv.Txn{Puts: puts("again", "1"), Sync: true})
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// checkKeys demands that keys have the versions that they were acknowledged with.
func checkKeys(t *testing.T, s *pebblekv.Store, acked map[string]kv.Version) {
	t.Helper()
	snap := s.Snapshot()
	defer snap.Close()
	for key, v := range acked {
		if _, got, err := snap.Get([]byte(key)); got != v || err != nil {
			t.Errorf("key %q is at %d (%v), %d was acknowledged", key, got, err, v)
		}
	}
}

// TestCrashAtEveryStep fails the disk for good at the n-th change, for many n, opening included,
// and opens what a crash there leaves.
func TestCrashAtEveryStep(t *testing.T) {
	const stride = 3 // with another beginning in every run, to be quick
	from := rand.Int32N(stride)
	t.Logf("from %d", from)
	for n := from; ; n += stride {
		disk := vfs.NewCrashableMem()
		stop := newStopAt(n)
		synced := map[string]kv.Version{}
		s, err := pebblekv.Open(pebblekv.Options{
			Dir: "store", FS: errorfs.Wrap(disk, stop), MemtableBytes: 1 << 20,
		})
		if err == nil {
			synced = workload(s)
			_ = s.Close() // fails if the disk did
		}
		checkAfter(t, disk.CrashClone(vfs.CrashCloneCfg{}), synced)
		if t.Failed() {
			t.Fatalf("with the disk failing at change %d", n)
		}
		if !stop.reached() {
			t.Logf("%d steps", n)
			return
		}
	}
}

// stopAt fails every change from the n-th on.
type stopAt struct {
	mu   sync.Mutex
	left int32
}

func newStopAt(n int32) *stopAt { return &stopAt{left: n} }

func (s *stopAt) String() string { return "stop" }

func (s *stopAt) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpLock {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left < 0 {
		return syscall.EIO
	}
	return nil
}

func (s *stopAt) reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left < 0
}

// workload makes some commits, enough to write out a memtable, until one is refused.
func workload(s *pebblekv.Store) map[string]kv.Version {
	synced := map[string]kv.Version{}
	for i := range 24 {
		key := fmt.Sprintf("k%02d", i)
		t := kv.Txn{Puts: []kv.Put{{Key: []byte(key), Value: make([]byte, 60<<10)}}, Sync: i%2 == 0}
		r, err := s.Commit(context.Background(), &t)
		if err != nil {
			return synced
		}
		if t.Sync {
			synced[key] = r.Version
		}
	}
	return synced
}

func puts(key, value string) []kv.Put {
	return []kv.Put{{Key: []byte(key), Value: []byte(value)}}
}

func mustCommit(tb testing.TB, s kv.Store, t kv.Txn) kv.Version {
	tb.Helper()
	r, err := s.Commit(context.Background(), &t)
	if err != nil {
		tb.Fatalf("Commit: %v", err)
	}
	return r.Version
}
