package client

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, f *File, p []byte, off int64) {
	t.Helper()
	if n, err := f.WriteAt(context.Background(), p, off); err != nil || n != len(p) {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func contents(t testing.TB, f *File) []byte {
	t.Helper()
	b, err := io.ReadAll(f.IO(context.Background()))
	must(t, err)
	return b
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i%253)
	}
	return b
}

// TestExpiredCapability is renewed by the operation that meets it, once for all that wait for it.
func TestExpiredCapability(t *testing.T) {
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c := newCluster(t, 4, store.Options{Clock: clock, Lease: time.Hour, HeartbeatMax: time.Hour})
	c.now = clock
	fs := c.client(Options{})
	f := create(t, fs, "f", 4)
	want := pattern(6*unit, 1)
	write(t, f, want, 0)
	for range 3 {
		ahead.Add(int64(2 * time.Minute))
		if got := contents(t, f); !bytes.Equal(got, want) {
			t.Fatal("other bytes after renewal")
		}
		write(t, f, want[:100], 0)
	}
	must(t, f.Close(context.Background()))
}

// TestRenewal keeps capabilities of handles in use fresh without any operation meeting an expired
// one.
func TestRenewal(t *testing.T) {
	c := newCluster(t, 2, store.Options{CapTTL: 400 * time.Millisecond})
	fs := c.client(Options{RenewEvery: 50 * time.Millisecond})
	f := create(t, fs, "f", 2)
	defer f.Close(context.Background())
	first := f.grant.Load()
	for end := time.Now().Add(600 * time.Millisecond); time.Now().Before(end); {
		write(t, f, []byte("x"), 0)
		time.Sleep(10 * time.Millisecond)
	}
	if f.grant.Load() == first {
		t.Fatal("the grant was never renewed")
	}
}

// TestTruncationByAnother is met as errs.Stale by a writer that did not know of it, which then
// knows.
func TestTruncationByAnother(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	a, b := c.client(Options{}), c.client(Options{})
	ctx := context.Background()
	f := create(t, a, "f", 3)
	write(t, f, pattern(5*unit, 3), 0)
	must(t, b.Truncate(ctx, "/f", 10))
	write(t, f, []byte("tail"), 20)
	if f.Size() != 24 {
		t.Fatalf("size %d, want 24: the old size came back", f.Size())
	}
	want := append(pattern(5*unit, 3)[:10:10], make([]byte, 10)...)
	want = append(want, "tail"...)
	if got := contents(t, f); !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	must(t, f.Close(ctx))
	if st, err := b.Stat(ctx, "/f"); err != nil || st.Size != 24 {
		t.Fatalf("size %d, %v", st.Size, err)
	}
}

// TestTruncateRace lets one client write whole stripes and another cut the file to nothing, all the
// time. In the end every write is whole or gone: never half.
func TestTruncateRace(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	a, b := c.client(Options{}), c.client(Options{})
	ctx := context.Background()
	f := create(t, a, "f", 3)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := b.Truncate(ctx, "/f", 0); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range 200 {
		write(t, f, pattern(3*unit, byte(i)), 0)
	}
	close(stop)
	wg.Wait()
	st, err := f.Stat(ctx)
	must(t, err)
	if st.Size != 0 && st.Size != 3*unit {
		t.Fatalf("size %d: a write was cut in two", st.Size)
	}
	got := contents(t, f)
	if len(got) > 0 && !bytes.Equal(got, pattern(3*unit, 199)) {
		t.Fatal("bytes of different writes")
	}
	must(t, f.Close(ctx))
}

// TestServerAway: that a server did not answer, for as long as the data service waits, is told as
// it is, and the file can be used again when the server is back.
func TestServerAway(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 3)
	want := pattern(4*unit, 9)
	write(t, f, want, 0)
	var refuse atomic.Bool
	c.setHook(func(k call) error {
		if k.server == 2 && k.op != iod.OpStat && refuse.Load() {
			return errs.Newf(errs.TimedOut, "double", serverName(k.server), "no answer")
		}
		return nil
	})
	refuse.Store(true)
	_, err := f.ReadAt(ctx, make([]byte, 3*unit), 0)
	if errs.KindOf(err) != errs.TimedOut || !strings.Contains(err.Error(), "I/O server 2") {
		t.Fatalf("%v", err)
	}
	if err := f.Sync(ctx); errs.KindOf(err) != errs.TimedOut {
		t.Fatalf("sync: %v", err)
	}
	refuse.Store(false)
	must(t, f.Sync(ctx)) // nothing was lost
	if got := contents(t, f); !bytes.Equal(got, want) {
		t.Fatal("other bytes after the server came back")
	}
	must(t, f.Close(ctx))
}

// TestWaitsEndWithTheirContext: who waits behind somebody that renews rights, or appends, at a
// service that does not answer, can leave.
func TestWaitsEndWithTheirContext(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	f := create(t, fs, "f", 1)
	for name, lock := range map[string]struct {
		held turn
		wait func(context.Context) error
	}{
		"append": {f.node.appendMu, func(ctx context.Context) error {
			_, err := f.Append(ctx, []byte("x"))
			return err
		}},
		"renewal": {f.renewing, func(ctx context.Context) error {
			return f.renewFrom(ctx, f.grant.Load())
		}},
		"session": {fs.remake, func(ctx context.Context) error {
			return fs.replaceSession(ctx, fs.sess.Load())
		}},
	} {
		must(t, lock.held.take(context.Background()))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		if err := lock.wait(ctx); errs.KindOf(err) != errs.TimedOut {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		lock.held.giveBack()
	}
	must(t, f.Close(context.Background()))
}

// TestRestart is harmless when the server has what it acknowledged, or was sent it again; what it
// has lost for good is reported by the next sync: once by every handle.
func TestRestart(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 2)
	g, err := fs.OpenFile(ctx, "f", os.O_RDWR, 0)
	must(t, err)
	write(t, f, pattern(2*unit, 1), 0)
	must(t, f.Sync(ctx))

	write(t, f, pattern(2*unit, 2), 0)
	must(t, c.stores[1].Close()) // a restart of the process alone
	c.stores[1].Reopen()
	must(t, f.Sync(ctx))

	write(t, f, pattern(2*unit, 3), 0)
	c.lose(2)
	err = f.Sync(ctx)
	if errs.KindOf(err) != errs.IO || !strings.Contains(err.Error(), "I/O server 2") {
		t.Fatalf("sync after losing writes: %v", err)
	}
	must(t, f.Sync(ctx)) // reported once
	if err := g.Sync(ctx); errs.KindOf(err) != errs.IO {
		t.Fatalf("the other handle did not report: %v", err)
	}
	must(t, g.Sync(ctx))
	write(t, f, pattern(2*unit, 3), 0)
	must(t, f.Sync(ctx))

	// A loss that a write notices is kept for the next sync.
	write(t, f, pattern(10, 4), 0)
	server := f.Layout().Servers[0]
	c.lose(server)
	write(t, f, pattern(10, 5), 0)
	if err := f.Sync(ctx); errs.KindOf(err) != errs.IO {
		t.Fatalf("loss noticed by a write: %v", err)
	}
	must(t, f.Close(ctx))
	if err := g.Close(ctx); errs.KindOf(err) != errs.IO {
		t.Fatalf("close of a handle that has not reported: %v", err)
	}
}

// TestSyncFails is reported, and only servers that were written to are asked.
func TestSyncFails(t *testing.T) {
	c := newCluster(t, 4, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 4)
	write(t, f, []byte("x"), 0)
	if got := c.counted(iod.OpSync, func() { must(t, f.Sync(ctx)) }); len(got) != 1 {
		t.Fatalf("servers asked to sync: %v", got)
	}
	if got := c.counted(iod.OpSync, func() { must(t, f.Sync(ctx)) }); len(got) != 0 {
		t.Fatalf("servers asked to sync nothing: %v", got)
	}
	write(t, f, pattern(4*unit, 1), 0)
	c.setHook(func(k call) error {
		if k.op == iod.OpSync && k.server == 3 {
			return errs.New(errs.IO, "disk", "", nil)
		}
		return nil
	})
	if err := f.Sync(ctx); errs.KindOf(err) != errs.IO {
		t.Fatalf("%v", err)
	}
	c.setHook(nil)
	must(t, f.Sync(ctx))
	must(t, f.Close(ctx))
}

// TestSyncAfterClose: whoever syncs a file means the writes of handles that are closed by then,
// too, also through a handle that cannot write, and hears of their loss.
func TestSyncAfterClose(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	ctx := context.Background()
	fs := c.client(Options{})
	f := create(t, fs, "f", 3)
	write(t, f, pattern(2*unit, 1), 0)
	must(t, f.Close(ctx))
	r, err := fs.Open(ctx, "/f")
	must(t, err)
	if got := c.counted(iod.OpSync, func() { must(t, r.Sync(ctx)) }); len(got) != 2 {
		t.Fatalf("servers asked to sync: %v", got)
	}
	must(t, r.Close(ctx))

	f, err = fs.OpenFile(ctx, "/f", os.O_RDWR, 0)
	must(t, err)
	write(t, f, pattern(2*unit, 1), 0)
	must(t, f.Close(ctx))
	c.lose(f.Layout().Servers[0])
	r, err = fs.Open(ctx, "/f")
	must(t, err)
	if err := r.Sync(ctx); errs.KindOf(err) != errs.IO {
		t.Fatalf("loss of a closed handle's writes: %v", err)
	}
	must(t, r.Sync(ctx))
	must(t, r.Close(ctx))

	// A client that knows nothing of the file's past syncs all of it, once.
	other := c.client(Options{})
	r, err = other.Open(ctx, "/f")
	must(t, err)
	if got := c.counted(iod.OpSync, func() { must(t, r.Sync(ctx)) }); len(got) != 3 {
		t.Fatalf("servers asked to sync: %v", got)
	}
	if got := c.counted(iod.OpSync, func() { must(t, r.Sync(ctx)) }); len(got) != 0 {
		t.Fatalf("servers asked again: %v", got)
	}
	must(t, r.Close(ctx))
	fs.flushEndings(ctx)
	for end := time.Now().Add(time.Minute); len(fs.allInodes()) != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) { // a recall may have been on its way
			t.Fatalf("%d inodes are remembered", len(fs.allInodes()))
		}
	}
}

// TestSizesBetweenClients: stat is exact while another client writes; open sees all that was
// closed.
func TestSizesBetweenClients(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	a, b := c.client(Options{}), c.client(Options{})
	ctx := context.Background()
	f := create(t, a, "f", 3)
	r, err := b.Open(ctx, "/f")
	must(t, err)
	for i := range int64(10) {
		end := (i + 1) * (unit + 77)
		write(t, f, []byte{byte(i + 1)}, end-1)
		for name, stat := range map[string]func() (meta.Attr, error){
			"reader":  func() (meta.Attr, error) { return b.Stat(ctx, "/f") },
			"writer":  func() (meta.Attr, error) { return a.Stat(ctx, "/f") },
			"getattr": func() (meta.Attr, error) { return b.GetAttr(ctx, meta.Cred{}, f.Ino()) },
		} {
			if st, err := stat(); err != nil || st.Size != end {
				t.Fatalf("%s: size %d, want %d, %v", name, st.Size, end, err)
			}
		}
		p := make([]byte, 10)
		if n, err := r.ReadAt(ctx, p, end-1); n != 1 || err != io.EOF || p[0] != byte(i+1) {
			t.Fatalf("reader at the new end: %d, %v", n, err)
		}
	}
	must(t, f.Close(ctx))
	g, err := b.Open(ctx, "/f")
	must(t, err)
	if g.Size() != 10*(unit+77) {
		t.Fatalf("size at open %d", g.Size())
	}
	must(t, g.Close(ctx))
	must(t, r.Close(ctx))
}

// TestTimesSurviveClose: a time that was set after the last write is not undone by closing.
func TestTimesSurviveClose(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 1)
	write(t, f, []byte("x"), 0)
	_, err := fs.SetAttr(ctx, *fs.opts.Cred, f.Ino(), meta.SetMtime,
		meta.Attr{Mtime: meta.UnixTime(0, 12345678901)})
	must(t, err)
	must(t, f.Close(ctx))
	st, err := fs.Stat(ctx, "/f")
	if err != nil || st.Mtime != meta.UnixTime(0, 12345678901) {
		t.Fatalf("mtime %d, %v", st.Mtime, err)
	}
}

// TestUnlinkedButOpen lives until it is closed.
func TestUnlinkedButOpen(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 2)
	want := pattern(3*unit, 5)
	write(t, f, want, 0)
	must(t, fs.Remove(ctx, "/f"))
	if _, err := fs.Stat(ctx, "/f"); errs.KindOf(err) != errs.NotFound {
		t.Fatalf("%v", err)
	}
	write(t, f, []byte("more"), 3*unit)
	must(t, f.Sync(ctx))
	if got := contents(t, f); !bytes.Equal(got, append(want, "more"...)) {
		t.Fatal("other bytes")
	}
	must(t, f.Close(ctx))
	empty := func() bool {
		for _, s := range c.stores {
			info, err := s.Space()
			must(t, err)
			if info.Free != info.Total {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(time.Minute); !empty(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the space was not freed")
		}
	}
}

// TestConcurrentUse writes separate ranges of one file through many handles and reads them back.
func TestConcurrentUse(t *testing.T) {
	c := newCluster(t, 4, store.Options{})
	fs := c.client(Options{RenewEvery: time.Millisecond})
	ctx := context.Background()
	f := create(t, fs, "f", 4)
	const n, size = 16, unit + 321
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			g, err := fs.OpenFile(ctx, "f", os.O_RDWR, 0)
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 10 {
				p := pattern(size, byte(i+k))
				if _, err := g.WriteAt(ctx, p, int64(i)*size); err != nil {
					t.Error(err)
				}
				if k%3 == 0 {
					if err := g.Sync(ctx); err != nil {
						t.Error(err)
					}
				}
				q := make([]byte, size)
				if _, err := g.ReadAt(ctx, q, int64(i)*size); err != nil || !bytes.Equal(p, q) {
					t.Errorf("range %d: other bytes, %v", i, err)
				}
			}
			if err := g.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if f.Size() != n*size {
		t.Errorf("size %d", f.Size())
	}
	must(t, f.Close(ctx))
}

// TestAppends of one client follow each other.
func TestAppends(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			f, err := fs.OpenFile(ctx, "/log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
			if err != nil {
				t.Error(err)
				return
			}
			w := f.IO(ctx)
			for range 20 {
				if _, err := w.Write(bytes.Repeat([]byte{byte('a' + i)}, 10)); err != nil {
					t.Error(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f, err := fs.Open(ctx, "/log")
	must(t, err)
	defer f.Close(ctx)
	got := contents(t, f)
	if len(got) != 8*20*10 {
		t.Fatalf("%d bytes", len(got))
	}
	for i := 0; i < len(got); i += 10 {
		if !bytes.Equal(got[i:i+10], bytes.Repeat(got[i:i+1], 10)) {
			t.Fatalf("torn record at %d: %q", i, got[i:i+10])
		}
	}
}

// slowOpen is a metadata service at which opening takes until it is let.
type slowOpen struct {
	meta.Service
	slow    atomic.Bool
	entered chan struct{}
	let     chan struct{}
}

func (s *slowOpen) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	if s.slow.Swap(false) {
		close(s.entered)
		<-s.let
	}
	return s.Service.Open(ctx, c, ino, flags)
}

// TestSyncWhileTheSessionIsReplaced: the new session is there and the file is not open in it yet.
// What the service does not know for that moment is no error of the program's.
func TestSyncWhileTheSessionIsReplaced(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	svc := &slowOpen{Service: c.meta, entered: make(chan struct{}), let: make(chan struct{})}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { _ = fs.Close() }()
	ctx := context.Background()
	f := create(t, fs, "f", 1)
	must(t, f.Sync(ctx))
	write(t, f, pattern(unit, 1), 0)
	svc.slow.Store(true)
	replaced, synced := make(chan error, 1), make(chan error, 1)
	go func() { replaced <- fs.replaceSession(ctx, fs.sess.Load()) }()
	<-svc.entered
	go func() { synced <- f.Sync(ctx) }()
	select {
	case err := <-synced:
		t.Errorf("sync did not wait for the file to be open again: %v", err)
		synced <- nil
	case <-time.After(50 * time.Millisecond):
	}
	close(svc.let)
	must(t, <-replaced)
	must(t, <-synced)
	must(t, f.Close(ctx))
}
