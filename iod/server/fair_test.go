package server_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/iod"
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

// contest is two clients who ask for what is on a slow disk.
type contest struct {
	*rig
	write bool
	how   iod.How
	next  atomic.Int64
	done  [2]atomic.Int64
	stop  chan struct{}
	wg    sync.WaitGroup
}

const contestBytes = 64 << 10

// client keeps so many requests under way.
func (c *contest) client(who, outstanding int) (leave func()) {
	var conns []func()
	var conn *msg.Conn
	for i := range outstanding {
		if i%16 == 0 { // so many on each
			made, end := c.dial()
			conn, conns = made, append(conns, end)
		}
		conn := conn
		c.wg.Go(func() {
			for c.once(who, conn) {
				c.done[who].Add(1)
			}
		})
	}
	return func() {
		for _, end := range conns {
			end()
		}
	}
}

// once makes one request; false when it is enough.
func (c *contest) once(who int, conn *msg.Conn) bool {
	select {
	case <-c.stop:
		return false
	default:
	}
	tg := c.sign(capability.Capability{File: uint64(who + 1), Gen: 1, Session: uint64(who + 1),
		Rights: capability.Read | capability.Write, Server: 1, Expiry: c.now().Add(time.Minute)})
	tg.How = c.how
	p := make([]byte, contestBytes)
	a := iod.Args{Access: seg.Contig(c.next.Add(1)*contestBytes, contestBytes)}
	var err error
	if c.write {
		a.Sums = sumsOf(p)
		_, err = ask(c.t.Context(), conn, iod.OpWrite, tg, a, view(p), nil)
	} else {
		_, err = ask(c.t.Context(), conn, iod.OpRead, tg, a, nil, view(p))
	}
	if err != nil {
		c.t.Error(err)
	}
	return err == nil
}

// await returns how many each has done when both together have done n.
func (c *contest) await(n int64) [2]int64 {
	for c.done[0].Load()+c.done[1].Load() < n && !c.t.Failed() {
		time.Sleep(100 * time.Microsecond)
	}
	return [2]int64{c.done[0].Load(), c.done[1].Load()}
}

// flood has one client with many requests at once and one with few. It tells what part of a fair
// share the latter gets.
func flood(t *testing.T, write bool, how iod.How) float64 {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	slow := &slowDisk{Engine: store, turn: make(chan struct{}, 1)}
	g := newRig(t, func(s *setup) {
		s.store = slow
		s.cache.ReadaheadBytes = -1
	})
	defer g.close()
	c := &contest{rig: g, write: write, how: how, stop: make(chan struct{})}
	const many, few = 64, 4
	slow.ready = func(here int64) bool {
		select {
		case <-c.stop:
			return true
		default:
		}
		n := g.counts()
		return here+int64(n["gate_misses_waiting"]+n["gate_writes_waiting"]+n["gate_direct_waiting"]+
			n["gate_disk_waiting"]) == many+few
	}
	defer c.client(0, many)()
	defer c.client(1, few)()
	before := c.await(100) // the first ones came while the other client was not there yet
	after := c.await(220)
	close(c.stop)
	c.wg.Wait()
	modest := float64(after[1] - before[1])
	return modest / ((modest + float64(after[0]-before[0])) / 2)
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
			share := flood(t, c.write, c.how)
			t.Logf("%.0f %% of a fair share", share*100)
			if share < 0.8 {
				t.Errorf("the modest client gets %.0f %% of a fair share", share*100)
			}
		})
	}
}
