package msg

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// TestNoAllocationsPerRequest counts what both sides allocate, which is nothing once everything
// that is kept has been made.
func TestNoAllocationsPerRequest(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, p := range and(shmProvider(t)) {
		t.Run(p.name, func(t *testing.T) {
			large, rounds := p.some(1<<20), p.some(300)
			r, there := takeAndGive(t, p)
			*there = memory(t, r.sdom, large)
			here := memory(t, r.cdom, large)
			part := func(n int) *Memory {
				return contig(fabric.Sge{Reg: here.Reg, Buf: here.Buf[:n]})
			}
			useSlots(t, r, r.conn, 20000)
			ctx, rep := context.Background(), Reply{Body: make([]byte, 0, 64)}
			body := make([]byte, 8)
			for name, row := range map[string]struct {
				req  Request
				call func(req *Request) error
			}{
				"empty":          {Request{Body: body}, nil},
				"inline out":     {Request{Out: part(1000)}, nil},
				"inline in":      {Request{In: part(1000)}, nil},
				"eager":          {Request{Out: part(20000)}, nil},
				"rendezvous out": {Request{Out: part(large)}, nil},
				"rendezvous in":  {Request{In: part(large)}, nil},
				"one-way": {Request{Body: body}, func(req *Request) error {
					return r.conn.Send(ctx, req)
				}},
			} {
				if row.call == nil {
					row.call = func(req *Request) error { return r.conn.Call(ctx, req, &rep) }
				}
				run := func() {
					if err := row.call(&row.req); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
				for range rounds {
					run()
				}
				// A worker that is started when two requests meet, a timer, a provider that wakes a
				// sleeper through a socket may allocate now and then; one a request would be ours.
				// Nobody waits for a one-way message, so shm wakes somebody for each.
				limit := 0.5
				if p.name == "shm" && name == "one-way" {
					limit = 4
				}
				if n := alloctest.Mean(limit, rounds, run); n > limit {
					t.Errorf("%s: %.2f allocations a request", name, n)
				}
			}
		})
	}
}

// TestNoAllocationPerCall counts both sides, since they share the process.
func TestNoAllocationPerCall(t *testing.T) {
	r := newRig(t, tcpProvider(), answerer(), nil)
	ctx, req := context.Background(), Request{Body: make([]byte, 8)}
	var rep Reply
	one := func() {
		if err := r.conn.Call(ctx, &req, &rep); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		one()
	}
	if n := alloctest.PerRun(0, 500, one); n >= 1 && !raceEnabled {
		t.Fatalf("%v allocations per request", n)
	}
}

// takeAndGive connects to a server that pulls and pushes through one piece of memory, which the
// caller sets, and allocates nothing for it.
func takeAndGive(t *testing.T, p provider) (*rig, *fabric.Sge) {
	there := &fabric.Sge{}
	lists := make(chan []fabric.Sge, 64)
	for range cap(lists) {
		lists <- make([]fabric.Sge, 1)
	}
	r := newRig(t, p, HandlerFunc(func(ctx context.Context, c *Call) {
		one := <-lists
		defer func() { lists <- one }()
		one[0] = fabric.Sge{Reg: there.Reg, Buf: there.Buf[:max(c.OutLen(), c.InLen())]}
		var err error
		if c.OutLen() > 0 {
			err = c.Pull(ctx, 0, one)
		}
		if c.InLen() > 0 && err == nil {
			err = c.Push(ctx, 0, one)
		}
		if err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply(c.Body(), c.InLen())
	}), nil)
	return r, there
}
