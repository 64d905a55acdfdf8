package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestCloseWaitsForWhatIsBeingTold: an FS is closed while what was written to a small file, which
// is closed, is being told, and that takes a while.
func TestCloseWaitsForWhatIsBeingTold(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := newSlowCommit(c.service())
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	svc.on.Store(true)
	write(t, f, []byte("content"), 0)
	<-svc.came // that is who flushes
	must(t, f.Close(ctx))
	closed := make(chan error, 1)
	go func() { closed <- fs.Close() }()
	select {
	case err := <-closed:
		t.Errorf("it was closed before all was told: %v", err)
	case <-time.After(200 * time.Millisecond):
		svc.goOn <- nil
		must(t, <-closed)
	}
	shows(t, c, "content")
}

// shows looks at /f with another client.
func shows(t *testing.T, c *cluster, want string) {
	t.Helper()
	r, err := c.client(Options{}).Open(context.Background(), "/f")
	must(t, err)
	if got := contents(t, r); string(got) != want {
		t.Errorf("the file has %q", got)
	}
	must(t, r.Close(context.Background()))
}

// unheard is a service that does not answer who listens in one of the sessions.
type unheard struct {
	meta.Service
	session atomic.Uint64
}

func (d *unheard) Listen(ctx context.Context, l meta.Listening) (meta.Heard, error) {
	h, err := d.Service.Listen(ctx, l)
	if l.Session == d.session.Load() {
		<-ctx.Done()
		return meta.Heard{}, errs.Wrap("unheard", "", ctx.Err())
	}
	return h, err
}

// TestCloseTellsInAnotherSession: the session is lost when an FS is closed, and nobody has noticed.
// What was written is told nevertheless, with a lease that seems to be there, and without.
func TestCloseTellsInAnotherSession(t *testing.T) {
	for name, leased := range map[string]bool{"leased": true, "not leased": false} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			c := newCluster(t, 1, store.Options{CapTTL: 50 * time.Millisecond})
			svc := &unheard{Service: c.service()}
			fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
			must(t, err)
			listened(t, fs)
			f := createSmall(t, fs, "f", 1)
			svc.session.Store(fs.sess.Load().id)
			write(t, f, []byte("content"), 0)
			for _, n := range fs.flushing.take() { // only Close tells it
				fs.unref(n)
			}
			must(t, c.meta.EndSession(ctx, fs.sess.Load().id))
			if !leased {
				fs.cache.Drop() // their time is over
			}
			must(t, fs.Close())
			shows(t, c, "content")
		})
	}
}

// closedEars is a service that takes nothing.
type closedEars struct{ meta.Service }

func (closedEars) Commit(context.Context, meta.Caller, meta.Change, bool) (meta.Attr, error) {
	return meta.Attr{}, errs.New(errs.Disconnected, "closedEars", "", nil)
}

func (closedEars) CloseMany(context.Context, meta.Caller, []meta.Closing) ([]meta.Ended, error) {
	return nil, errs.New(errs.Disconnected, "closedEars", "", nil)
}

// TestCloseSaysWhatIsNotTold: an FS that is closed while the service takes nothing says so.
func TestCloseSaysWhatIsNotTold(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	fs, err := New(closedEars{c.service()}, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000},
		WaitMax: 300 * time.Millisecond})
	must(t, err)
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	must(t, f.Close(context.Background()))
	if fs.Close() == nil {
		t.Error("nothing is said of what was not told")
	}
	if _, err := fs.OpenIno(context.Background(), meta.Cred{}, f.Ino(), meta.OpenRead); err == nil {
		t.Error("a file is opened of an FS that is closed")
	}
}
