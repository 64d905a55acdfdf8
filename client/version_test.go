package client

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestOwnVersionsAreNamed: every data version that a client makes is named to who has asked for
// that, before Telling ends: whether it is told by a closing, whose answer is outrun by what it has
// led to, or before; of small files and of others. Versions that others make are not.
func TestOwnVersionsAreNamed(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 2, store.Options{})
	svc := &outrun{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	other := c.client(Options{Cred: fs.opts.Cred})
	listened(t, other)
	var mu sync.Mutex
	own := map[uint64]bool{}
	fs.OnVersion(func(after *meta.Attr) {
		mu.Lock()
		defer mu.Unlock()
		own[after.DataVersion] = true
	})
	f := createSmall(t, fs, "f", 1)
	ino := f.Ino()
	must(t, f.Close(ctx))
	version := func() uint64 {
		a, err := c.service().GetAttr(ctx, meta.Caller{}, ino)
		must(t, err)
		return a.DataVersion
	}
	svc.look = func() {
		if a, err := c.service().GetAttr(ctx, meta.Caller{}, ino); err == nil {
			a.Lease, a.Serial = 0, 0
			fs.Overlay(&a)
		}
		if !fs.Telling(ino) {
			t.Error("the service is being told, and nobody says so")
		}
	}
	for i, data := range [][]byte{[]byte("small"), make([]byte, 1<<20), []byte("in place"), {1}} {
		before := version()
		f, err := fs.OpenIno(ctx, *fs.opts.Cred, ino, meta.OpenRead|meta.OpenWrite)
		must(t, err)
		write(t, f, data, 0)
		if i == 2 {
			must(t, f.Sync(ctx))
			write(t, f, data, 0)
		}
		svc.first.Store(false)
		must(t, f.Close(ctx))
		fs.flushEndings(ctx)
		if !svc.first.Load() {
			t.Fatal("nothing was told with the closing")
		}
		told(t, fs, ino)
		after := version()
		mu.Lock()
		for v := before + 1; v <= after; v++ {
			if !own[v] {
				t.Errorf("round %d: version %d was made here, of %d to %d", i, v, before, after)
			}
		}
		mu.Unlock()
		if after == before {
			t.Errorf("round %d: no version was made", i)
		}
	}
	named := func(v uint64) bool {
		mu.Lock()
		defer mu.Unlock()
		return own[v]
	}
	othersAreNot(t, other, ino, version, named)
}

// told waits until nothing is told of a file any more.
func told(t *testing.T, fs *FS, ino meta.Ino) {
	t.Helper()
	for end := time.Now().Add(time.Minute); fs.Telling(ino); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is told for ever")
		}
	}
}

// othersAreNot has another client write a file: what it makes is not named.
func othersAreNot(t *testing.T, other *FS, ino meta.Ino, version func() uint64,
	named func(uint64) bool) {
	t.Helper()
	ctx, was := context.Background(), version()
	g, err := other.OpenIno(ctx, *other.opts.Cred, ino, meta.OpenWrite)
	must(t, err)
	write(t, g, []byte("by another"), 0)
	must(t, g.Close(ctx))
	other.flushEndings(ctx)
	now := version()
	for v := was + 1; v <= now; v++ {
		if named(v) {
			t.Errorf("version %d is another client's", v)
		}
	}
	if now == was {
		t.Error("another client has made no version")
	}
}
