package server_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/wire"
)

// slowDisk does one request after the other, each when all that the clients have wait for it, here
// or at a gate: it is slower than they are, however busy the host is.
type slowDisk struct {
	stripe.Engine
	turn  chan struct{}
	here  atomic.Int64
	ready func(here int64) bool
}

func (d *slowDisk) work() {
	d.here.Add(1)
	d.turn <- struct{}{}
	for !d.ready(d.here.Load()) {
		time.Sleep(50 * time.Microsecond)
	}
	d.here.Add(-1)
	<-d.turn
}

func (d *slowDisk) ReadAt(ctx context.Context, id stripe.ObjectID, b [][]byte, off int64) error {
	d.work()
	return d.Engine.ReadAt(ctx, id, b, off)
}

func (d *slowDisk) ReadSums(ctx context.Context, id stripe.ObjectID, b [][]byte, off int64,
	sums []uint32) error {
	d.work()
	return d.Engine.ReadSums(ctx, id, b, off, sums)
}

func (d *slowDisk) WriteAt(ctx context.Context, id stripe.ObjectID, b [][]byte, off int64,
	st wire.Stamp, dur stripe.Durability) error {
	d.work()
	return d.Engine.WriteAt(ctx, id, b, off, st, dur)
}

func (d *slowDisk) WriteSums(ctx context.Context, id stripe.ObjectID, b [][]byte, off int64,
	sums []uint32, st []wire.Stamp, dur stripe.Durability) error {
	d.work()
	return d.Engine.WriteSums(ctx, id, b, off, sums, st, dur)
}

// flood has two clients ask for what is on a slow disk, one of them with many requests at once. It
// tells what part of a fair share the other one gets.
func flood(t *testing.T, write bool, how iod.How, d server.Defects) float64 {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	slow := &slowDisk{Engine: store, turn: make(chan struct{}, 1)}
	g := newRig(t, func(s *setup) {
		s.store, s.cfg.Defects = slow, d
		s.cache.ReadaheadBytes = -1
	})
	defer g.close()
	const size = 64 << 10
	ctx, sums := t.Context(), sumsOf(make([]byte, size))
	var done [2]atomic.Int64
	var next atomic.Int64
	const many, few = 64, 4
	stop := make(chan struct{})
	slow.ready = func(here int64) bool {
		select {
		case <-stop:
			return true
		default:
		}
		c := g.counts()
		return here+int64(c["gate_misses_waiting"]+c["gate_writes_waiting"]+c["gate_direct_waiting"]+
			c["gate_disk_waiting"]) == many+few
	}
	var wg sync.WaitGroup
	for who, outstanding := range []int{many, few} {
		var conn *msg.Conn
		for i := range outstanding {
			if i%16 == 0 { // so many fit on each
				c, leave := g.dial()
				defer leave()
				conn = c
			}
			conn := conn
			wg.Go(func() {
				tg := g.sign(capability.Capability{File: uint64(who + 1), Gen: 1, Session: uint64(who + 1),
					Rights: capability.Read | capability.Write, Server: 1, Expiry: g.now().Add(time.Minute)})
				tg.How = how
				p := make([]byte, size)
				for {
					select {
					case <-stop:
						return
					default:
					}
					access := seg.Contig(next.Add(1)*size, size)
					var err error
					if write {
						_, err = ask(ctx, conn, iod.OpWrite, tg, iod.Args{Access: access, Sums: sums}, view(p), nil)
					} else {
						_, err = ask(ctx, conn, iod.OpRead, tg, iod.Args{Access: access}, nil, view(p))
					}
					if err != nil {
						t.Error(err)
						return
					}
					done[who].Add(1)
				}
			})
		}
	}
	count := func(n int64) [2]int64 {
		for done[0].Load()+done[1].Load() < n && !t.Failed() {
			time.Sleep(100 * time.Microsecond)
		}
		return [2]int64{done[0].Load(), done[1].Load()}
	}
	before := count(100) // the first ones came while the other client was not there yet
	after := count(300)
	modest := float64(after[1] - before[1])
	all := modest + float64(after[0]-before[0])
	close(stop)
	wg.Wait()
	return modest / (all / 2)
}

// TestAFloodDoesNotDrownOthers: one client has 64 requests under way, the other one 4.
func TestAFloodDoesNotDrownOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		write bool
		how   iod.How
	}{
		{"cached reads", false, iod.How{}},
		{"direct reads", false, iod.How{Mode: iod.Direct, ChunkBytes: 64 << 10}},
		{"writes", true, iod.How{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			share := flood(t, c.write, c.how, server.Defects{})
			t.Logf("%.0f %% of a fair share", share*100)
			if share < 0.8 {
				t.Errorf("the modest client gets %.0f %% of a fair share", share*100)
			}
		})
	}
	if share := flood(t, false, iod.How{}, server.Defects{Unfair: true}); share > 0.8 {
		t.Errorf("nothing keeps the flood back, and yet there is a share of %.2f", share)
	}
}
