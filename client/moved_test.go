package client

import (
	"context"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestMovedOutByAnother: another client has moved a small file out, to which this one, which could
// not be reached, has written. Whoever hears of that first, what was not told is reported as lost,
// once, and the file is as the other one has left it.
func TestMovedOutByAnother(t *testing.T) {
	ctx, cred := context.Background(), meta.Cred{UID: 1000, GID: 1000}
	look := func(fs *FS, f *File) error {
		_, err := fs.askAttr(ctx, cred, f.Ino())
		return err
	}
	none := func(*FS, *File) error { return nil }
	for name, one := range map[string]struct {
		hear  func(fs *FS, f *File) error
		tells bool  // what was written is on its way meanwhile
		grows int64 // by so much, by the other one
	}{
		"who tells it":   {none, false, 0},
		"it has grown":   {none, false, meta.SmallMax},
		"who looks":      {look, false, 0},
		"while telling":  {look, true, 0},
		"while it grows": {look, true, meta.SmallMax},
		"who asks again": {func(_ *FS, f *File) error { return f.node.reopenOne(ctx) }, false, 0},
		"who opens": {func(fs *FS, f *File) error {
			g, err := fs.OpenIno(ctx, cred, f.Ino(), meta.OpenRead)
			if err == nil {
				err = g.Close(ctx)
			}
			return err
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			svc, fs, other := hanging(t)
			f := createSmall(t, fs, "f", 1)
			write(t, f, []byte("told"), 0)
			must(t, f.Sync(ctx))
			svc.stop()
			write(t, f, []byte("untold"), 0)
			for _, n := range fs.flushing.take() { // by nobody else
				fs.unref(n)
			}
			var synced error
			var telling sync.WaitGroup
			defer telling.Wait()
			if one.tells {
				telling.Go(func() { synced = f.Sync(ctx) })
				eventually(t, f.node.beingTold)
			}
			w, err := other.OpenIno(ctx, cred, f.Ino(), meta.OpenRead|meta.OpenWrite)
			must(t, err)
			write(t, w, []byte("new"), 0)
			must(t, other.moveOut(ctx, w))
			if one.grows > 0 {
				write(t, w, []byte("x"), one.grows)
			}
			must(t, w.Close(ctx))
			must(t, one.hear(fs, f))
			svc.resume()
			if telling.Wait(); !one.tells {
				synced = f.Sync(ctx)
			}
			if synced == nil {
				t.Error("nobody hears that what was written is lost")
			}
			must(t, f.Sync(ctx))
			got := contents(t, f)
			if string(got[:4]) != "newd" || one.grows == 0 && len(got) != 4 {
				t.Errorf("the file has %q", got)
			}
			must(t, f.Close(ctx))
		})
	}
}

func (n *inode) beingTold() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.taken
}

// reopenOne has the only handle of a file opened again, as in another session.
func (n *inode) reopenOne(ctx context.Context) error {
	f := n.opened(0)[0]
	return f.reopen(ctx, f.fs.sess.Load(), f.grant.Load())
}

// TestOwnMoveOutLosesNothing: a client hears, before the answer to its own move-out is there, that
// the file is not small any more.
func TestOwnMoveOutLosesNothing(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := &slowMove{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	svc.meanwhile = func() {
		_, err := fs.askAttr(ctx, *fs.opts.Cred, f.Ino())
		must(t, err)
	}
	must(t, fs.moveOut(ctx, f))
	must(t, f.Sync(ctx))
	if got := contents(t, f); string(got) != "content" {
		t.Errorf("the file has %q", got)
	}
	must(t, f.Close(ctx))
}

// slowMove is a service on whose way back the answer to a move-out is overtaken by what the test
// does then, and may be lost.
type slowMove struct {
	meta.Service
	meanwhile func()
	lost      error
}

func (s *slowMove) MoveOut(ctx context.Context, c meta.Caller, w meta.Change, version uint64) (
	meta.Attr, error) {
	a, err := s.Service.MoveOut(ctx, c, w, version)
	if err != nil {
		return a, err
	}
	if s.meanwhile != nil {
		s.meanwhile()
	}
	if s.lost != nil {
		return meta.Attr{}, s.lost
	}
	return a, ctx.Err()
}
