package client

import (
	"context"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
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

// slowMove is a service on whose way the request to move a file out, or the answer, is overtaken by
// what the test does then. The answer may be lost.
type slowMove struct {
	meta.Service
	first, meanwhile func()
	lost             error
}

func (s *slowMove) MoveOut(ctx context.Context, c meta.Caller, w meta.Change, version uint64) (
	meta.Attr, error) {
	if s.first != nil {
		s.first()
	}
	a, err := s.Service.MoveOut(ctx, c, w, version)
	if err == nil && s.meanwhile != nil {
		s.meanwhile()
	}
	if err == nil {
		err = s.lost
	}
	if err == nil {
		err = ctx.Err()
	}
	return a, err
}

// TestOwnMoveOut: a client moves a file out that it has written to, and hears that it is not small
// any more before the answer is there, or gets none, or does not wait for it. Nothing is lost of
// what was written before, or is written afterwards.
func TestOwnMoveOut(t *testing.T) {
	ctx, lost := context.Background(), errs.New(errs.TimedOut, "slow", "", nil)
	for name, one := range map[string]struct {
		looks, gone, written bool
		lost                 error
	}{
		"overtaken":              {looks: true},
		"left alone":             {gone: true},
		"no answer":              {lost: lost},
		"no answer, written":     {lost: lost, written: true},
		"overtaken, none":        {looks: true, lost: lost},
		"overtaken, none, later": {looks: true, lost: lost, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, store.Options{})
			svc := &slowMove{Service: c.service(), lost: one.lost}
			fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
			must(t, err)
			defer func() { must(t, fs.Close()) }()
			listened(t, fs)
			f, want := createSmall(t, fs, "f", 1), "first"
			write(t, f, []byte(want), 0)
			moving, leave := context.WithCancel(ctx)
			defer leave()
			svc.meanwhile = func() {
				if one.looks {
					_, err := fs.askAttr(ctx, *fs.opts.Cred, f.Ino())
					must(t, err)
				}
				if one.gone {
					leave()
				}
			}
			if err := fs.moveOut(moving, f); (err != nil) != (one.lost != nil) {
				t.Errorf("moving it out: %v", err)
			}
			if one.written {
				want = "again"
				write(t, f, []byte(want), 0)
			}
			must(t, f.Sync(ctx))
			if f.node.small.Load() || f.node.untold() {
				t.Error("the client does not know that the file has moved out")
			}
			must(t, f.Close(ctx))
			r, err := c.client(Options{}).Open(ctx, "/f")
			must(t, err)
			if got := contents(t, r); string(got) != want {
				t.Errorf("the file has %q", got)
			}
			must(t, r.Close(ctx))
		})
	}
}

// TestMovedOutBefore: a client is stopped when the I/O servers have the data of a file that it
// moves out; another one has taken the file over, and moved it out, when the service hears of it.
func TestMovedOutBefore(t *testing.T) {
	ctx, cred := context.Background(), meta.Cred{UID: 1000, GID: 1000}
	c := newCluster(t, 1, store.Options{LeaseTime: hangLease})
	stopped := newPaused(c.service())
	svc := &slowMove{Service: stopped}
	fs, err := New(svc, c, Options{Cred: &cred})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	other := c.client(Options{})
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("untold"), 0)
	svc.first = func() {
		stopped.stop()
		w, err := other.OpenIno(ctx, cred, f.Ino(), meta.OpenWrite)
		must(t, err)
		write(t, w, []byte("new"), 0)
		must(t, other.moveOut(ctx, w))
		must(t, w.Close(ctx))
		stopped.resume()
	}
	must(t, fs.moveOut(ctx, f))
	if err := f.Sync(ctx); err == nil {
		t.Error("nobody hears that what was written is lost")
	}
	if got := contents(t, f); string(got) != "new" {
		t.Errorf("the file has %q", got)
	}
	must(t, f.Close(ctx))
}
