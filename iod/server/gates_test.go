package server_test

import (
	"context"
	"sort"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// TestGatesOfARequest counts the gates that a request passes, from its caller to the store: the
// client's credits, the server's admission, and the disk where it is needed.
func TestGatesOfARequest(t *testing.T) {
	g := newRig(t, writesBack)
	const size = 1 << 20
	p := g.memory(size)
	conn, err := g.pool.Get(t.Context(), 1)
	g.check(err)
	tg := g.target(1, capability.Read|capability.Write)
	write(t, g.remote, tg, 0, make([]byte, size))
	passed := func() map[string]uint64 {
		all := map[string]uint64{"credits": conn.Credits().Passed, "calls": g.listen.Stats().Admitted}
		for name, n := range g.counts() {
			if gate, ok := strings.CutSuffix(name, "_passed"); ok {
				all[gate] = n
			}
		}
		return all
	}
	for _, row := range []struct {
		name string
		op   iod.Op
		at   int64
		dur  stripe.Durability
		want string
	}{
		{"cached read", iod.OpRead, 0, stripe.Volatile, "credits gate_hits"},
		{"other read", iod.OpRead, 100 << 20, stripe.Volatile, "credits gate_disk gate_misses"},
		{"write", iod.OpWrite, 0, stripe.Volatile, "credits gate_writes"},
		{"durable write", iod.OpWrite, 0, stripe.Durable, "credits gate_disk gate_writes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := iod.Args{Access: seg.Contig(row.at, size), Durability: row.dur}
			req := msg.Request{Op: uint16(row.op), Stamp: tg.Stamp, In: view(p)}
			if row.op == iod.OpWrite {
				a.Sums, req.In, req.Out = sumsOf(p), nil, view(p)
			}
			var e wire.Enc
			iod.AppendRequest(&e, row.op, &tg, &a)
			req.Body = e.B
			before := passed()
			g.check(conn.Call(context.Background(), &req, &msg.Reply{}))
			var gates []string
			for name, n := range passed() {
				for range n - before[name] {
					gates = append(gates, name)
				}
			}
			sort.Strings(gates)
			if got := strings.Join(gates, " "); got != row.want {
				t.Errorf("it passes %s, want %s", got, row.want)
			}
		})
	}
}
