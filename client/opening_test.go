package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// spanning is a service that is restarted during the first Create, before or after it is done.
// What comes after that, before the file is opened again, the test says.
type spanning struct {
	meta.Service
	restart func() // returns when the client knows of it
	late    bool   // the file is made in the life before
	then    func()
	once    sync.Once
}

func (s *spanning) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	if !s.late {
		s.once.Do(s.restart)
	}
	h, err := s.Service.Create(ctx, c, dir, name, f, flags)
	s.once.Do(s.restart)
	return h, err
}

func (s *spanning) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	s.then()
	return s.Service.Open(ctx, c, ino, flags)
}

// TestCreateSpansARestart: a file that was made is there for who has made it, also when the service
// was restarted meanwhile and another client has taken the name away.
func TestCreateSpansARestart(t *testing.T) {
	for name, late := range map[string]bool{"made afterwards": false, "made before": true} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			w := newWired(t, 1)
			base, other := w.dial(""), w.dial("")
			svc := &spanning{Service: base.svc, late: late}
			fs, err := New(svc, base.data, Options{Cred: &meta.Cred{}})
			must(t, err)
			defer func() { must(t, fs.Close()) }()
			listened(t, fs)
			svc.restart = func() {
				life := fs.leases.lives()
				w.restartMeta()
				eventually(t, func() bool { return fs.leases.lives() != life })
			}
			svc.then = func() {
				must(t, other.Remove(ctx, "/f"))
				eventually(t, func() bool { return fs.endings.count() == 0 }) // nothing keeps it longer
				svc.then = func() {}
			}
			f, err := fs.CreateIno(ctx, meta.Cred{}, fs.root, "f", meta.NewFile{Mode: 0o644},
				meta.OpenRead|meta.OpenWrite|meta.OpenExclusive)
			must(t, err)
			_, err = f.WriteAt(ctx, []byte("data"), 0)
			if k := errs.KindOf(err); k != errs.OK && (!late || k != errs.Stale) {
				t.Errorf("writing: %v", err)
			}
			if got := contents(t, f); !late && string(got) != "data" || late && len(got) > 0 {
				t.Errorf("it has %q", got)
			}
			a, err := f.Stat(ctx)
			b, berr := fs.GetAttr(ctx, meta.Cred{}, f.Ino()) // as fstat(2) of a mount
			if err != nil || berr != nil || a.Nlink != 0 || b.Nlink != 0 || a.Size != b.Size {
				t.Errorf("it has %d names, %v; or %d, %v", a.Nlink, err, b.Nlink, berr)
			}
			must(t, f.Close(ctx))
			fs.flushEndings(ctx)
			eventually(t, func() bool {
				st, err := w.meta.Status()
				return err == nil && st.Handles == 0
			})
		})
	}
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came to that")
		}
	}
}

// ended is a service that has ended the session just before it answers the first Create, and has
// closed what it had open.
type ended struct {
	meta.Service
	once sync.Once
}

func (s *ended) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	h, err := s.Service.Create(ctx, c, dir, name, f, flags)
	s.once.Do(func() {
		if err == nil {
			_ = s.Close(ctx, meta.Caller{Session: c.Session}, meta.Closing{Handle: h.ID})
			_ = s.EndSession(ctx, c.Session)
			h, err = meta.Handle{}, errs.Stale
		}
	})
	return h, err
}

// TestCreateInALostSession: a file that was made in a session that was lost is the one that Create
// opens in the next, and can be written.
func TestCreateInALostSession(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := newCluster(t, 1, store.Options{})
	fs, err := New(&ended{Service: c.service()}, c, Options{Cred: &meta.Cred{}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	f, err := fs.CreateIno(ctx, meta.Cred{}, fs.root, "f", meta.NewFile{Mode: 0o644},
		meta.OpenRead|meta.OpenWrite|meta.OpenExclusive)
	must(t, err)
	_, err = f.WriteAt(ctx, []byte("data"), 0)
	must(t, err)
	must(t, f.Sync(ctx))
	r, err := c.client(Options{}).Open(ctx, "/f")
	must(t, err)
	if got := contents(t, r); string(got) != "data" {
		t.Errorf("it has %q", got)
	}
	must(t, r.Close(ctx))
	must(t, f.Close(ctx))
}

// TestDeadHandleIsClosed: a handle whose file fails because a lock was lost is closed like others.
func TestDeadHandleIsClosed(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	f := create(t, fs, "f", 1)
	f.loseLock()
	if _, err := f.WriteAt(ctx, []byte("x"), 0); errs.KindOf(err) != errs.IO {
		t.Fatalf("written without the lock: %v", err)
	}
	_ = f.Close(ctx)
	fs.flushEndings(ctx)
	if st, err := c.meta.Status(); err != nil || st.Handles != 0 {
		t.Errorf("%d handles are left, %v", st.Handles, err)
	}
}
