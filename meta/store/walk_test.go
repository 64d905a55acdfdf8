package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
)

// TestCountWhileAllMoves: files and directories of a tree go from place to place, and into it,
// while it is counted; when that is done all that is in it is counted.
func TestCountWhileAllMoves(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range 20 {
		w := newWalked(t, func(*walked) {})
		dirs := []meta.Ino{w.top}
		outside := w.make(meta.RootIno, "outside", meta.Directory)
		for i := range 6 {
			dirs = append(dirs, w.make(dirs[i/2], fmt.Sprint("dir", i), meta.Directory))
			for k := range 24 {
				w.make(dirs[i], fmt.Sprint("f", k), meta.Fifo)
			}
			w.make(w.make(outside, fmt.Sprint("dir1", i), meta.Directory), "in", meta.Fifo)
		}
		all := append(slices.Clone(dirs), outside)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for who := range uint64(3) {
			rng := rand.New(rand.NewPCG(seed+uint64(round), who))
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						w.shuffle(rng, all)
					}
				}
			})
		}
		_, err := w.s.SetQuota(t.Context(), meta.Caller{}, w.top, meta.Usage{})
		var q meta.Quota
		for q.Counting = true; err == nil && q.Counting; {
			q, err = w.s.GetQuota(t.Context(), meta.Caller{}, w.top)
		}
		close(stop)
		wg.Wait()
		if err == nil {
			q, err = w.s.GetQuota(t.Context(), meta.Caller{}, w.top)
		}
		if found := w.inodes(w.top); err != nil || found != q.Used.Inodes {
			t.Errorf("round %d: %+v, %v, and %d inodes are there", round, q, err, found)
		}
		if verify(t, w.s); t.Failed() {
			w.missing(w.top, "top")
			return
		}
	}
}

// shuffle renames something, if it is there.
func (w *walked) shuffle(rng *rand.Rand, dirs []meta.Ino) {
	from, to := dirs[rng.IntN(len(dirs))], dirs[rng.IntN(len(dirs))]
	name, other := fmt.Sprint("f", rng.IntN(24)), fmt.Sprint("f", rng.IntN(24))
	if rng.IntN(3) == 0 {
		name, other = fmt.Sprint("dir", rng.IntN(18)), fmt.Sprint("dir", rng.IntN(18))
	}
	flags := meta.RenameFlags(rng.IntN(3))
	_ = metatest.Failed(w.s.Rename(w.t.Context(), meta.Caller{}, from, name, to, other, flags))
}

// inodes counts a directory and all below it.
func (w *walked) inodes(dir meta.Ino) int64 {
	n := int64(1)
	page, err := w.s.ReadDir(w.t.Context(), meta.Caller{}, dir, 0, meta.DirPageMax, false)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, x := range page {
		if x.Type == meta.Directory {
			n += w.inodes(x.Ino)
		} else {
			n++
		}
	}
	return n
}

// missing tells what of a tree does not belong to its quota.
func (w *walked) missing(dir meta.Ino, path string) {
	page, err := w.s.ReadDir(w.t.Context(), meta.Caller{}, dir, 0, meta.DirPageMax, false)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, x := range page {
		if _, err := w.s.GetQuota(w.t.Context(), meta.Caller{}, x.Ino); err != nil {
			w.t.Logf("%s/%s, inode %d: %v", path, x.Name, x.Ino, err)
		}
		if x.Type == meta.Directory {
			w.missing(x.Ino, path+"/"+x.Name)
		}
	}
}

// TestQuotasCostOthersNothing: where there is no quota an operation reads and writes as many keys
// as if there were none anywhere, and within a tree a few more, however many trees there are.
func TestQuotasCostOthersNothing(t *testing.T) {
	m := &metered{Store: memkv.New(memkv.Options{})}
	w := &walked{t: t, s: newStore(t, m)}
	out := w.make(meta.RootIno, "out", meta.Directory)
	cost := func(dir meta.Ino, name string) int64 {
		least := int64(1 << 40) // others read in the background
		for i := range 5 {
			before := m.keys.Load()
			w.make(dir, fmt.Sprint(name, i), meta.Regular)
			least = min(least, m.keys.Load()-before)
		}
		return least
	}
	plain := cost(out, "a")
	var in meta.Ino
	for i := range 50 {
		in = w.make(meta.RootIno, fmt.Sprint("d", i), meta.Directory)
		_, err := w.s.SetQuota(t.Context(), meta.Caller{}, in, meta.Usage{Bytes: 1 << 20, Inodes: 10})
		if err != nil {
			t.Fatal(err)
		}
		for q := (meta.Quota{Counting: true}); err == nil && q.Counting; {
			q, err = w.s.GetQuota(t.Context(), meta.Caller{}, in)
		}
	}
	if n := cost(out, "b"); n != plain {
		t.Errorf("%d keys where there is no quota, %d without any", n, plain)
	}
	if n := cost(in, "b"); n > plain+5 {
		t.Errorf("%d keys in a tree, %d outside", n, plain)
	}
}
