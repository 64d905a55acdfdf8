package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// slowCut is a service on whose way back the answer to an opening that empties a file, or to a new
// length, is overtaken by what the test does then.
type slowCut struct {
	meta.Service
	meanwhile func(a *meta.Attr)
	told      chan struct{} // closed when a change was told, or refused
	once      sync.Once
}

func (s *slowCut) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	h, err := s.Service.Open(ctx, c, ino, flags)
	if err == nil && flags&meta.OpenTruncate != 0 {
		s.meanwhile(&h.Attr)
	}
	return h, err
}

func (s *slowCut) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	h, err := s.Service.Create(ctx, c, dir, name, f, flags)
	if err == nil && flags&meta.OpenTruncate != 0 {
		s.meanwhile(&h.Attr)
	}
	return h, err
}

func (s *slowCut) SetAttr(ctx context.Context, c meta.Caller, ino meta.Ino, mask meta.SetMask,
	a meta.Attr) (meta.Attr, error) {
	got, err := s.Service.SetAttr(ctx, c, ino, mask, a)
	if err == nil && mask&meta.SetSize != 0 {
		s.meanwhile(&got)
	}
	return got, err
}

func (s *slowCut) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	a, err := s.Service.Commit(ctx, c, w, sync)
	s.once.Do(func() { close(s.told) })
	return a, err
}

// TestOwnCutIsNotUndone: what was written to a small file, and not told, is gone when a truncation
// by the same client returns, whatever comes between the truncation and its answer.
func TestOwnCutIsNotUndone(t *testing.T) {
	cred := meta.Cred{UID: 1000, GID: 1000}
	ctx := context.Background()
	rw := meta.OpenRead | meta.OpenWrite | meta.OpenTruncate
	open := func(fs *FS, f *File) (*File, error) { return fs.OpenIno(ctx, cred, f.Ino(), rw) }
	create := func(fs *FS, _ *File) (*File, error) {
		return fs.CreateIno(ctx, cred, fs.root, "f", meta.NewFile{Mode: 0o644}, rw)
	}
	look := func(t *testing.T, fs *FS, a *meta.Attr) {
		_, err := fs.askAttr(ctx, cred, a.Ino)
		must(t, err)
	}
	twice := func(t *testing.T, fs *FS, a *meta.Attr) { look(t, fs, a); look(t, fs, a) }
	learn := func(t *testing.T, fs *FS, a *meta.Attr) { // as newFile does before it cuts
		n, err := fs.node(a, false)
		must(t, err)
		fs.unref(n)
	}
	for name, one := range map[string]struct {
		cut   func(fs *FS, f *File) (*File, error)
		heard func(t *testing.T, fs *FS, a *meta.Attr)
		tells bool
	}{
		"opened, looked at":   {open, look, false},
		"opened, told":        {open, learn, true},
		"opened, seen, told":  {open, look, true},
		"created, looked at":  {create, look, false},
		"created, told":       {create, learn, true},
		"created, seen, told": {create, look, true},
		"looked at twice":     {open, twice, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, store.Options{})
			svc := &slowCut{Service: c.service(), told: make(chan struct{})}
			fs, err := New(svc, c, Options{Cred: &cred})
			must(t, err)
			defer func() { must(t, fs.Close()) }()
			listened(t, fs)
			f := createSmall(t, fs, "f", 1)
			write(t, f, []byte("old bytes"), 0)
			var wg sync.WaitGroup
			svc.meanwhile = func(a *meta.Attr) {
				one.heard(t, fs, a)
				if one.tells {
					wg.Go(func() { must(t, f.Sync(ctx)) })
					select {
					case <-svc.told:
					case <-time.After(time.Minute):
						t.Error("nothing can be told before the answer is there")
					}
				}
			}
			g, err := one.cut(fs, f)
			must(t, err)
			if a, err := g.Stat(ctx); err != nil || a.Size != 0 {
				t.Errorf("a file that was emptied has %d bytes, %v", a.Size, err)
			}
			wg.Wait()
			must(t, f.Close(ctx))
			must(t, g.Close(ctx))
			fs.flushEndings(ctx)
			r, err := c.client(Options{}).Open(ctx, "/f")
			must(t, err)
			if got := contents(t, r); len(got) != 0 {
				t.Errorf("a file that was emptied has %q", got)
			}
			must(t, r.Close(ctx))
		})
	}
}

// TestOwnGrowthIsOneStep: a file that is being made longer has its old length and its old data, or
// the new ones.
func TestOwnGrowthIsOneStep(t *testing.T) {
	ctx, cred := context.Background(), meta.Cred{UID: 1000, GID: 1000}
	c := newCluster(t, 1, store.Options{})
	svc := &slowCut{Service: c.service(), told: make(chan struct{})}
	fs, err := New(svc, c, Options{Cred: &cred})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("told"), 0)
	svc.meanwhile = func(*meta.Attr) {
		write(t, f, []byte("later"), 0)
		a, err := fs.GetAttr(ctx, cred, f.Ino())
		must(t, err)
		if got := contents(t, f); int64(len(got)) != a.Size {
			t.Errorf("%q, and %d bytes", got, a.Size)
		}
	}
	must(t, f.Truncate(ctx, 100))
	if got := contents(t, f); len(got) != 100 || string(got[:5]) != "later" {
		t.Errorf("after all there is %q", got)
	}
	must(t, f.Close(ctx))
}

// TestFenceCutsNothing: a client that has lost its lease gets it again, for which the service keeps
// off what it was before, and opens the file once more. What it has written since stays.
func TestFenceCutsNothing(t *testing.T) {
	ctx := context.Background()
	svc, fs, other := hanging(t)
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("short"), 0)
	must(t, f.Sync(ctx))
	svc.stop()
	_, err := other.Stat(ctx, "/f")
	must(t, err)
	svc.resume()
	listened(t, fs)
	seq := f.node.sequence()
	write(t, f, []byte("longer than before"), 0)
	g, err := fs.OpenIno(ctx, *fs.opts.Cred, f.Ino(), meta.OpenRead|meta.OpenWrite)
	must(t, err)
	if f.node.sequence() == seq {
		t.Fatal("nothing was fenced off")
	}
	if got := contents(t, g); string(got) != "longer than before" {
		t.Errorf("the file has %q", got)
	}
	must(t, f.Close(ctx))
	must(t, g.Close(ctx))
	r, err := other.Open(ctx, "/f")
	must(t, err)
	if got := contents(t, r); string(got) != "longer than before" {
		t.Errorf("another client finds %q", got)
	}
	must(t, r.Close(ctx))
}

// TestOwnCutHasAVersion: the answer to a truncation says which version the data has, also where the
// truncation was heard of before.
func TestOwnCutHasAVersion(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	fs := c.client(Options{})
	f := createSmall(t, fs, "f", 1)
	write(t, f, []byte("content"), 0)
	must(t, f.Sync(ctx))
	a, err := c.meta.SetAttr(ctx, fs.trusted(), f.Ino(), meta.SetSize, meta.Attr{Size: 3})
	must(t, err)
	f.node.learn(&a)
	f.node.cut(&a)
	if v := f.node.content.version; v != a.DataVersion {
		t.Errorf("version %d, the service has %d", v, a.DataVersion)
	}
	must(t, f.Close(ctx))
}
