package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// TestPowerCutAndToldNames: what is left of what was told in one list, and not synced, is a
// beginning of it; a name has the data that it was told with.
func TestPowerCutAndToldNames(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	w := newWorld(t)
	ctx := t.Context()
	seen := map[string]bool{}
	for i := range 40 {
		c := meta.Caller{Session: w.session, Leases: true, ReqID: [16]byte{1, byte(i), 15: 7}}
		heard, err := w.store.Listen(ctx, meta.Listening{Session: w.session})
		w.must(err)
		dir, err := w.store.Make(ctx, meta.Caller{Session: w.session, Leases: true}, meta.RootIno,
			fmt.Sprint("d", i), meta.NewFile{Type: meta.Directory, Mode: 0o755, Sole: true})
		w.must(err)
		next, _, err := w.store.Numbers(ctx, c, 100)
		w.must(err)
		w.must(w.store.Sync(ctx))
		var list []meta.Deferred
		for k := range 40 {
			list = append(list, meta.Deferred{Kind: meta.DeferMake, Dir: dir.Ino, Name: fmt.Sprint(k),
				Ino: next + meta.Ino(k), At: meta.Time{Sec: int64(k)}, File: meta.NewFile{Type: meta.Regular},
				Dirty: true, Change: meta.Change{Whole: true, Epoch: heard.Epoch, Size: 1,
					Data: []byte{byte(k)}, Mtime: meta.Time{Sec: int64(k)}}})
		}
		out, err := w.store.TellMany(ctx, c, heard.Epoch, list)
		w.must(err)
		for k := range out {
			if out[k].Kind != errs.OK {
				t.Fatalf("%d: %+v", k, out[k])
			}
		}
		synced := rng.IntN(3) == 0
		if synced {
			w.must(w.store.Sync(ctx))
		}
		old := w.session
		w.cut()
		w.must(w.store.EndSession(ctx, old)) // it is dead: nobody waits for it
		left := 0
		for k := range list {
			f, err := w.store.Find(ctx, meta.Caller{}, dir.Ino, list[k].Name)
			w.must(err)
			if f.Present && (left != k || string(f.Data) != string([]byte{byte(k)})) {
				t.Fatalf("%d is there, and %d before it; %q", k, left, f.Data)
			}
			if f.Present {
				left++
			}
		}
		if synced && left != len(list) {
			t.Fatalf("%d of %d that were synced", left, len(list))
		}
		seen[map[bool]string{true: "all", false: "some"}[left == len(list)]] = true
		verify(t, w.store)
	}
	if len(seen) == 0 {
		t.Error("nothing was seen")
	}
}
