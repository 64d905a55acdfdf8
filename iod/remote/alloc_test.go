package remote

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// still is a server that allocates nothing: it takes everything and gives zeroes.
type still struct {
	buf  [64 << 10]byte
	sges [1]fabric.Sge
	mark []byte
	data []byte
}

func (s *still) Serve(ctx context.Context, c *msg.Call) {
	switch iod.Op(c.Header().Op) {
	case iod.OpWrite:
		s.sges[0].Buf = s.buf[:c.OutLen()]
		_ = c.Pull(ctx, 0, s.sges[:])
		_ = c.Reply(s.mark, 0)
	case iod.OpRead:
		s.sges[0].Buf = s.buf[:c.InLen()]
		clear(s.sges[0].Buf)
		_ = c.Push(ctx, 0, s.sges[:])
		_ = c.Reply(s.data, c.InLen())
	default:
		_ = c.Reply(s.mark, 0)
	}
}

// TestNothingIsAllocated: neither per kept write, nor per durable one, nor per sync or read.
func TestNothingIsAllocated(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const n = 16 << 10
	s := &still{}
	var mark, data wire.Enc
	iod.AppendMark(&mark, iod.Mark{Verifier: 5})
	iod.AppendData(&data, iod.Mark{Verifier: 5}, sumsOf(make([]byte, n)))
	s.mark, s.data = mark.B, data.B
	dom, err := tcp.Open(tcp.Options{Linger: 50 * time.Millisecond})
	must(t, err)
	node, err := msg.NewNode(msg.Options{Domain: dom})
	must(t, err)
	l, err := node.Serve("127.0.0.1:0", s, msg.ServeOptions{})
	must(t, err)
	pool := msg.NewPool(node, func(context.Context, uint32) (string, error) { return l.Addr(), nil })
	arena, err := mem.NewArena(n, nil) // registered, or the provider would do it for each request
	must(t, err)
	must(t, node.Attach(arena))
	r := New(pool, Options{KeepMax: time.Hour, RetainBytes: 8 << 20})
	defer func() {
		must(t, r.Close())
		must(t, pool.Close())
		must(t, l.Close(context.Background()))
		must(t, node.Close())
		must(t, arena.Close())
		must(t, dom.Close())
	}()
	ctx := context.Background()
	tg := iod.Target{Server: 1, Object: stripe.ObjectID{File: 1, Gen: 1},
		Stamp: wire.Stamp{Session: 1, Gen: 1}}
	m, a := memory(arena.Bytes()[:n]), seg.Contig(0, n)
	ops := map[string]func() error{
		"write": func() error { _, err := r.Write(ctx, tg, a, m, stripe.Volatile); return err },
		"durable write": func() error {
			_, err := r.Write(ctx, tg, a, m, stripe.Durable)
			return err
		},
		"read": func() error { _, err := r.Read(ctx, tg, a, m); return err },
		"write and sync": func() error {
			if _, err := r.Write(ctx, tg, a, m, stripe.Volatile); err != nil {
				return err
			}
			_, err := r.Sync(ctx, tg)
			return err
		},
	}
	for name, op := range ops {
		run := func() {
			if err := op(); err != nil {
				t.Fatal(err)
			}
		}
		for range 1500 { // until all memory of kept writes has been used
			run()
		}
		// The mean is rounded down: a sync of old objects, now and then, allocates a little.
		if got := testing.AllocsPerRun(500, run); got > 0 {
			t.Errorf("%s: %.0f allocations", name, got)
		}
	}
}
