package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// lossy is a metadata service behind a bad network: requests do not arrive, arrive late, or their
// answers are lost. Callers hear that the service is away, or give up themselves.
type lossy struct {
	meta.Service

	mu    sync.Mutex
	rng   *rand.Rand
	share float64       // of the calls that go wrong
	late  int           // calls that are still to be carried out
	none  chan struct{} // closed when there are none any more and no new ones come
}

// What becomes of a call.
const (
	arrives = iota
	isLost
	answerLost
	isLate
)

func (l *lossy) dice() (fate, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = l.rng.IntN(1 << 20)
	if l.rng.Float64() >= l.share {
		return arrives, n
	}
	fate = isLost + n%3
	if fate == isLate {
		l.late++
	}
	return fate, n
}

// carriedOut says that a late call has come to its end.
func (l *lossy) carriedOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late--; l.late == 0 && l.none != nil {
		close(l.none)
	}
}

// heal lets every call from now on arrive, and waits for those that are late.
func (l *lossy) heal() {
	l.mu.Lock()
	l.share, l.none = 0, make(chan struct{})
	if l.late == 0 {
		close(l.none)
	}
	l.mu.Unlock()
	<-l.none
}

// do carries a call out, or not, or later, and tells the caller what he may conclude.
func (l *lossy) do(call func(context.Context) error, ctx context.Context) error {
	fate, n := l.dice()
	if fate == arrives {
		return call(ctx)
	}
	kinds := []errs.Kind{errs.Disconnected, errs.TimedOut, errs.Canceled, errs.IO}
	err := errs.New(kinds[n/8%len(kinds)], "lossy", "", nil)
	switch fate {
	case answerLost:
		_ = call(context.WithoutCancel(ctx))
	case isLate:
		go func() {
			defer l.carriedOut()
			time.Sleep(time.Duration(n%5000) * time.Microsecond)
			_ = call(context.WithoutCancel(ctx))
		}()
	}
	return err
}

func (l *lossy) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	got := make(chan meta.Handle, 1) // a late answer stays there
	err := l.do(func(ctx context.Context) error {
		h, err := l.Service.Open(ctx, c, ino, flags)
		if err == nil {
			got <- h
		}
		return err
	}, ctx)
	if err != nil {
		return meta.Handle{}, err
	}
	return <-got, nil
}

func (l *lossy) Close(ctx context.Context, c meta.Caller, w meta.Closing) error {
	return l.do(func(ctx context.Context) error {
		return l.Service.Close(ctx, c, w)
	}, ctx)
}

func (l *lossy) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	got := make(chan []meta.Ended, 1)
	err := l.do(func(ctx context.Context) error {
		ended, err := l.Service.CloseMany(ctx, c, list)
		if err == nil {
			got <- ended
		}
		return err
	}, ctx)
	if err != nil {
		return nil, err
	}
	return <-got, nil
}

// TestNoHandleWithoutAnOwner: opens, closes and renewals meet, fail and come late, and sessions are
// lost in between. In the end the service has the handles that somebody has open, and no other, and
// what was removed is not kept by any.
func TestNoHandleWithoutAnOwner(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx := context.Background()
	c := newCluster(t, 2, store.Options{Tick: 20 * time.Millisecond})
	svc := &lossy{Service: c.service(), rng: rand.New(rand.NewPCG(seed, 1)), share: 0.2}
	fs, err := New(svc, c, Options{RenewEvery: time.Millisecond, WaitMax: 50 * time.Millisecond,
		Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { _ = fs.Close() }()
	stop := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() { stormOne(ctx, fs, w, stop) })
	}
	wg.Go(func() {
		for time.Now().Before(stop) {
			time.Sleep(200 * time.Millisecond)
			_ = c.meta.EndSession(ctx, fs.sess.Load().id)
		}
	})
	wg.Wait()
	svc.heal()
	kept, err := fs.Create(ctx, "/kept")
	must(t, err)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		st, err := c.meta.Status()
		must(t, err)
		if st.Handles == 1 && fs.endings.count() == 0 && st.Queued == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d handles, one is open; %d in the queue, %d to be removed",
				st.Handles, fs.endings.count(), st.Queued)
		}
	}
	must(t, c.meta.Verify(ctx, func(problem string) { t.Error(problem) }))
	must(t, kept.Close(ctx))
}

// stormOne opens, uses, removes and closes files of its own, and forgets nothing but failures.
func stormOne(ctx context.Context, fs *FS, w int, stop time.Time) {
	for i := 0; time.Now().Before(stop); i++ {
		name := fmt.Sprintf("/%d.%d", w, i%4)
		f, err := fs.Create(ctx, name)
		if err != nil {
			continue
		}
		for range 3 {
			g, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenRead)
			if err == nil {
				f.used.Store(true)
				g.used.Store(true)
				defer func() { _ = g.Close(ctx) }() // those are closed at the end, or again
				if i%2 == 0 {
					_ = g.Close(ctx)
				}
			}
		}
		_, _ = f.WriteAt(ctx, []byte("some"), 0)
		if i%4 == 3 {
			_ = fs.Remove(ctx, name)
		}
		short, cancel := context.WithTimeout(ctx, time.Duration(i%3)*time.Millisecond)
		_ = f.Close(short)
		cancel()
	}
}

// halting is a service that dies when it is asked to close handles for the second time: the answer
// never comes.
type halting struct {
	meta.Service
	calls   atomic.Int32
	halted  chan struct{}
	restart chan struct{}
}

func (h *halting) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	if h.calls.Add(1) == 2 {
		close(h.halted)
		<-h.restart
	}
	return h.Service.CloseMany(ctx, c, list)
}

// TestClosedHandlesAreNotClaimed: a service that is restarted while many handles are being closed
// does not hear of those that were closed before it ended: nobody would ever close them again.
func TestClosedHandlesAreNotClaimed(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := &halting{Service: c.service(), halted: make(chan struct{}), restart: make(chan struct{})}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}, Cache: -1})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	touch(t, fs, "/f")
	fs.flushEndings(ctx)
	a, err := fs.Stat(ctx, "/f")
	must(t, err)
	const more = 10
	must(t, fs.endings.round.take(ctx)) // nobody closes some before all are there
	for range batchMax + more {
		f, err := fs.OpenIno(ctx, *fs.opts.Cred, a.Ino, meta.OpenRead)
		must(t, err)
		fs.endings.add(f.ending(f.grant.Load().session, f.grant.Load().handle)) // for one round
		fs.mu.Lock()
		delete(fs.files, f)
		fs.mu.Unlock()
	}
	svc.calls.Store(0)
	fs.endings.round.giveBack()
	done := make(chan struct{})
	go func() { defer close(done); fs.flushEndings(ctx) }()
	<-svc.halted
	if n := len(fs.claimed(fs.sess.Load())); n != more {
		t.Errorf("%d handles are claimed, %d are open", n, more)
	}
	close(svc.restart)
	<-done
}

// TestOneFileHoldsUpNoOtherClosing: a file cannot be closed because somebody has just begun to open
// it, for long. Others are closed meanwhile: however long the pauses between attempts have become,
// a round that nobody has refused is followed by another one soon, at the latest when there is more
// to be closed.
func TestOneFileHoldsUpNoOtherClosing(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	busy, free := createSmall(t, fs, "busy", 1), createSmall(t, fs, "free", 1)
	must(t, busy.node.coming.take(ctx))
	must(t, busy.Close(ctx))
	must(t, free.Close(ctx))
	eventually(t, func() bool { return fs.endings.count() == 1 })
	if !fs.endings.rest(ctx, time.Hour, false) {
		t.Error("a round is never followed by another one")
	}
	busy.node.coming.giveBack()
	eventually(t, func() bool { return fs.endings.count() == 0 })
}

// TestOpenWaitsForClosings: where too many handles wait to be closed a program that opens a file
// waits, and does not fail.
func TestOpenWaitsForClosings(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	touch(t, fs, "/f")
	fs.flushEndings(ctx)
	for i := range endingsMax {
		fs.endings.add(ending{caller: fs.trusted(), handle: uint64(i + 1)})
	}
	f, err := fs.OpenFile(ctx, "/f", os.O_RDWR, 0)
	must(t, err)
	must(t, f.Close(ctx))
}
