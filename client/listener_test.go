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

// hangingUp is a service that never answers those who wait for news in one session.
type hangingUp struct {
	meta.Service
	session atomic.Uint64
	waits   chan struct{} // somebody does, and hears nothing
}

func (h *hangingUp) Listen(ctx context.Context, l meta.Listening) (meta.Heard, error) {
	if l.WaitMs == 0 || l.Session != h.session.Load() {
		return h.Service.Listen(ctx, l)
	}
	h.waits <- struct{}{}
	<-ctx.Done()
	return meta.Heard{}, errs.Wrap("hangingUp", "", ctx.Err())
}

// TestListensInTheNextSession: a client whose session was lost listens in the one that has taken
// its place, although a request of the lost one is never answered: the leases of the new one would
// run out, and whoever writes a small file, or closes the FS, would wait for one until WaitMax.
func TestListensInTheNextSession(t *testing.T) {
	ctx := context.Background()
	const leases = 200 * time.Millisecond
	c := newCluster(t, 1, store.Options{LeaseTime: leases, CapTTL: 50 * time.Millisecond})
	svc := &hangingUp{Service: c.service(), waits: make(chan struct{}, 1)}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	lost := fs.sess.Load()
	svc.session.Store(lost.id)
	<-svc.waits
	must(t, c.meta.EndSession(ctx, lost.id))
	must(t, fs.replaceSession(ctx, lost))
	<-fs.sess.Load().ready
	time.Sleep(3 * leases) // nobody but who listens extends them
	for end := time.Now().Add(30 * time.Second); !fs.cache.Valid(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the leases of the session have run out")
		}
	}
	write(t, f, []byte("content"), 0)
	must(t, fs.Close())
	shows(t, c, "content")
}
