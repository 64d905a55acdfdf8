package server_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
)

// writer is the target of a file's writer of an epoch. says is the epoch that its requests name.
func (g *rig) writer(file uint64, epoch, says uint32) iod.Target {
	t := g.sign(capability.Capability{File: file, Gen: 1, Rights: capability.Read | capability.Write,
		Session: uint64(epoch), Server: 1, Layout: 3, Expiry: g.now().Add(time.Minute), Epoch: epoch})
	t.Stamp.Epoch = says
	return t
}

// depose fences the writers of a file below an epoch.
func (g *rig) depose(file uint64, epoch uint32) error {
	t := g.target(file, capability.Manage)
	t.Stamp.Epoch = epoch
	return g.remote.Fence(g.t.Context(), t)
}

// put is one write of a writer, as it is.
func (g *rig) put(t iod.Target, p []byte, d stripe.Durability) error {
	a := iod.Args{Access: seg.Contig(0, int64(len(p))), Durability: d}
	t.How.NoSums = true
	_, err := g.ask(iod.OpWrite, t, a, view(p), nil)
	return err
}

func writeBack(s *setup) { s.cfg.WriteBack, s.cache.DirtyBytes = true, 8<<20 }

// TestDeposedWriterIsRefused: whatever it asks for, and after a restart of the server too.
func TestDeposedWriterIsRefused(t *testing.T) {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	old, page := bytes.Repeat([]byte{1}, 4096), bytes.Repeat([]byte{2}, 4096)
	for round := range 2 {
		g := newRig(t, writeBack, func(s *setup) { s.store = store })
		first, second := g.writer(1, 1, 1), g.writer(1, 2, 2)
		if round == 0 {
			g.check(g.put(first, old, stripe.Volatile))
			g.check(g.depose(1, 2))
			got := make([]byte, len(old))
			g.check(store.ReadAt(t.Context(), first.Object, [][]byte{got}, 0))
			if !bytes.Equal(got, old) {
				t.Fatal("what was acknowledged before is not in the store behind the fence")
			}
			g.check(g.put(second, page, stripe.Volatile))
			g.check(g.depose(1, 2)) // once more: nothing changes
		}
		for name, err := range map[string]error{
			"write":         g.put(first, old, stripe.Volatile),
			"durable write": g.put(first, old, stripe.Durable),
			"punch":         second2(g.ask(iod.OpPunch, first, iod.Args{Len: 4096}, nil, nil)),
			"reserve":       second2(g.ask(iod.OpReserve, first, iod.Args{Len: 4096}, nil, nil)),
		} {
			if errs.KindOf(err) != errs.Fenced {
				t.Errorf("round %d, %s of a deposed writer: %v", round, name, err)
			}
		}
		if err := g.put(g.writer(1, 1, 2), old, stripe.Volatile); errs.KindOf(err) != errs.Perm {
			t.Errorf("a writer that claims another epoch than it was given: %v", err)
		}
		if got := read(t, g.remote, second, 0, 4096); !bytes.Equal(got, page) {
			t.Errorf("round %d: the deposed writer has changed something", round)
		}
		read(t, g.remote, first, 0, 4096) // reading is not refused
		g.close()
	}
}

func second2(_ []byte, err error) error { return err }

// TestDeposedUnderLoad: a writer writes as fast as it can while it is deposed; what its successor
// writes stays, in the cache and in the store.
func TestDeposedUnderLoad(t *testing.T) {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	g := newRig(t, writeBack, func(s *setup) { s.store = store })
	page := bytes.Repeat([]byte{9}, 8192)
	for epoch := uint32(1); epoch < 12; epoch++ {
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for i := range 4 {
			wg.Go(func() {
				p := bytes.Repeat([]byte{byte(i + 1)}, 8192)
				for ctx.Err() == nil {
					if k := errs.KindOf(g.put(g.writer(1, epoch, epoch), p, stripe.Volatile)); k == errs.Fenced {
						return
					} else if k != errs.OK {
						t.Errorf("epoch %d: %v", epoch, k)
						return
					}
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
		g.check(g.depose(1, epoch+1))
		next := g.writer(1, epoch+1, epoch+1)
		g.check(g.put(next, page, stripe.Volatile))
		stop()
		wg.Wait()
		if got := read(t, g.remote, next, 0, 8192); !bytes.Equal(got, page) {
			t.Fatalf("epoch %d: the cache has bytes of a deposed writer", epoch)
		}
		_, err := g.remote.Sync(t.Context(), next)
		g.check(err)
		got := make([]byte, 8192)
		g.check(store.ReadAt(t.Context(), next.Object, [][]byte{got}, 0))
		if !bytes.Equal(got, page) {
			t.Fatalf("epoch %d: the store has bytes of a deposed writer", epoch)
		}
	}
}
