package server_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/server"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/unifier"
	"github.com/sluice-storage/sluice/wire"
)

// sluggish is a store that takes a moment for everything, and allocates nothing for that.
type sluggish struct{ stripe.Engine }

func (s sluggish) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	time.Sleep(50 * time.Microsecond)
	return s.Engine.ReadSums(ctx, id, bufs, off, sums)
}

func (s sluggish) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, d stripe.Durability) error {
	time.Sleep(50 * time.Microsecond)
	return s.Engine.WriteSums(ctx, id, bufs, off, sums, stamps, d)
}

// queue is clients that ask for the same thing at the same time, again and again.
type queue struct {
	conn    *msg.Conn
	ask     []msg.Request
	replies []msg.Reply
	begin   []chan int
	over    sync.WaitGroup
	failed  error
	mu      sync.Mutex
}

func (q *queue) client(i int) {
	for n := range q.begin[i] {
		for range n {
			if err := q.conn.Call(context.Background(), &q.ask[i], &q.replies[i]); err != nil {
				q.mu.Lock()
				q.failed = err
				q.mu.Unlock()
			}
		}
		q.over.Done()
	}
}

// run has every client ask n times.
func (q *queue) run(n int) {
	q.over.Add(len(q.begin))
	for _, ch := range q.begin {
		ch <- n
	}
	q.over.Wait()
}

func newQueue(g *rig, clients int, request func(i int) msg.Request) *queue {
	conn, err := g.pool.Get(g.t.Context(), 1)
	g.check(err)
	q := &queue{conn: conn, replies: make([]msg.Reply, clients)}
	for i := range clients {
		q.ask = append(q.ask, request(i))
		q.begin = append(q.begin, make(chan int))
	}
	for i := range clients {
		go q.client(i)
	}
	g.t.Cleanup(func() {
		for _, ch := range q.begin {
			close(ch)
		}
	})
	return q
}

// TestNothingIsAllocatedForWaiting: requests that wait for a gate, for memory, for each other's
// claims, for pending writes or for the windows of transfers allocate as little as others. Each has
// a deadline, which is kept while it waits.
func TestNothingIsAllocatedForWaiting(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const size, clients = 512 << 10, 8
	few := server.Limits{DiskRequests: 1}
	for _, row := range []struct {
		name    string
		op      iod.Op
		bytes   int
		apart   int64 // how far one client's range is from the next one's
		how     iod.How
		durable bool
		limits  server.Limits
		dirty   int64 // bytes that may be pending
		waits   string
	}{
		{name: "direct reads at the disk", op: iod.OpRead, bytes: size, apart: size,
			how: iod.How{Mode: iod.Direct}, limits: few, waits: "gate_disk_waits"},
		{name: "direct writes at the disk", op: iod.OpWrite, bytes: size, apart: size,
			how: iod.How{Mode: iod.Direct}, limits: few, waits: "gate_disk_waits"},
		{name: "reads that are not cached", op: iod.OpRead, bytes: size, apart: size,
			how: iod.How{Policy: iod.PolicyNone}, limits: few, waits: "gate_disk_waits"},
		{name: "durable writes of one place", op: iod.OpWrite, bytes: 4096, durable: true,
			waits: "requests_write"},
		{name: "pending writes", op: iod.OpWrite, bytes: size, apart: size, dirty: 2 << 20,
			waits: "requests_write"},
		{name: "memory for writes", op: iod.OpWrite, bytes: size, apart: size,
			limits: server.Limits{Requests: 2}, waits: "gate_writes_waits"},
	} {
		t.Run(row.name, func(t *testing.T) {
			store, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			g := newRig(t, func(s *setup) {
				s.store, s.cfg.Limits = sluggish{store}, row.limits
				s.cache = unifier.Config{MemoryBytes: rigMemory, DirtyBytes: row.dirty,
					ReadaheadBytes: -1}
				s.cfg.WriteBack = row.dirty > 0
			})
			p := g.memory(clients * size)
			tg := g.target(1, capability.Read|capability.Write)
			tg.How = row.how // what is written past the cache is not cached
			write(t, g.remote, tg, 0, make([]byte, clients*size))
			q := newQueue(g, clients, func(i int) msg.Request {
				a := iod.Args{Access: seg.Contig(int64(i)*row.apart, int64(row.bytes))}
				if row.durable {
					a.Durability = stripe.Durable
				}
				b := p[i*size:][:row.bytes]
				req := msg.Request{Op: uint16(row.op), Stamp: tg.Stamp}
				if row.op == iod.OpWrite {
					a.Sums, req.Out = sumsOf(b), view(b)
				} else {
					req.In = view(b)
				}
				var e wire.Enc
				iod.AppendRequest(&e, row.op, &tg, &a)
				req.Body = e.B
				return req
			})
			q.check(t, g, row.waits)
		})
	}
}

// check counts what is allocated for a request. What is kept for the next ones has been made
// before.
func (q *queue) check(t *testing.T, g *rig, waits string) {
	const each, limit = 50, 0.1
	q.run(each)
	before := g.counts()[waits]
	requests := float64(each * len(q.ask))
	least := alloctest.Mean(limit*requests, 1, func() { q.run(each) }) / requests
	if q.failed != nil {
		t.Fatal(q.failed)
	}
	waited := g.counts()[waits] - before
	t.Logf("%.3f allocations a request, %s: %d", least, waits, waited)
	if least > limit {
		t.Errorf("%.2f allocations a request", least)
	}
	if waited < each {
		t.Errorf("%s: %d: nobody waits", waits, waited)
	}
	runtime.KeepAlive(q)
}
