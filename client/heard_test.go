package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// outrun is a service whose answer to a closing is outrun by attributes that were asked for after
// it was carried out.
type outrun struct {
	meta.Service
	look  func() // has the client take such attributes in
	first atomic.Bool
}

func (o *outrun) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	ended, err := o.Service.CloseMany(ctx, c, list)
	if list[0].Dirty && !o.first.Swap(true) {
		o.look()
	}
	return ended, err
}

// TestClosingCountsOnce: attributes that show what a closing has told, and come before its answer,
// are not counted up again. A version that the service does not have would make the client take
// each later answer for one from before the closing, and keep the time of writing where another
// time was set.
func TestClosingCountsOnce(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := &outrun{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	ino := f.Ino()
	svc.look = func() {
		a, err := c.service().GetAttr(ctx, meta.Caller{}, ino)
		if err != nil {
			t.Error(err)
		}
		a.Lease, a.Serial = 0, 0
		fs.Overlay(&a)
	}
	write(t, f, []byte("small"), 0)
	must(t, f.Close(ctx))
	fs.flushEndings(ctx)
	if !svc.first.Load() {
		t.Fatal("nothing was told with the closing")
	}
	for end := time.Now().Add(time.Minute); fs.peek(ino) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the file is not forgotten")
		}
	}
	set := meta.Attr{Mtime: meta.UnixTime(1, 0)}
	_, err = fs.SetAttr(ctx, *fs.opts.Cred, ino, meta.SetMtime, set)
	must(t, err)
	fs.cache.Recall(ino)
	a, err := fs.Stat(ctx, "/f")
	must(t, err)
	if a.Mtime != set.Mtime || a.DataVersion != 1 {
		t.Errorf("the time is %d, version %d; want %d, 1", a.Mtime, a.DataVersion, set.Mtime)
	}
}
