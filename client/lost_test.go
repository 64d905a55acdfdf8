package client

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// forgetful is a service whose answers to Commit are lost: it was done, and nobody knows.
type forgetful struct {
	meta.Service
	on  atomic.Bool
	end func(session uint64)
}

func (d *forgetful) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	a, err := d.Service.Commit(ctx, c, w, sync)
	if err == nil && d.on.Swap(false) {
		d.end(c.Session)
		return meta.Attr{}, errs.New(errs.Stale, "forgetful", "", nil)
	}
	return a, err
}

// TestUntoldDataOutlivesItsSession: what was written to a small file and not told when the session
// ended is told in the next one, unless another client has written the file; then it is reported.
func TestUntoldDataOutlivesItsSession(t *testing.T) {
	for name, one := range map[string]struct {
		opens, writes, closed, answerLost bool
	}{
		"nobody":                  {},
		"nobody, closed":          {closed: true},
		"another opens":           {opens: true},
		"another opens, closed":   {opens: true, closed: true},
		"another writes":          {opens: true, writes: true},
		"told, the answer lost":   {answerLost: true},
		"answer lost, then a few": {answerLost: true, opens: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			c := newCluster(t, 1, store.Options{CapTTL: 50 * time.Millisecond,
				LeaseTime: 2 * time.Second}) // others must be able to answer on a busy host
			svc := newPaused(c.service())
			lossy := &forgetful{Service: svc, end: func(s uint64) { must(t, c.meta.EndSession(ctx, s)) }}
			fs, err := New(lossy, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
			must(t, err)
			defer func() { _ = fs.Close() }() // which tells once more what another test asks for
			listened(t, fs)
			other := c.client(Options{})
			f := createSmall(t, fs, "f", 1)
			write(t, f, []byte("told"), 0)
			must(t, f.Sync(ctx))
			write(t, f, []byte("untold"), 0)
			switch {
			case one.answerLost:
				lossy.on.Store(true)
				_ = f.Sync(ctx)
				write(t, f, []byte("later"), 0)
			case one.closed:
				svc.stop()
				must(t, f.Close(ctx))
				must(t, c.meta.EndSession(ctx, fs.sess.Load().id))
			default:
				svc.stop()
				must(t, c.meta.EndSession(ctx, fs.sess.Load().id))
			}
			time.Sleep(150 * time.Millisecond) // its capabilities run out
			if one.opens {
				w, err := other.OpenFile(ctx, "/f", os.O_RDWR, 0)
				must(t, err)
				if one.writes {
					write(t, w, []byte("other"), 0)
				}
				must(t, w.Close(ctx))
				other.flushEndings(ctx)
			}
			if !one.answerLost {
				svc.resume()
			}
			checkUntold(t, fs, f, other, one.closed, one.writes, one.answerLost)
		})
	}
}

func checkUntold(t *testing.T, fs *FS, f *File, other *FS, closed, lost, answerLost bool) {
	t.Helper()
	ctx := context.Background()
	want := "untold"
	switch {
	case answerLost:
		want = "laterd"
	case lost:
		want = "other"
	}
	if !closed {
		if err := f.Sync(ctx); (err != nil) != lost {
			t.Errorf("Sync: %v", err)
		}
		must(t, f.Close(ctx))
	}
	show := ""
	for end := time.Now().Add(time.Minute); show != want && time.Now().Before(end); {
		r, err := other.Open(ctx, "/f")
		must(t, err)
		show = string(contents(t, r))
		must(t, r.Close(ctx))
		time.Sleep(10 * time.Millisecond)
	}
	if show != want {
		t.Errorf("the file shows %q, want %q", show, want)
	}
}

// TestClosedFileIsToldByWhoLooks: what was written to a small file that is closed, and was not told
// when the session ended, is told in the next one by whoever reads the file, or changes it.
func TestClosedFileIsToldByWhoLooks(t *testing.T) {
	ctx, cred := context.Background(), meta.Cred{UID: 1000, GID: 1000}
	set := func(mask meta.SetMask, a meta.Attr) func(*FS, *File) error {
		return func(fs *FS, r *File) error {
			_, err := fs.SetAttr(ctx, cred, r.Ino(), mask, a)
			return err
		}
	}
	for name, look := range map[string]func(fs *FS, r *File) error{
		"read":     func(*FS, *File) error { return nil },
		"its time": set(meta.SetMtime, meta.Attr{Mtime: meta.UnixTime(0, 1)}),
		"cut":      set(meta.SetSize, meta.Attr{Size: 6}),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, store.Options{CapTTL: 50 * time.Millisecond})
			fs := c.client(Options{})
			listened(t, fs)
			f := createSmall(t, fs, "f", 1)
			r, err := fs.OpenIno(ctx, cred, f.Ino(), meta.OpenRead)
			must(t, err)
			must(t, fs.endings.round.take(ctx)) // nothing is closed
			defer fs.endings.round.giveBack()
			write(t, f, []byte("untold"), 0)
			for _, n := range fs.flushing.take() { // and nothing told
				fs.unref(n)
			}
			must(t, f.Close(ctx))
			s := fs.sess.Load()
			must(t, c.meta.EndSession(ctx, s.id))
			eventually(t, func() bool { return fs.sess.Load() != s })
			<-fs.sess.Load().ready
			must(t, look(fs, r))
			if got := contents(t, r); string(got) != "untold" {
				t.Errorf("the file has %q", got)
			}
			must(t, r.Close(ctx))
		})
	}
}

// leavingWriter is a service that has ended the session when a small file is first read, and
// somebody has closed it meanwhile who has written it.
type leavingWriter struct {
	meta.Service
	close func(session uint64)
	once  sync.Once
}

func (l *leavingWriter) ReadSmall(ctx context.Context, c meta.Caller, ino meta.Ino) (
	a meta.Attr, data meta.SmallData, err error) {
	l.once.Do(func() {
		l.close(c.Session)
		err = errs.Stale
	})
	if err != nil {
		return a, data, err
	}
	return l.Service.ReadSmall(ctx, c, ino)
}

// TestReaderOutlivesWriter: who reads a file that another handle of the same client is written by
// does not fail because that one is closed.
func TestReaderOutlivesWriter(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{CapTTL: 50 * time.Millisecond})
	svc := &leavingWriter{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { _ = fs.Close() }()
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	r, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenRead)
	must(t, err)
	if a, err := c.client(Options{}).Stat(ctx, "/f"); err != nil || a.Size != 7 {
		t.Fatalf("%d bytes, %v", a.Size, err)
	}
	var closing sync.WaitGroup
	svc.close = func(session uint64) {
		closing.Go(func() { must(t, f.Close(ctx)) }) // it may wait for who reads
		eventually(t, func() bool { return fs.writer(f.Ino()) == nil })
		must(t, c.meta.EndSession(ctx, session))
	}
	if got := contents(t, r); string(got) != "content" {
		t.Errorf("the file has %q", got)
	}
	closing.Wait()
	must(t, r.Close(ctx))
}

// distant is a service that takes its time to open files.
type distant struct{ meta.Service }

func (d distant) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	time.Sleep(10 * time.Millisecond)
	return d.Service.Open(ctx, c, ino, flags)
}

// TestTwoLoseTheirSessions: two clients that have the same files open for writing lose their
// sessions, and open the files again in different orders. Each one hears meanwhile what the other
// one waits for, so that none waits until leases have run out; also where each was just telling
// what it had written.
func TestTwoLoseTheirSessions(t *testing.T) {
	for name, tells := range map[string]bool{"idle": false, "telling": true} {
		t.Run(name, func(t *testing.T) { loseTwoSessions(t, tells) })
	}
}

func loseTwoSessions(t *testing.T, tells bool) {
	ctx := context.Background()
	c := newCluster(t, 1, withLongLeases(store.Options{CapTTL: 50 * time.Millisecond,
		Tick: 10 * time.Millisecond}))
	var svc [2]*paused
	var fs [2]*FS
	for i := range fs {
		var err error
		svc[i] = newPaused(distant{c.service()})
		fs[i], err = New(svc[i], c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
		must(t, err)
		defer func() { _ = fs[i].Close() }()
		listened(t, fs[i])
	}
	for i := range 16 {
		f := create(t, fs[0], string(rune('a'+i)), 1)
		g, err := fs[1].OpenIno(ctx, *fs[1].opts.Cred, f.Ino(), meta.OpenRead|meta.OpenWrite)
		must(t, err)
		write(t, f, []byte("x"), 0)
		write(t, g, []byte("y"), 0)
	}
	var old [2]*session
	var told sync.WaitGroup
	defer told.Wait()
	for i := range fs {
		svc[i].stop()
		for _, f := range fs[i].openFiles() {
			if tells {
				told.Go(func() { must(t, fs[i].commit(ctx, f.node, false)) })
			}
		}
	}
	for i := range fs {
		old[i] = fs[i].sess.Load()
		must(t, c.meta.EndSession(ctx, old[i].id))
	}
	eventually(t, func() bool {
		st, err := c.meta.Status()
		return err == nil && st.Handles == 0
	})
	start := time.Now()
	for i := range fs {
		svc[i].resume()
	}
	for i := range fs {
		eventually(t, func() bool { return fs[i].sess.Load() != old[i] })
		<-fs[i].sess.Load().ready
		for _, f := range fs[i].openFiles() {
			if f.grant.Load().session != fs[i].sess.Load().id {
				t.Errorf("client %d: a file is not open in the new session", i)
			}
		}
	}
	if d := time.Since(start); d > longLease/2 {
		t.Errorf("it took %v, a lease is %v", d, longLease)
	}
}

// TestLostSession is replaced; open files go on in the new one, unlinked ones say why they cannot.
func TestLostSession(t *testing.T) {
	c := newCluster(t, 2, store.Options{CapTTL: 100 * time.Millisecond})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "kept", 2)
	write(t, f, pattern(3*unit, 1), 0)
	gone := create(t, fs, "gone", 2)
	must(t, fs.Remove(ctx, "/gone"))
	old := fs.sess.Load()
	// The client notices at once, and may open the file again before the service has let go of it:
	// here it must not.
	must(t, fs.remake.take(ctx))
	must(t, c.meta.EndSession(ctx, old.id))
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := c.meta.GetAttr(ctx, meta.Caller{}, gone.Ino()); err != nil {
			break
		} else if time.Now().After(end) {
			t.Fatal("the unlinked file stayed")
		}
	}
	time.Sleep(150 * time.Millisecond) // the capabilities end, too
	fs.remake.giveBack()
	write(t, f, []byte("after"), 0)
	if fs.sess.Load() == old {
		t.Fatal("the session was not replaced")
	}
	if _, err := gone.WriteAt(ctx, []byte("x"), 0); errs.KindOf(err) != errs.Stale {
		t.Fatalf("unlinked file after the session was lost: %v", err)
	}
	must(t, gone.Close(ctx))
	must(t, f.Sync(ctx))
	must(t, f.Close(ctx))
	h, err := fs.Open(ctx, "/kept")
	must(t, err)
	if got := contents(t, h); len(got) != 3*unit || string(got[:5]) != "after" {
		t.Fatalf("%d bytes", len(got))
	}
	must(t, h.Close(ctx))
}

// TestKeepAlive holds a short lease, and notices a session that was ended by others.
func TestKeepAlive(t *testing.T) {
	c := newCluster(t, 1, store.Options{Lease: 150 * time.Millisecond, Tick: 10 * time.Millisecond})
	fs := c.client(Options{})
	f := create(t, fs, "f", 1)
	old := fs.sess.Load()
	time.Sleep(400 * time.Millisecond)
	if fs.sess.Load() != old {
		t.Fatal("the lease ended though it was kept alive")
	}
	must(t, c.meta.EndSession(context.Background(), old.id))
	for end := time.Now().Add(time.Minute); fs.sess.Load() == old; {
		if time.Now().After(end) {
			t.Fatal("nobody noticed that the session ended")
		}
		time.Sleep(10 * time.Millisecond)
	}
	write(t, f, []byte("x"), 0)
	must(t, f.Close(context.Background()))
}
