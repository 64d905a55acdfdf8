package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// Histories: several clients with leases do things at the same time, and what each of them was
// answered must fit one order in which all of it happened at once, each between its call and its
// return. The names of one directory are one object, the content of a file another.

// step is an operation of a history.
type step struct {
	op      string
	name    string
	to      string
	content uint64
}

// seen is what was answered.
type seen struct {
	kind    errs.Kind
	names   string // of a listing, in order
	content uint64
}

// recorder collects a history.
type recorder struct {
	start time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

func (r *recorder) do(client int, in step, fn func() seen) {
	call := time.Since(r.start).Nanoseconds()
	out := fn()
	ret := time.Since(r.start).Nanoseconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out,
		Return: ret})
}

func (r *recorder) check(t *testing.T, m porcupine.Model, seed uint64) {
	t.Helper()
	switch porcupine.CheckOperationsTimeout(m, r.ops, time.Minute) {
	case porcupine.Illegal:
		slices.SortFunc(r.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, o := range r.ops {
			t.Logf("%8d-%8d client %d: %+v: %+v", o.Call/1000, o.Return/1000, o.ClientId, o.Input, o.Output)
		}
		t.Fatalf("seed %d: no order explains what was answered", seed)
	case porcupine.Unknown:
		t.Logf("seed %d: not decided in time", seed)
	}
}

// namesModel is a directory: its state is the list of its names, in order, with spaces between.
var namesModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(step), output.(seen)
		names := strings.Fields(state.(string))
		i, there := slices.BinarySearch(names, in.name)
		switch in.op {
		case "create":
			if out.kind == errs.Exists || there {
				return there && out.kind == errs.Exists, state
			}
			return out.kind == errs.OK, strings.Join(slices.Insert(names, i, in.name), " ")
		case "remove":
			if out.kind == errs.NotFound || !there {
				return !there && out.kind == errs.NotFound, state
			}
			return out.kind == errs.OK, strings.Join(slices.Delete(names, i, i+1), " ")
		case "stat":
			return there == (out.kind == errs.OK) && there != (out.kind == errs.NotFound), state
		case "list":
			return out.kind == errs.OK && out.names == state.(string), state
		}
		// rename
		if !there {
			return out.kind == errs.NotFound, state
		}
		if in.to != in.name {
			names = slices.Delete(names, i, i+1)
			if j, has := slices.BinarySearch(names, in.to); !has {
				names = slices.Insert(names, j, in.to)
			}
		}
		return out.kind == errs.OK, strings.Join(names, " ")
	},
}

// contentModel is a file of eight bytes.
var contentModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(step), output.(seen)
		if in.op == "write" {
			return out.kind == errs.OK, in.content
		}
		return out.kind == errs.OK && out.content == state.(uint64), state
	},
}

func nameStep(ctx context.Context, fs *FS, s step) (out seen) {
	var err error
	switch s.op {
	case "create":
		var f *File
		f, err = fs.OpenFile(ctx, "/d/"+s.name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
		if err == nil {
			err = f.Close(ctx)
		}
	case "remove":
		err = fs.Remove(ctx, "/d/"+s.name)
	case "rename":
		err = fs.Rename(ctx, "/d/"+s.name, "/d/"+s.to)
	case "stat":
		_, err = fs.Lstat(ctx, "/d/"+s.name)
	case "list": // one page, which is of one moment
		var dir meta.Attr
		var names []string
		var page []meta.Entry
		if dir, err = fs.Lstat(ctx, "/d"); err == nil {
			page, err = fs.ReadDirPage(ctx, *fs.opts.Cred, dir.Ino, 0, meta.DirPageMax, false)
		}
		for _, e := range page {
			names = append(names, e.Name)
		}
		slices.Sort(names)
		out.names = strings.Join(names, " ")
	}
	out.kind = errs.KindOf(err)
	return out
}

// randomStep chooses among few names, so that clients meet.
func randomStep(rng *rand.Rand) step {
	name := func() string { return fmt.Sprint("n", rng.IntN(3)) }
	switch n := rng.IntN(20); {
	case n < 4:
		return step{op: "create", name: name()}
	case n < 7:
		return step{op: "remove", name: name()}
	case n < 10:
		return step{op: "rename", name: name(), to: name()}
	case n < 17:
		return step{op: "stat", name: name()}
	}
	return step{op: "list"}
}

const (
	historySeeds   = 12
	historyClients = 3
	historySteps   = 25
)

// historyOptions are those of a service whose leases no client loses because the host is busy: one
// that is not heard of for as long as a lease may lose what it has written, and says so.
var historyOptions = store.Options{Lease: 10 * time.Minute, LeaseTime: 5 * time.Minute}

func TestHistoriesOfNames(t *testing.T) {
	first := rand.Uint64()
	t.Logf("seeds from %d", first)
	ctx := context.Background()
	for i := range uint64(historySeeds) {
		seed := first + i
		c := newCluster(t, 1, historyOptions)
		must(t, c.client(Options{}).Mkdir(ctx, "/d", 0o777))
		r := &recorder{start: time.Now()}
		var wg sync.WaitGroup
		for k := range historyClients {
			fs := c.client(Options{})
			for thread := range 2 {
				rng := rand.New(rand.NewPCG(seed, uint64(10*k+thread)))
				wg.Go(func() {
					for range historySteps {
						s := randomStep(rng)
						r.do(2*k+thread, s, func() seen { return nameStep(ctx, fs, s) })
						if rng.IntN(3) == 0 {
							time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
						}
					}
				})
			}
		}
		wg.Wait()
		r.check(t, namesModel, seed)
	}
}

func contentStep(ctx context.Context, fs *FS, w *File, s step) (out seen) {
	var buf [8]byte
	var err error
	if s.op == "write" {
		binary.BigEndian.PutUint64(buf[:], s.content)
		_, err = w.WriteAt(ctx, buf[:], 0)
		out.kind = errs.KindOf(err)
		return out
	}
	f, err := fs.Open(ctx, "/f")
	if err == nil {
		var n int
		if n, err = f.ReadAt(ctx, buf[:], 0); err == io.EOF && n == 0 {
			err = nil // nothing was ever written
		}
		if cerr := f.Close(ctx); err == nil {
			err = cerr
		}
	}
	out.kind, out.content = errs.KindOf(err), binary.BigEndian.Uint64(buf[:])
	return out
}

// TestHistoriesOfContent: some clients write the file, which takes it back and forth between them,
// or moves it out; others read it. One of them writes it through a handle that it opens anew each
// time.
func TestHistoriesOfContent(t *testing.T) {
	first := rand.Uint64()
	t.Logf("seeds from %d", first)
	ctx := context.Background()
	for i := range uint64(historySeeds) {
		seed := first + i
		c := newCluster(t, 1, historyOptions)
		r := &recorder{start: time.Now()}
		var wg sync.WaitGroup
		writers := 1 + int(i%2)
		touch(t, c.client(Options{}), "/f")
		for k := range historyClients {
			fs := c.client(Options{})
			rng := rand.New(rand.NewPCG(seed, uint64(k)))
			wg.Go(func() {
				var w *File
				for n := range historySteps {
					s := step{op: "read"}
					if k < writers && rng.IntN(2) == 0 {
						s = step{op: "write", content: uint64(k+1)<<32 | uint64(n)}
						if w == nil {
							var err error
							w, err = fs.OpenFile(ctx, "/f", os.O_RDWR, 0)
							must(t, err)
						}
					}
					r.do(k, s, func() seen { return contentStep(ctx, fs, w, s) })
					if w != nil && rng.IntN(4) == 0 {
						must(t, w.Close(ctx))
						w = nil
					}
					if rng.IntN(3) == 0 {
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
					}
				}
				if w != nil {
					must(t, w.Close(ctx))
				}
			})
		}
		wg.Wait()
		r.check(t, contentModel, seed)
	}
}
