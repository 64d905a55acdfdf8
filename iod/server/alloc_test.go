package server_test

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// TestNothingIsAllocatedPerRequest counts what client and server allocate together over real tcp,
// once everything that is kept has been made.
func TestNothingIsAllocatedPerRequest(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	g := newRig(t)
	const size = 1 << 20
	p := g.memory(size)
	conn, err := g.pool.Get(t.Context(), 1)
	g.check(err)
	base := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, base, 0, make([]byte, 2*size))
	pieces := seg.List([]seg.Piece{{Off: 0, Len: 4096}, {Off: 9e4, Len: 4096}, {Off: 2e5, Len: 4096}})
	for _, row := range []struct {
		name   string
		op     iod.Op
		access seg.Access
		how    iod.How
		limit  float64
	}{
		{"read 4k", iod.OpRead, seg.Contig(8192, 4096), iod.How{}, 0.5},
		{"read 1m", iod.OpRead, seg.Contig(0, size), iod.How{}, 0.5},
		{"read list", iod.OpRead, pieces, iod.How{}, 0.5},
		{"write 4k", iod.OpWrite, seg.Contig(8192, 4096), iod.How{}, 0.5},
		{"write 1m", iod.OpWrite, seg.Contig(0, size), iod.How{}, 0.5},
		{"write list", iod.OpWrite, pieces, iod.How{}, 0.5},
		{"direct write 1m", iod.OpWrite, seg.Contig(size, size), iod.How{Mode: iod.Direct}, 0.5},
		{"direct read 1m", iod.OpRead, seg.Contig(size, size), iod.How{Mode: iod.Direct}, 0.5},
	} {
		tg := base
		tg.How = row.how
		n := row.access.Len()
		a := iod.Args{Access: row.access, Durability: stripe.Volatile}
		req := msg.Request{Op: uint16(row.op), Stamp: tg.Stamp}
		if row.op == iod.OpWrite {
			a.Sums, req.Out = sumsOf(p[:n]), view(p[:n])
		} else {
			req.In = view(p[:n])
		}
		var e wire.Enc
		iod.AppendRequest(&e, row.op, &tg, &a)
		req.Body = e.B
		rep, ctx := msg.Reply{Body: make([]byte, 0, 1024)}, context.Background()
		run := func() {
			if err := conn.Call(ctx, &req, &rep); err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
		}
		for range 100 {
			run()
		}
		least := alloctest.Mean(row.limit, 200, run)
		t.Logf("%s: %.2f", row.name, least)
		if least > row.limit {
			t.Errorf("%s: %.2f allocations a request", row.name, least)
		}
	}
}

// memory is known to the client's network: what is not is made known with every request.
func (g *rig) memory(n int) []byte {
	arena, err := mem.NewArena(n, nil)
	g.check(err)
	g.check(g.node.Attach(arena))
	g.t.Cleanup(func() {
		g.node.Detach(arena)
		g.check(arena.Close())
	})
	return arena.Bytes()[:n]
}
