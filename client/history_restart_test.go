package client

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestHistoriesOverRestarts: names and contents over the network, with a metadata service that is
// restarted in the middle: nobody is answered what no order explains, nor an error.
func TestHistoriesOverRestarts(t *testing.T) {
	first := rand.Uint64()
	t.Logf("seeds from %d", first)
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	t.Run("names", func(t *testing.T) {
		for i := range seeds {
			c := newWired(t, 1)
			must(t, c.dial("").Mkdir(context.Background(), "/d", 0o777))
			overRestart(t, c, first+i, namesModel,
				func(fs *FS, _ int, rng *rand.Rand, do func(step, func() seen)) {
					s := randomStep(rng)
					do(s, func() seen { return nameStep(context.Background(), fs, s) })
				})
		}
	})
	t.Run("content", func(t *testing.T) {
		for i := range seeds {
			c := newWired(t, 1)
			touch(t, c.dial(""), "/f")
			n := uint64(0)
			var mu sync.Mutex
			overRestart(t, c, first+i, contentModel,
				func(fs *FS, who int, rng *rand.Rand, do func(step, func() seen)) {
					if rng.IntN(2) == 0 {
						s := step{op: "read"}
						do(s, func() seen { return contentStep(context.Background(), fs, nil, s) })
						return
					}
					mu.Lock()
					n++
					s := step{op: "write", content: uint64(who+1)<<32 | n}
					mu.Unlock()
					do(s, func() seen { return openWriteClose(fs, s.content, rng.IntN(3) == 0) })
				})
		}
	})
}

// openWriteClose writes the file through a handle of its own.
func openWriteClose(fs *FS, v uint64, sync bool) seen {
	ctx := context.Background()
	f, err := fs.OpenFile(ctx, "/f", os.O_RDWR, 0)
	if err != nil {
		return seen{kind: errs.KindOf(err)}
	}
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], v)
	_, err = f.WriteAt(ctx, buf[:], 0)
	if err == nil && sync {
		err = f.Sync(ctx)
	}
	if cerr := f.Close(ctx); err == nil {
		err = cerr
	}
	return seen{kind: errs.KindOf(err)}
}

// overRestart has clients do steps while the service is restarted.
func overRestart(t *testing.T, c *wired, seed uint64, m porcupine.Model,
	one func(fs *FS, who int, rng *rand.Rand, do func(step, func() seen))) {
	t.Helper()
	r := &recorder{start: time.Now()}
	var wg sync.WaitGroup
	for k := range historyClients {
		fs := c.dial("")
		rng := rand.New(rand.NewPCG(seed, uint64(k)))
		wg.Go(func() {
			for range historySteps {
				one(fs, k, rng, func(s step, fn func() seen) { r.do(k, s, fn) })
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for range 2 {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		c.restartMeta()
	}
	wg.Wait()
	r.check(t, m, seed)
}

// lockModel is an exclusive lock: its state is who has it, from 1 on.
var lockModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(step), output.(seen)
		owner := state.(uint64)
		switch {
		case in.op == "unlock":
			return out.kind == errs.OK && owner == in.content, uint64(0)
		case out.kind == errs.OK:
			return owner == 0, in.content
		}
		return out.kind == errs.Busy && owner != 0 && owner != in.content, state
	},
}

// TestHistoriesOfLocks: whoever gets a lock was the only one to have it, over restarts, too.
func TestHistoriesOfLocks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newWiredWith(t, 1, false, store.Options{})
	touch(t, c.dial(""), "/f")
	a, err := c.dial("").Stat(context.Background(), "/f")
	must(t, err)
	has, left := make([]bool, historyClients), make([]int, historyClients)
	overRestart(t, c, seed, lockModel,
		func(fs *FS, who int, rng *rand.Rand, do func(step, func() seen)) {
			if left[who]++; left[who] == historySteps && !has[who] {
				return // nobody ends with the lock, others may wait for it
			}
			ctx := context.Background()
			l := lockOf(a.Ino, meta.LockExclusive, 0, 0)
			s := step{op: "lock", content: uint64(who + 1)}
			if has[who] {
				s.op = "unlock"
				do(s, func() seen { return seen{kind: errs.KindOf(fs.Unlock(ctx, l))} })
				has[who] = false
				return
			}
			do(s, func() seen {
				err := fs.Lock(ctx, l, rng.IntN(2) == 0)
				has[who] = err == nil
				return seen{kind: errs.KindOf(err)}
			})
		})
}
