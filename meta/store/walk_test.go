package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
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
	_ = w.s.Rename(w.t.Context(), meta.Caller{}, from, name, to, other, flags)
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
