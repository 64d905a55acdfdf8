package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/meta"
)

// TestPowerCutAndSmallFiles: at every moment a small file is what was synced or told later; also
// while it moves out, when it is either still here or at the I/O servers, which have it by then.
func TestPowerCutAndSmallFiles(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	w := newWorld(t)
	ctx := t.Context()
	seen := map[string]int{}
	for i := range 60 {
		c := meta.Caller{Session: w.session, Leases: true}
		heard, err := w.store.Listen(ctx, meta.Listening{Session: w.session})
		w.must(err)
		name := fmt.Sprint("f", i)
		h, err := w.store.Create(ctx, c, meta.RootIno, name, meta.NewFile{Mode: 0o644}, meta.OpenWrite)
		w.must(err)
		change := func(data string) meta.Change {
			return meta.Change{Ino: h.Attr.Ino, TruncSeq: h.Attr.TruncSeq, Epoch: heard.Epoch,
				Whole: true, Data: []byte(data), Size: int64(len(data)), Mtime: meta.Time{Sec: int64(i)}}
		}
		_, err = w.store.Commit(ctx, c, change("synced"), true)
		w.must(err)
		a, err := w.store.Commit(ctx, c, change("told later"), false)
		w.must(err)
		moved := rng.IntN(2) == 0
		if moved {
			w.objects.Write(h.Attr.Ino, 10)
			out := change("")
			out.Whole, out.Data, out.Size = false, nil, 10
			_, err = w.store.MoveOut(ctx, c, out, a.DataVersion)
			w.must(err)
		}
		if rng.IntN(2) == 0 {
			_, err := w.store.CloseMany(ctx, c, []meta.Closing{{Handle: h.ID}})
			w.must(err)
		}
		if rng.IntN(3) == 0 {
			w.must(w.store.Sync(ctx))
		}
		old := w.session
		w.cut()
		w.must(w.store.EndSession(ctx, old)) // it is dead: nobody waits for it
		f, err := w.store.Find(ctx, meta.Caller{}, meta.RootIno, name)
		w.must(err)
		state := fmt.Sprint(string(f.Data), f.Attr.Size)
		switch {
		case f.Attr.Small && (state == "synced6" || state == "told later10"):
		case !f.Attr.Small && f.Attr.Size == 10 && moved:
			state = "moved"
		default:
			t.Fatalf("%s, moved %v: %q, %+v", name, moved, f.Data, f.Attr)
		}
		seen[state]++
		verify(t, w.store)
	}
	if len(seen) != 3 {
		t.Errorf("only %v was seen", seen)
	}
}
