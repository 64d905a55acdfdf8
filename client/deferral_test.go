package client

import (
	"context"
	"fmt"
	"io"
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

// tells is a service that sees what it is told later, and can be made to hold it up, or to refuse
// it.
type tells struct {
	meta.Service
	gate atomic.Pointer[chan struct{}] // closed: it goes on; nil: there is none
	fail atomic.Pointer[func(w *meta.Deferred) errs.Kind]
	hung atomic.Pointer[paused]

	mu   sync.Mutex
	list []meta.Deferred
}

func (s *tells) hold() (release func()) {
	gate := make(chan struct{})
	s.gate.Store(&gate)
	return sync.OnceFunc(func() { close(gate) })
}

func (s *tells) TellMany(ctx context.Context, c meta.Caller, epoch uint64, list []meta.Deferred) (
	[]meta.Settled, error) {
	if gate := s.gate.Load(); gate != nil {
		select {
		case <-*gate:
		case <-ctx.Done():
			return nil, errs.Wrap("test", "", ctx.Err())
		}
	}
	if fail := s.fail.Load(); fail != nil {
		out := make([]meta.Settled, len(list))
		for i := range list {
			out[i].Kind = (*fail)(&list[i])
		}
		return out, nil
	}
	s.mu.Lock()
	s.list = append(s.list, list...)
	s.mu.Unlock()
	return s.Service.TellMany(ctx, c, epoch, list)
}

// Listen stands still with a paused service.
func (s *tells) Listen(ctx context.Context, l meta.Listening) (meta.Heard, error) {
	if p := s.hung.Load(); p != nil {
		return p.Listen(ctx, l)
	}
	return s.Service.Listen(ctx, l)
}

func (s *tells) told() []meta.Deferred {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// unhurried has leases that do not run out during a test.
var unhurried = store.Options{Lease: 10 * time.Minute, LeaseTime: 2 * time.Minute}

// deferring is a client with a directory of its own, in which it does things by itself.
func deferring(t *testing.T, opt store.Options) (*cluster, *tells, *FS) {
	t.Helper()
	if opt.LeaseTime == 0 { // who is held up must not lose its leases because the machine is busy
		opt.Lease, opt.LeaseTime = unhurried.Lease, unhurried.LeaseTime
	}
	c := newCluster(t, 2, opt)
	svc := &tells{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	listened(t, fs)
	must(t, fs.Mkdir(context.Background(), "/d", 0o755))
	numbered(t, fs)
	return c, svc, fs
}

// numbered waits until a client has inode numbers.
func numbered(t testing.TB, fs *FS) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		fs.deferral.mu.Lock()
		some := fs.deferral.next < fs.deferral.end
		fs.deferral.mu.Unlock()
		if some {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no inode numbers")
		}
	}
}

func writeAll(t testing.TB, fs *FS, path, data string) {
	t.Helper()
	f, err := fs.OpenFile(context.Background(), path, os.O_CREATE|os.O_RDWR, 0o640)
	must(t, err)
	_, err = f.WriteAt(context.Background(), []byte(data), 0)
	must(t, err)
	must(t, f.Close(context.Background()))
}

func contentOf(t testing.TB, fs *FS, path string) string {
	t.Helper()
	f, err := fs.Open(context.Background(), path)
	must(t, err)
	defer f.Close(context.Background())
	buf := make([]byte, 1<<20)
	n, err := f.ReadAt(context.Background(), buf, 0)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// sameAttr compares attributes as two clients tell them.
func sameAttr(a, b meta.Attr) bool {
	for _, x := range []*meta.Attr{&a, &b} {
		x.Lease, x.Serial, x.Layout, x.Writers, x.DataVersion = 0, 0, a.Layout, false, 0
	}
	return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

// TestDeferredAttributes: what a client says of what it has made is what the service says when it
// was told.
func TestDeferredAttributes(t *testing.T) {
	ctx := context.Background()
	c, svc, fs := deferring(t, store.Options{})
	release := svc.hold()
	defer release()
	writeAll(t, fs, "/d/file", "data")
	writeAll(t, fs, "/d/empty", "")
	must(t, fs.Mkdir(ctx, "/d/sub", 0o700))
	must(t, fs.Symlink(ctx, "to", "/d/sub/link"))
	writeAll(t, fs, "/d/sub/file", "more")
	open, err := fs.OpenFile(ctx, "/d/sub/open", os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	must(t, err)
	_, err = open.WriteAt(ctx, []byte("abc"), 0)
	must(t, err)
	must(t, fs.Mkdir(ctx, "/d/sub/gone", 0o755))
	must(t, fs.Remove(ctx, "/d/sub/gone"))
	names := []string{"/d", "/d/file", "/d/empty", "/d/sub", "/d/sub/link", "/d/sub/file",
		"/d/sub/open"}
	before := map[string]meta.Attr{}
	for _, name := range names {
		before[name], err = fs.Lstat(ctx, name)
		must(t, err)
	}
	if n := fs.Deferred(); n.Made != 7 || n.Removed != 1 || n.Untold != 8 || len(svc.told()) != 0 {
		t.Fatalf("%+v, %d told", n, len(svc.told()))
	}
	release()
	must(t, fs.SyncNames(ctx))
	other := c.client(Options{Cred: &meta.Cred{}})
	for _, name := range names {
		own, err := fs.Lstat(ctx, name)
		must(t, err)
		its, err := other.Lstat(ctx, name)
		must(t, err)
		if !sameAttr(before[name], own) || !sameAttr(own, its) {
			t.Errorf("%s\n%+v before it was told,\n%+v after it,\n%+v to another one", name,
				before[name], own, its)
		}
	}
	if n := fs.Deferred(); n.Untold != 0 || n.Lost != 0 || n.UntoldBytes != 0 {
		t.Errorf("%+v", n)
	}
	must(t, open.Close(ctx))
	for name, want := range map[string]string{"/d/file": "data", "/d/sub/open": "abc",
		"/d/empty": ""} {
		if got := contentOf(t, other, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

// TestOthersSeeWhatReturned: whatever another client asks for, everything is there that was done
// before.
func TestOthersSeeWhatReturned(t *testing.T) {
	ctx := context.Background()
	c, _, fs := deferring(t, store.Options{})
	other := c.client(Options{Cred: &meta.Cred{}})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 150 {
		dir := fmt.Sprint("/d/", i)
		must(t, fs.Mkdir(ctx, dir, 0o755))
		want := 0
		for j := range rng.IntN(5) {
			writeAll(t, fs, fmt.Sprint(dir, "/", j), fmt.Sprint(i))
			want++
			if rng.IntN(3) == 0 {
				must(t, fs.Remove(ctx, fmt.Sprint(dir, "/", j)))
				want--
			}
		}
		switch rng.IntN(4) {
		case 0:
			a, err := other.Stat(ctx, dir)
			if must(t, err); a.Size != int64(want) {
				t.Fatalf("%d names, want %d", a.Size, want)
			}
		case 1:
			n := 0
			must(t, other.ReadDir(ctx, dir, func(meta.Entry) error { n++; return nil }))
			if n != want {
				t.Fatalf("%d names, want %d", n, want)
			}
		case 2:
			err := other.Remove(ctx, dir)
			if (err == nil) != (want == 0) || err != nil && errs.KindOf(err) != errs.NotEmpty {
				t.Fatalf("%d names: %v", want, err)
			}
		case 3:
			must(t, other.Rename(ctx, dir, dir+"renamed"))
			if a, err := fs.Stat(ctx, dir+"renamed"); err != nil || a.Size != int64(want) {
				t.Fatalf("%+v, %v", a, err)
			}
		}
	}
}

// TestMadeAndRemoved: what is removed before it was told is never told; only that the directory has
// changed.
func TestMadeAndRemoved(t *testing.T) {
	ctx := context.Background()
	_, svc, fs := deferring(t, store.Options{})
	must(t, fs.deferral.round.take(ctx)) // nothing is told that is about to be removed
	for i := range 50 {
		writeAll(t, fs, fmt.Sprint("/d/", i), "data")
		must(t, fs.Remove(ctx, fmt.Sprint("/d/", i)))
	}
	a, err := fs.Stat(ctx, "/d")
	must(t, err)
	fs.deferral.round.giveBack()
	must(t, fs.SyncNames(ctx))
	for _, w := range svc.told() {
		if w.Kind != meta.DeferTouch {
			t.Errorf("told: %+v", w)
		}
	}
	if n := fs.Deferred(); n.Void != 50 || len(svc.told()) > 3 {
		t.Errorf("%+v, %d told", n, len(svc.told()))
	}
	own, err := svc.Service.GetAttr(ctx, fs.self(), a.Ino) // who else asks takes the directory away
	if must(t, err); !sameAttr(a, own) {
		t.Errorf("%+v\n%+v", a, own)
	}
	writeAll(t, fs, "/d/told", "data")
	must(t, fs.SyncNames(ctx))
	n := len(svc.told())
	must(t, fs.Remove(ctx, "/d/told"))
	must(t, fs.SyncNames(ctx))
	if told := svc.told()[n:]; len(told) != 1 || told[0].Kind != meta.DeferRemove {
		t.Errorf("%+v", told)
	}
}

// TestDeferredOpenFile: a file that is not told can be opened again, read, renamed, linked, cut and
// moved out, and removed while it is open.
func TestDeferredOpenFile(t *testing.T) {
	ctx := context.Background()
	c, _, fs := deferring(t, store.Options{})
	other := c.client(Options{Cred: &meta.Cred{}})
	for i, do := range []func(f *File, path string) (string, string){
		func(f *File, path string) (string, string) {
			must(t, fs.Rename(ctx, path, path+"r"))
			return path + "r", "abc"
		},
		func(f *File, path string) (string, string) {
			must(t, fs.Link(ctx, path, path+"l"))
			must(t, fs.Remove(ctx, path))
			return path + "l", "abc"
		},
		func(f *File, path string) (string, string) {
			must(t, f.Truncate(ctx, 2))
			return path, "ab"
		},
		func(f *File, path string) (string, string) {
			large := string(make([]byte, 3*meta.SmallMax))
			_, err := f.WriteAt(ctx, []byte(large), 0)
			must(t, err)
			return path, large
		},
		func(f *File, path string) (string, string) {
			g, err := fs.OpenFile(ctx, path, os.O_RDWR, 0)
			must(t, err)
			_, err = g.WriteAt(ctx, []byte("xy"), 1)
			must(t, err)
			must(t, g.Close(ctx))
			return path, "axy"
		},
		func(f *File, path string) (string, string) {
			must(t, fs.Chmod(ctx, path, 0o600))
			return path, "abc"
		},
		func(f *File, path string) (string, string) {
			must(t, fs.Remove(ctx, path))
			buf := make([]byte, 3)
			if n, err := f.ReadAt(ctx, buf, 0); n != 3 || string(buf) != "abc" {
				t.Fatal(n, err)
			}
			return "", ""
		},
	} {
		path := fmt.Sprint("/d/", i)
		f, err := fs.OpenFile(ctx, path, os.O_CREATE|os.O_RDWR, 0o644)
		must(t, err)
		_, err = f.WriteAt(ctx, []byte("abc"), 0)
		must(t, err)
		at, want := do(f, path)
		must(t, f.Close(ctx))
		if at == "" {
			if _, err := other.Stat(ctx, path); errs.KindOf(err) != errs.NotFound {
				t.Errorf("%d: %v", i, err)
			}
			continue
		}
		if got := contentOf(t, other, at); got != want {
			t.Errorf("%d: %d bytes, want %d", i, len(got), len(want))
		}
	}
}

// TestDeferredDirectoryIsLookedUp: a directory that the client has forgotten, and has changed since
// the service heard of it, is found as it is.
func TestDeferredDirectoryIsLookedUp(t *testing.T) {
	ctx := context.Background()
	_, svc, fs := deferring(t, store.Options{})
	must(t, fs.Mkdir(ctx, "/d/sub", 0o755))
	must(t, fs.SyncNames(ctx))
	d, err := fs.Stat(ctx, "/d")
	must(t, err)
	sub, err := fs.Stat(ctx, "/d/sub")
	must(t, err)
	release := svc.hold()
	defer release()
	must(t, fs.Mkdir(ctx, "/d/sub/new", 0o755))
	fs.cache.Recall(sub.Ino) // as for want of room
	time.AfterFunc(50*time.Millisecond, release)
	a, err := fs.Lookup(ctx, meta.Cred{}, d.Ino, "sub")
	if must(t, err); a.Nlink != 3 || a.Size != 1 {
		t.Errorf("%+v", a)
	}
}

// TestSharedFileIsRemovedAtOnce: a file that another client has known is removed at the service
// when that returns, also if the directory is held alone again.
func TestSharedFileIsRemovedAtOnce(t *testing.T) {
	ctx := context.Background()
	c, svc, fs := deferring(t, store.Options{})
	other := c.client(Options{Cred: &meta.Cred{}})
	must(t, fs.Mkdir(ctx, "/d/in", 0o755))
	writeAll(t, fs, "/d/in/f", "data")
	must(t, fs.Link(ctx, "/d/in/f", "/d/second"))
	f, err := other.Open(ctx, "/d/second")
	must(t, err)
	defer f.Close(ctx)
	must(t, fs.Remove(ctx, "/d/second")) // others have looked into /d
	if _, err := fs.Stat(ctx, "/d/in/f"); err != nil {
		t.Fatal(err)
	}
	if !fs.holdsDir(ino(t, fs, "/d/in")) {
		t.Skip("the directory is not held alone any more")
	}
	release := svc.hold()
	defer release()
	must(t, fs.Remove(ctx, "/d/in/f"))
	a, err := f.Stat(ctx)
	if must(t, err); a.Nlink != 0 {
		t.Errorf("%+v", a)
	}
}

func ino(t testing.TB, fs *FS, path string) meta.Ino {
	t.Helper()
	a, err := fs.Stat(context.Background(), path)
	must(t, err)
	return a.Ino
}

// TestDeferredLate: what the service refuses is reported by whoever syncs, and is not there.
func TestDeferredLate(t *testing.T) {
	ctx := context.Background()
	_, svc, fs := deferring(t, store.Options{})
	fail := func(*meta.Deferred) errs.Kind { return errs.NoSpace }
	svc.fail.Store(&fail)
	open, err := fs.OpenFile(ctx, "/d/open", os.O_CREATE|os.O_RDWR, 0o644)
	must(t, err)
	_, err = open.WriteAt(ctx, []byte("abc"), 0)
	must(t, err)
	if err := open.Sync(ctx); err == nil {
		t.Error("a file that was not made is synced")
	}
	if err := fs.SyncNames(ctx); errs.KindOf(err) != errs.NoSpace {
		t.Errorf("%v", err)
	}
	if _, err := open.WriteAt(ctx, []byte("abc"), 0); err == nil {
		t.Error("it can be written")
	}
	must(t, fs.SyncNames(ctx)) // once
	svc.fail.Store(nil)
	if _, err := fs.Stat(ctx, "/d/open"); errs.KindOf(err) != errs.NotFound {
		t.Error(err)
	}
	_ = open.Close(ctx)
	writeAll(t, fs, "/d/later", "x") // the service is asked for a while
	if n := fs.Deferred(); n.Lost == 0 || n.Untold != 0 {
		t.Errorf("%+v", n)
	}
}

// TestDeferredOverRestart: what was not told when the service ended is told the next one, once.
func TestDeferredOverRestart(t *testing.T) {
	ctx := context.Background()
	w := newWired(t, 1)
	fs, other := w.dial(""), w.dial("")
	for round := range 3 {
		dir := fmt.Sprint("/d", round)
		must(t, fs.Mkdir(ctx, dir, 0o755))
		numbered(t, fs)
		open, err := fs.OpenFile(ctx, dir+"/open", os.O_CREATE|os.O_RDWR, 0o644)
		must(t, err)
		var wg sync.WaitGroup
		wg.Go(w.restartMeta)
		for i := range 200 {
			writeAll(t, fs, fmt.Sprint(dir, "/", i), fmt.Sprint(i))
			if i%3 == 0 {
				must(t, fs.Remove(ctx, fmt.Sprint(dir, "/", i)))
			}
		}
		_, err = open.WriteAt(ctx, []byte("open"), 0)
		must(t, err)
		wg.Wait()
		for i := range 200 {
			if i%3 == 0 {
				if _, err := other.Stat(ctx, fmt.Sprint(dir, "/", i)); errs.KindOf(err) != errs.NotFound {
					t.Errorf("%d is there: %v", i, err)
				}
			} else if got := contentOf(t, other, fmt.Sprint(dir, "/", i)); got != fmt.Sprint(i) {
				t.Errorf("%d is %q", i, got)
			}
		}
		if got := contentOf(t, other, dir+"/open"); got != "open" {
			t.Errorf("%q", got)
		}
		must(t, open.Close(ctx))
		if n := fs.Deferred(); n.Lost != 0 {
			t.Errorf("%+v", n)
		}
	}
}

// TestHungClientLosesNames: who does not answer loses what it has not told, all of it, and says so.
func TestHungClientLosesNames(t *testing.T) {
	ctx := context.Background()
	opt := store.Options{LeaseTime: 300 * time.Millisecond, Lease: 30 * time.Second}
	c, svc, fs := deferring(t, opt)
	p := newPaused(svc.Service)
	svc.hung.Store(p)
	writeAll(t, fs, "/d/told", "x")
	must(t, fs.SyncNames(ctx))
	time.Sleep(opt.LeaseTime) // until it listens through the pause
	release := svc.hold()
	defer release()
	writeAll(t, fs, "/d/untold", "x")
	if fs.Deferred().Untold == 0 {
		t.Skip("the leases were over by then")
	}
	p.stop()
	other := c.client(Options{Cred: &meta.Cred{}})
	if _, err := other.Stat(ctx, "/d/untold"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("%v", err)
	}
	must(t, other.Mkdir(ctx, "/d/untold", 0o755))
	p.resume()
	release()
	if err := fs.SyncNames(ctx); err == nil {
		t.Error("nobody says that something is lost")
	}
	a, err := other.Stat(ctx, "/d/untold")
	if must(t, err); a.Type != meta.Directory {
		t.Errorf("%+v", a)
	}
	if n := fs.Deferred(); n.Lost != 1 || n.Untold != 0 {
		t.Errorf("%+v", n)
	}
	if a, err := fs.Stat(ctx, "/d/untold"); err != nil || a.Type != meta.Directory {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestDeferredIsBounded: whoever makes more than may be untold waits.
func TestDeferredIsBounded(t *testing.T) {
	ctx := context.Background()
	_, svc, fs := deferring(t, store.Options{})
	release := svc.hold()
	defer release()
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	n := 0
	for ; n < 2*untoldMax && short.Err() == nil; n++ {
		f, err := fs.OpenFile(short, fmt.Sprint("/d/", n), os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			break
		}
		must(t, f.Close(ctx))
	}
	if n > untoldMax+tellBatch+1 || fs.Deferred().Untold > untoldMax+tellBatch+1 {
		t.Errorf("%d files, %+v", n, fs.Deferred())
	}
	release()
	must(t, fs.SyncNames(ctx))
	if got := fs.Deferred(); got.Untold != 0 || got.Lost != 0 {
		t.Errorf("%+v", got)
	}
}
