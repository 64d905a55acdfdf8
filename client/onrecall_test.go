package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestRecallWaitsForThoseWhoWereTold: who passes on what a client has said forgets it before
// another client's change takes effect: of a file that was read, and of one that was written. Until
// then nothing new is said to be sure.
func TestRecallWaitsForThoseWhoWereTold(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, withLongLeases(store.Options{}))
	fs, other := c.client(Options{}), c.client(Options{})
	listened(t, fs)
	for _, written := range []bool{false, true} {
		name := map[bool]string{false: "/read", true: "/written"}[written]
		f := create(t, fs, name[1:], 1)
		if !written {
			must(t, f.Close(ctx))
			if _, err := fs.Stat(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		ino, told := f.Ino(), meta.Attr{}
		eventually(t, func() bool {
			a, err := fs.GetAttr(ctx, *fs.opts.Cred, ino)
			told = a
			return err == nil && fs.Leased(&a) > 0
		})
		asked, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		fs.OnRecall(func(of meta.Ino) func(context.Context) {
			if of != ino {
				return nil
			}
			return func(context.Context) {
				once.Do(func() { close(asked) })
				<-goOn
			}
		})
		changed := make(chan error, 1)
		go func() {
			_, err := other.SetAttr(ctx, *other.opts.Cred, ino, meta.SetMode, meta.Attr{Mode: 0o600})
			changed <- err
		}()
		<-asked
		if fs.Leased(&told) > 0 {
			t.Error("what is recalled counts as leased")
		}
		select {
		case err := <-changed:
			t.Errorf("%s was changed (%v) before it was forgotten", name, err)
		case <-time.After(100 * time.Millisecond):
		}
		close(goOn)
		must(t, <-changed)
		if written {
			must(t, f.Close(ctx))
		}
	}
}
