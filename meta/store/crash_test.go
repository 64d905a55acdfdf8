package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// world is a service whose power can be cut.
type world struct {
	t       *testing.T
	engine  *memkv.Store
	store   *store.Store
	objects *metatest.Objects
	session uint64
	key     capability.Key
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, engine: memkv.New(memkv.Options{}), objects: metatest.NewObjects()}
	w.start()
	t.Cleanup(func() {
		w.store.Stop()
		_ = w.engine.Close()
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) start() {
	var err error
	w.store, err = store.New(context.Background(), w.engine,
		store.Options{Objects: w.objects, Key: w.key, Tick: 2 * time.Millisecond})
	w.must(err)
	srv := meta.Server{ID: 1, Addr: "a", StoreID: 1}
	w.must(w.store.Join(w.t.Context(), srv, meta.SignJoin(w.key.ServerKey(1), &srv)))
	info, err := w.store.NewSession(w.t.Context(), "crash")
	w.must(err)
	w.session = info.ID
}

// cut takes the power away and starts again with what was on disk.
func (w *world) cut() {
	w.engine = w.engine.Crash()
	w.store.Stop()
	w.start()
}

// dump describes the tree below a directory.
func (w *world) dump(b *strings.Builder, dir meta.Ino) {
	page, err := w.store.ReadDir(w.t.Context(), meta.Caller{}, dir, 0, meta.DirPageMax, true)
	w.must(err)
	for _, x := range page {
		fmt.Fprintf(b, "(%s %d %d %d", x.Name, x.Ino, x.Attr.Size, x.Attr.Nlink)
		if x.Type == meta.Directory {
			w.dump(b, x.Ino)
		}
		b.WriteString(")")
	}
}

func (w *world) tree() string {
	var b strings.Builder
	w.dump(&b, meta.RootIno)
	return b.String()
}

// TestPowerCutLeavesAPrefix does random operations, syncs now and then, and cuts the power: what
// is left is the state after some operation that is not older than the last sync, without
// contradictions, and no inode number comes back.
func TestPowerCutLeavesAPrefix(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	w := newWorld(t)
	ctx := t.Context()
	dirs := []meta.Ino{meta.RootIno}
	var highest meta.Ino
	for range 15 {
		history := []string{w.tree()}
		synced := 0
		for range rng.IntN(40) {
			dir, to := dirs[rng.IntN(len(dirs))], dirs[rng.IntN(len(dirs))]
			name, other := string(rune('a'+rng.IntN(5))), string(rune('a'+rng.IntN(5)))
			switch rng.IntN(6) {
			case 0, 1, 2:
				typ := []meta.Type{meta.Directory, meta.Regular}[rng.IntN(2)]
				a, err := w.store.Make(ctx, meta.Caller{}, dir, name, meta.NewFile{Type: typ})
				if err == nil {
					if a.Ino <= highest {
						t.Fatalf("inode %d after %d: a number came back", a.Ino, highest)
					}
					highest = a.Ino
					dirs = append(dirs, a.Ino)
				}
			case 3:
				_ = metatest.Failed(w.store.Remove(ctx, meta.Caller{}, dir, name, rng.IntN(2) == 0))
			case 4:
				_ = metatest.Failed(w.store.Rename(ctx, meta.Caller{}, dir, name, to, other, 0))
			case 5:
				if rng.IntN(4) == 0 {
					w.must(w.store.Sync(ctx))
					synced = len(history)
				}
			}
			history = append(history, w.tree())
		}
		w.cut()
		verify(t, w.store)
		if left := w.tree(); !contains(history[max(0, synced-1):], left) {
			t.Fatalf("after the power cut the tree is %s; since the last sync it was never so:\n%s",
				left, strings.Join(history[max(0, synced-1):], "\n"))
		}
	}
}

func contains(all []string, s string) bool {
	for _, x := range all {
		if x == s {
			return true
		}
	}
	return false
}

// TestPowerCutAndData: what I/O servers are told to forget or to cut is on disk as forgotten and
// cut before they are told.
func TestPowerCutAndData(t *testing.T) {
	w := newWorld(t)
	c := meta.Caller{Session: w.session}
	for i := range 20 {
		name := fmt.Sprint("f", i)
		h, err := w.store.Create(t.Context(), c, meta.RootIno, name, meta.NewFile{}, meta.OpenWrite)
		w.must(err)
		w.must(w.store.Close(t.Context(), c, wrote(h.ID, 100, 0, 1)))
		w.must(w.store.Sync(t.Context()))
		if i%2 == 0 {
			w.must(metatest.Failed(w.store.Remove(t.Context(), c, meta.RootIno, name, false)))
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		} else {
			_, err = w.store.SetAttr(t.Context(), c, h.Attr.Ino, meta.SetSize, meta.Attr{Size: 7})
			w.must(err)
		}
		w.cut()
		c.Session = w.session
		a, err := w.store.Lookup(t.Context(), c, meta.RootIno, name)
		told, removed := w.objects.Told(h.Attr.Ino)
		switch {
		case i%2 == 0 && err == nil && removed:
			t.Fatalf("%s is back, its data is not", name)
		case i%2 == 1 && (err != nil || a.TruncSeq < told || a.Size != 7):
			t.Fatalf("%s: %v: %+v, the I/O servers were told of truncation %d", name, err, a, told)
		}
	}
}

// TestForeignStoresAreRefused: newer and older ones, damaged ones, and what is no metadata
// store at all.
func TestForeignStoresAreRefused(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       errs.Kind
	}{
		{"Aformat", "\x00\x00\x00\x07clusterX", errs.Version},
		{"Aformat", "\x00\x00\x00\x05clusterX", errs.Version},
		{"Aformat", "\x00\x00\x00\x04clusterX", errs.Version},
		{"Aformat", "\x00\x00\x00\x03clusterX", errs.Version},
		{"Aformat", "\x00\x00\x00\x02clusterX", errs.Version},
		{"Aformat", "\x00\x00\x00\x01clusterX", errs.Version},
		{"Aformat", "short", errs.Corrupt},
		{"something", "else", errs.Invalid},
	} {
		engine := memkv.New(memkv.Options{})
		put(t, engine, c.key, c.value)
		_, err := store.New(t.Context(), engine, store.Options{Objects: metatest.NewObjects()})
		if errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want kind %q", c.key, err, c.want)
		}
	}
	_, err := store.New(t.Context(), memkv.New(memkv.Options{}), store.Options{})
	if errs.KindOf(err) != errs.Invalid {
		t.Errorf("options without Objects: %v", err)
	}
}
