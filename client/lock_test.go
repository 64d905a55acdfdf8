package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

func lockOf(ino meta.Ino, typ meta.LockType, start, end int64) meta.Lock {
	return meta.Lock{Ino: ino, Owner: 1, Kind: meta.LockRange, Type: typ, Start: start, End: end}
}

// TestLocksOfTwoClients: a lock excludes another client, a waiting one is granted, and whoever gets
// a lock knows how long the file has become.
func TestLocksOfTwoClients(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	ctx := context.Background()
	a, b := c.client(Options{}), c.client(Options{})
	fa := create(t, a, "f", 2)
	fb, err := b.OpenIno(ctx, meta.Cred{}, fa.Ino(), meta.OpenRead)
	must(t, err)
	all := lockOf(fa.Ino(), meta.LockExclusive, 0, meta.LockEndMax)
	must(t, a.Lock(ctx, all, false))
	if err := b.Lock(ctx, all, false); errs.KindOf(err) != errs.Busy {
		t.Fatalf("both have it: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	if err := b.Lock(short, all, true); errs.KindOf(err) != errs.TimedOut {
		t.Fatalf("waited for a moment: %v", err)
	}
	cancel()
	got := make(chan error)
	go func() { got <- b.Lock(ctx, all, true) }()
	_, err = fa.WriteAt(ctx, make([]byte, 5000), 0)
	must(t, err)
	must(t, a.Unlock(ctx, all))
	must(t, <-got)
	if fb.Size() != 5000 {
		t.Fatalf("it is locked, and %d bytes long", fb.Size())
	}
	if holder, found, err := a.TestLock(ctx, all); err != nil || !found || holder.PID != 0 {
		t.Fatal(holder, found, err)
	}
	must(t, b.ReleaseOwner(ctx, fa.Ino(), meta.LockRange, 1, nil))
	must(t, a.Lock(ctx, all, false))
}

// TestLocksAreClaimed: a client whose session is found dead takes its locks over into a new one,
// if it comes back in time.
func TestLocksAreClaimed(t *testing.T) {
	c := newCluster(t, 1, store.Options{Lease: 300 * time.Millisecond, Tick: 10 * time.Millisecond})
	ctx := context.Background()
	a, b := c.client(Options{}), c.client(Options{})
	f := create(t, a, "f", 1)
	all := lockOf(f.Ino(), meta.LockExclusive, 0, 9)
	must(t, a.Lock(ctx, all, false))
	got := make(chan error, 1)
	go func() { got <- b.Lock(ctx, all, true) }()
	old := a.sess.Load()
	must(t, a.replaceSession(ctx, old)) // as if it had been found dead: the service still has it
	if _, err := f.WriteAt(ctx, []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	must(t, c.meta.EndSession(ctx, old.id))
	select {
	case err := <-got:
		t.Fatalf("the other client has got it: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	must(t, a.Unlock(ctx, all))
	must(t, <-got)
}

// TestLostLock: where others may have had a lock, its holder's reads and writes fail.
func TestLostLock(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	ctx := context.Background()
	a, b := c.client(Options{}), c.client(Options{})
	f := create(t, a, "f", 1)
	other := create(t, a, "g", 1)
	all := lockOf(f.Ino(), meta.LockExclusive, 0, 9)
	must(t, a.Lock(ctx, all, false))
	must(t, a.remake.take(ctx)) // it comes back too late, and not while its session is ending
	old := a.sess.Load()
	must(t, c.meta.EndSession(ctx, old.id))
	must(t, b.Lock(ctx, all, true))
	a.remake.giveBack()
	must(t, a.replaceSession(ctx, old))
	if _, err := f.WriteAt(ctx, []byte("x"), 0); errs.KindOf(err) != errs.IO {
		t.Fatalf("written without the lock: %v", err)
	}
	_, err := other.WriteAt(ctx, []byte("x"), 0)
	must(t, err)
	_ = f.Close(ctx)
	f, err = a.OpenIno(ctx, meta.Cred{}, f.Ino(), meta.OpenRead|meta.OpenWrite)
	must(t, err)
	_, err = f.WriteAt(ctx, []byte("x"), 0)
	must(t, err)
}

// TestLocksExclude: counters in files that several clients raise, reading and writing under locks,
// with sessions that are replaced meanwhile, lose nothing.
func TestLocksExclude(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	ctx := context.Background()
	made := create(t, c.client(Options{}), "f", 2)
	_, err := made.WriteAt(ctx, make([]byte, 4), 0)
	must(t, err)
	const clients, rounds = 3, 40
	var wg sync.WaitGroup
	for who := range clients {
		fs := c.client(Options{})
		f, err := fs.OpenIno(ctx, meta.Cred{}, made.Ino(), meta.OpenRead|meta.OpenWrite)
		must(t, err)
		rnd := rand.New(rand.NewPCG(uint64(who), 7))
		wg.Go(func() {
			for range rounds {
				at := int64(rnd.IntN(4))
				l := lockOf(f.Ino(), meta.LockExclusive, at, at)
				var b [1]byte
				err := fs.Lock(ctx, l, true)
				if err == nil {
					_, err = f.ReadAt(ctx, b[:], at)
				}
				b[0]++
				if err == nil && rnd.IntN(10) == 0 {
					err = fs.replaceSession(ctx, fs.sess.Load())
				}
				if err == nil {
					_, err = f.WriteAt(ctx, b[:], at)
				}
				if err == nil {
					err = fs.Unlock(ctx, l)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, b := range contents(t, made) {
		sum += int(b)
	}
	if sum != clients*rounds {
		t.Fatalf("counted to %d, want %d", sum, clients*rounds)
	}
}

// TestSpans compares the list of an owner's locks with a map of bytes.
func TestSpans(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var s spans
	var model [20]meta.LockType
	for range 5000 {
		n := span{start: rnd.Int64N(20), typ: meta.LockType(rnd.IntN(3))}
		n.end = min(n.start+rnd.Int64N(6), 19)
		s = s.set(n)
		for i := n.start; i <= n.end; i++ {
			model[i] = n.typ
		}
		last := span{end: -2}
		for _, x := range s {
			if x.start <= last.end || x.start == last.end+1 && x.typ == last.typ || x.typ == 0 {
				t.Fatalf("%v after %v", x, last)
			}
			last = x
		}
		next := int64(0)
		for _, x := range s.within(0, 19) {
			for i := x.start; i <= x.end; i++ {
				if i != next || model[i] != x.typ {
					t.Fatalf("byte %d is of type %d, want %d: %v", i, x.typ, model[i], s)
				}
				next++
			}
		}
		if next != 20 {
			t.Fatalf("%d bytes of 20", next)
		}
	}
}

// meeting is a service whose claims come behind a release that met a restart, and are answered
// before the client knows of the release.
type meeting struct {
	meta.Service
	restart  func()
	released chan struct{} // the service has carried the release out
	claimed  chan struct{} // and the claims
	once     sync.Once
}

func (m *meeting) Unlock(ctx context.Context, c meta.Caller, l meta.Lock) (err error) {
	first := false
	m.once.Do(func() {
		first = true
		m.restart()
		err = m.Service.Unlock(ctx, c, l)
		close(m.released)
		<-m.claimed
	})
	if !first {
		err = m.Service.Unlock(ctx, c, l)
	}
	return err
}

func (m *meeting) ClaimLocks(ctx context.Context, c meta.Caller, old uint64, held []meta.Lock,
	more bool) ([]meta.Lock, error) {
	<-m.released
	lost, err := m.Service.ClaimLocks(ctx, c, old, held, more)
	if err == nil {
		select {
		case <-m.claimed:
		default:
			close(m.claimed)
		}
	}
	return lost, err
}

// TestReleasedLockIsNotClaimed: a lock that is released while the service is restarted does not
// stay with the client because it was claimed, too.
func TestReleasedLockIsNotClaimed(t *testing.T) {
	w := newWired(t, 1)
	ctx := context.Background()
	base, other := w.dial(""), w.dial("")
	touch(t, base, "/f")
	a, err := base.Stat(ctx, "/f")
	must(t, err)
	fs, err := New(&meeting{Service: base.svc, restart: w.restartMeta, released: make(chan struct{}),
		claimed: make(chan struct{})}, base.data, Options{Cred: &meta.Cred{}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	l := lockOf(a.Ino, meta.LockExclusive, 0, 10)
	must(t, fs.Lock(ctx, l, true))
	must(t, fs.Unlock(ctx, l))
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		err := other.Lock(ctx, l, false)
		if err == nil {
			break
		}
		if errs.KindOf(err) != errs.Busy || time.Now().After(end) {
			t.Fatalf("a lock that was released: %v", err)
		}
	}
	must(t, other.Unlock(ctx, l))
}
