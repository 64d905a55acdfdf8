package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// overtaking is a service that keeps the first CloseMany with something to tell, or the answer to
// the next Create, until the test lets it go.
type overtaking struct {
	meta.Service
	closing chan struct{} // a CloseMany is here
	goOn    chan struct{} // it may go on
	closed  chan struct{} // it was answered
	create  atomic.Bool   // the next Create's answer waits for that
	once    atomic.Bool
}

func (o *overtaking) CloseMany(ctx context.Context, c meta.Caller, list []meta.Closing) (
	[]meta.Ended, error) {
	if !list[0].Dirty || o.once.Swap(true) {
		return o.Service.CloseMany(ctx, c, list)
	}
	close(o.closing)
	<-o.goOn
	defer close(o.closed)
	return o.Service.CloseMany(ctx, c, list)
}

func (o *overtaking) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	h, err := o.Service.Create(ctx, c, dir, name, f, flags)
	if o.create.Swap(false) {
		close(o.goOn)
		<-o.closed
		time.Sleep(20 * time.Millisecond) // the answer to the closing is taken in
	}
	return h, err
}

// TestCreateOvertakesAClose: a file is opened again, and maybe emptied, while its closing is on its
// way: nothing is told as lost, and the file is as the last one has left it.
func TestCreateOvertakesAClose(t *testing.T) {
	for name, one := range map[string]struct {
		flags      meta.OpenFlags
		answerLast bool
		want       string
	}{
		"open":              {0, false, "newer"},
		"open, answer last": {0, true, "newer"},
		"cut":               {meta.OpenTruncate, false, "new"},
		"cut, answer last":  {meta.OpenTruncate, true, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, store.Options{})
			svc := &overtaking{Service: c.service(), closing: make(chan struct{}),
				goOn: make(chan struct{}), closed: make(chan struct{})}
			fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
			must(t, err)
			defer func() { must(t, fs.Close()) }()
			listened(t, fs)
			ctx := context.Background()
			f := createSmall(t, fs, "f", 1)
			write(t, f, []byte("older"), 0)
			must(t, f.Close(ctx))
			<-svc.closing
			svc.create.Store(one.answerLast)
			g, err := fs.CreateIno(ctx, *fs.opts.Cred, fs.root, "f", meta.NewFile{Mode: 0o644},
				meta.OpenRead|meta.OpenWrite|one.flags)
			must(t, err)
			if !one.answerLast {
				close(svc.goOn)
			}
			write(t, g, []byte("new"), 0)
			if one.flags == 0 {
				write(t, g, []byte("er"), 3)
			}
			<-svc.closed
			must(t, g.Sync(ctx))
			must(t, g.Close(ctx))
			fs.flushEndings(ctx)
			r, err := c.client(Options{}).Open(ctx, "/f")
			must(t, err)
			if got := contents(t, r); string(got) != one.want {
				t.Errorf("the file has %q, want %q", got, one.want)
			}
			must(t, r.Close(ctx))
		})
	}
}
