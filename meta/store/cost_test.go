package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// metered counts the keys that operations read, those of attempts that met a conflict included, and
// what commits look at: work that others wait for.
type metered struct {
	kv.Store
	keys    atomic.Int64
	longest atomic.Int64 // the most keys that one scan has read
}

func (m *metered) Snapshot() kv.Snapshot { return &meteredSnapshot{m.Store.Snapshot(), m} }

func (m *metered) Commit(ctx context.Context, t *kv.Txn) (kv.Result, error) {
	m.keys.Add(int64(len(t.Checks) + len(t.Ranges) + t.Effects()))
	return m.Store.Commit(ctx, t)
}

type meteredSnapshot struct {
	kv.Snapshot
	m *metered
}

func (s *meteredSnapshot) Get(key []byte) ([]byte, kv.Version, error) {
	s.m.keys.Add(1)
	return s.Snapshot.Get(key)
}

func (s *meteredSnapshot) Scan(start, end []byte, fn func(k, v []byte, at kv.Version) bool) error {
	s.m.keys.Add(1)
	n := int64(0)
	return s.Snapshot.Scan(start, end, func(k, v []byte, at kv.Version) bool {
		s.m.keys.Add(1)
		if n++; n > s.m.longest.Load() { // may miss one of several at once
			s.m.longest.Store(n)
		}
		return fn(k, v, at)
	})
}

// busy is a service with n of everything that a client can make many of.
type busy struct {
	t       *testing.T
	m       *metered
	s       *store.Store
	c       meta.Caller // has all the handles
	other   meta.Caller
	orphan  meta.Ino // no name, n readers
	shared  meta.Ino // n writers of c, of another user each
	rich    meta.Ino // n attributes
	readers []uint64
	writers []uint64
}

func newBusy(t *testing.T, n int) *busy {
	b := &busy{t: t, m: &metered{Store: memkv.New(memkv.Options{})}}
	b.s = newStore(t, b.m)
	b.c, b.other = b.session(), b.session()
	b.orphan, b.shared, b.rich = b.file("orphan"), b.file("shared"), b.file("rich")
	for i := range n {
		b.readers = append(b.readers, b.open(b.c, b.orphan, meta.OpenRead))
		as := b.c
		as.Cred.UID = uint32(i)
		b.writers = append(b.writers, b.open(as, b.shared, meta.OpenRead|meta.OpenWrite))
		b.must(b.s.SetXattr(t.Context(), b.c, b.rich, fmt.Sprintf("user.%d", i), nil, false, false))
	}
	b.must(metatest.Failed(b.s.Remove(t.Context(), b.c, meta.RootIno, "orphan", false)))
	return b
}

func (b *busy) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *busy) session() meta.Caller {
	info, err := b.s.NewSession(b.t.Context(), "busy")
	b.must(err)
	return meta.Caller{Session: info.ID}
}

func (b *busy) file(name string) meta.Ino {
	a, err := b.s.Make(b.t.Context(), b.c, meta.RootIno, name,
		meta.NewFile{Type: meta.Regular, Mode: 0o666})
	b.must(err)
	return a.Ino
}

func (b *busy) open(c meta.Caller, ino meta.Ino, flags meta.OpenFlags) uint64 {
	h, err := b.s.Open(b.t.Context(), c, ino, flags)
	b.must(err)
	return h.ID
}

// cost is how many keys fn reads, at the most of some tries: background work counts too.
func (b *busy) cost(fn func() error) int64 {
	b.t.Helper()
	least := int64(1 << 62)
	for range 3 {
		before := b.m.keys.Load()
		b.must(fn())
		least = min(least, b.m.keys.Load()-before)
	}
	return least
}

// costs does every operation whose cost might depend on how much there is.
func (b *busy) costs() map[string]int64 {
	ctx, take := b.t.Context(), 0
	last := meta.Cred{UID: uint32(len(b.writers) - 1)}
	names := 0
	return map[string]int64{
		"close one of many readers of an unlinked file": b.cost(func() error {
			take++
			return b.s.Close(ctx, b.c, meta.Closing{Handle: b.readers[len(b.readers)/2+take]})
		}),
		"close one of many writers": b.cost(func() error {
			take++
			return b.s.Close(ctx, b.c, wrote(b.writers[take], 1, 0, 1))
		}),
		"open": b.cost(func() error {
			_, err := b.s.Open(ctx, b.other, b.shared, meta.OpenRead)
			return err
		}),
		"commit": b.cost(func() error {
			_, err := b.s.Commit(ctx, b.c, told(b.shared, 1, 0, 1), false)
			return err
		}),
		"stat by the writer": b.cost(func() error {
			_, err := b.s.GetAttr(ctx, b.c, b.shared)
			return err
		}),
		"stat by another": b.cost(func() error {
			_, err := b.s.GetAttr(ctx, b.other, b.shared)
			return err
		}),
		"ftruncate by the last of many users": b.cost(func() error {
			_, err := b.s.SetAttr(ctx, meta.Caller{Session: b.c.Session, Cred: last}, b.shared,
				meta.SetSize, meta.Attr{})
			return err
		}),
		"set one more attribute": b.cost(func() error {
			names++
			return b.s.SetXattr(ctx, b.c, b.rich, fmt.Sprintf("user.x%d", names), nil, true, false)
		}),
		"start of a session": b.cost(func() error {
			_, err := b.s.NewSession(ctx, "another")
			return err
		}),
	}
}

// TestCostsDoNotGrow: with what one client has many of, nothing gets dearer for anybody. What is
// measured is work, not time.
func TestCostsDoNotGrow(t *testing.T) {
	few := newBusy(t, 100).costs()
	many := newBusy(t, 5000).costs()
	for what, n := range few {
		t.Logf("%-50s %d keys, %d keys", what, n, many[what])
		if many[what] > n+3 {
			t.Errorf("%s: %d keys with 100, %d with 5000", what, n, many[what])
		}
	}
}

// TestAllCloseAtOnce: many who close at the same time neither repeat each other's work nor leave
// the file behind.
func TestAllCloseAtOnce(t *testing.T) {
	for _, n := range []int{200, 3000} {
		b := newBusy(t, n)
		b.m.keys.Store(0)
		var wg sync.WaitGroup
		next := make(chan uint64)
		for range 32 {
			wg.Go(func() {
				for id := range next {
					if err := b.s.Close(t.Context(), b.c, meta.Closing{Handle: id}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for _, id := range b.readers {
			next <- id
		}
		close(next)
		wg.Wait()
		each := float64(b.m.keys.Load()) / float64(n)
		t.Logf("%d handles: %.1f keys each", n, each)
		if each > 60 {
			t.Errorf("%d handles: %.1f keys for each", n, each)
		}
		_, err := b.s.GetAttr(t.Context(), b.c, b.orphan)
		if errs.KindOf(err) != errs.NotFound {
			t.Errorf("the last handle is closed, and the file is there: %v", err)
		}
		verify(t, b.s)
	}
}

// TestManyHandlesOfADeadSession: while they wait for their capabilities to run out nobody reads
// them again and again; then all are closed.
func TestManyHandlesOfADeadSession(t *testing.T) {
	const n = 2000
	b := newBusy(t, n)
	b.must(b.s.EndSession(t.Context(), b.c.Session))
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		st, err := b.s.Status()
		b.must(err)
		if st.Handles == 0 && st.Ending == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d handles, %d sessions are left", st.Handles, st.Ending)
		}
	}
	verify(t, b.s)
}

// TestManyHandlesOfOneFile: closing the last of 100,000 costs what the first did: nothing is read
// or committed for any of them but the one that lets a removed file go.
func TestManyHandlesOfOneFile(t *testing.T) {
	const n = 100_000
	b := newBusy(t, 1)
	ino := b.file("many")
	handles := make([]uint64, n)
	for i := range handles {
		handles[i] = b.open(b.c, ino, meta.OpenRead)
	}
	b.must(metatest.Failed(b.s.Remove(t.Context(), b.c, meta.RootIno, "many", false)))
	b.m.keys.Store(0)
	for _, id := range handles[:n-1] {
		b.must(b.s.Close(t.Context(), b.c, meta.Closing{Handle: id}))
	}
	if keys := b.m.keys.Load(); keys > n/10 { // background work reads some
		t.Errorf("%d keys were read to close %d handles", keys, n-1)
	}
	if _, err := b.s.GetAttr(t.Context(), b.c, ino); err != nil {
		t.Fatal(err)
	}
	b.must(b.s.Close(t.Context(), b.c, meta.Closing{Handle: handles[n-1]}))
	if _, err := b.s.GetAttr(t.Context(), b.c, ino); errs.KindOf(err) != errs.NotFound {
		t.Errorf("the last handle is closed, and the file is there: %v", err)
	}
}
