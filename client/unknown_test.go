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

// unanswered is a service whose answer to the next CloseMany is lost, and with it all leases.
type unanswered struct {
	meta.Service
	next atomic.Bool
	lost func()
}

func (u *unanswered) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	ended, err := u.Service.CloseMany(ctx, c, list)
	if err == nil && u.next.Swap(false) {
		u.lost()
		return nil, errs.New(errs.Disconnected, "unanswered", "", nil)
	}
	return ended, err
}

// TestClosingWithoutAnAnswer: a file was closed at the service, which the client does not know, and
// has lost its leases since. What it has written is told in the end, and other files are closed
// meanwhile.
func TestClosingWithoutAnAnswer(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := &unanswered{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { _ = fs.Close() }()
	svc.lost = func() { fs.dropLeases(false) }
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	svc.next.Store(true)
	must(t, f.Close(ctx))
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if fs.endings.count() == 0 && !svc.next.Load() && !f.node.untold() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d handles are not closed; something is untold: %v", fs.endings.count(),
				f.node.untold())
		}
	}
	r, err := c.client(Options{}).Open(ctx, "/f")
	must(t, err)
	if got := contents(t, r); string(got) != "content" {
		t.Errorf("the file has %q", got)
	}
	must(t, r.Close(ctx))
}

// TestHandleThatTheServiceDoesNotKnow: a file is open that a service, which was restarted, has not
// heard of. Writing to it opens it again.
func TestHandleThatTheServiceDoesNotKnow(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("before"), 0)
	must(t, f.Sync(ctx))
	g := f.grant.Load()
	_, err := c.meta.CloseMany(ctx, meta.Caller{Session: g.session},
		[]meta.Closing{{Handle: g.handle}})
	must(t, err)
	fs.dropLeases(false)
	_, err = f.WriteAt(ctx, []byte("behind"), 0)
	must(t, err)
	must(t, f.Close(ctx))
	r, err := c.client(Options{}).Open(ctx, "/f")
	must(t, err)
	if got := contents(t, r); string(got) != "behind" {
		t.Errorf("the file has %q", got)
	}
	must(t, r.Close(ctx))
}
