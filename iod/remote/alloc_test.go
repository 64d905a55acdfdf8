package remote

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/internal/alloctest"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/mem/regcache"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// still is a server that allocates nothing: it takes everything and gives zeroes.
type still struct {
	buf  []byte
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

// calm is a Remote whose server is a still one.
type calm struct {
	*Remote
	target iod.Target
	access seg.Access
	memory *msg.Memory // of n bytes
}

func newCalm(t testing.TB, n int, opts Options) *calm {
	return newCalmBy(t, n, opts, func(d fabric.Domain) fabric.Domain { return d })
}

// newCalmBy has the client see its domain by other eyes.
func newCalmBy(t testing.TB, n int, opts Options, see func(fabric.Domain) fabric.Domain) *calm {
	s := &still{buf: make([]byte, n)}
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
	near, err := msg.NewNode(msg.Options{Domain: see(dom)})
	must(t, err)
	pool := peer.NewPool(near, func(context.Context, uint32) (string, error) { return l.Addr(), nil })
	arena, err := mem.NewArena(n, nil) // registered, or the provider would do it for each request
	must(t, err)
	must(t, near.Attach(arena))
	r := New(pool, opts)
	t.Cleanup(func() {
		must(t, r.Close())
		must(t, pool.Close())
		must(t, near.Close())
		must(t, l.Close(context.Background()))
		must(t, node.Close())
		must(t, arena.Close())
		must(t, dom.Close())
	})
	return &calm{Remote: r, memory: memory(arena.Bytes()[:n]), access: seg.Contig(0, int64(n)),
		target: iod.Target{Server: 1, Object: stripe.ObjectID{File: 1, Gen: 1},
			Stamp: wire.Stamp{Session: 1, Gen: 1}}}
}

func (c *calm) write(d stripe.Durability) error {
	_, err := c.Write(context.Background(), c.target, c.access, c.memory, d)
	return err
}

func (c *calm) read() error {
	_, err := c.Read(context.Background(), c.target, c.access, c.memory)
	return err
}

func (c *calm) sync() error {
	_, err := c.Sync(context.Background(), c.target)
	return err
}

// TestNothingIsAllocated: neither per kept write, nor per durable one, nor per sync or read.
func TestNothingIsAllocated(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := newCalm(t, 16<<10, Options{KeepMax: time.Hour, RetainBytes: 8 << 20})
	ops := map[string]func() error{
		"write":         func() error { return r.write(stripe.Volatile) },
		"durable write": func() error { return r.write(stripe.Durable) },
		"read":          r.read,
		"write and sync": func() error {
			if err := r.write(stripe.Volatile); err != nil {
				return err
			}
			return r.sync()
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
		if got := alloctest.PerRun(0, 500, run); got > 0 {
			t.Errorf("%s: %.0f allocations", name, got)
		}
	}
}

// strict is a domain that moves registered memory only.
type strict struct{ fabric.Domain }

func (d strict) Caps() fabric.Caps {
	caps := d.Domain.Caps()
	caps.AnyMemory, caps.RegistersAny = false, true
	return caps
}

// TestNothingIsAllocatedForRegisteredMemory: nor is anything copied.
func TestNothingIsAllocatedForRegisteredMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var cache *regcache.Cache
	see := func(d fabric.Domain) fabric.Domain {
		var err error
		d = strict{d}
		cache, err = regcache.New(d, regcache.Options{})
		must(t, err)
		return d
	}
	r := newCalmBy(t, 1<<20, Options{RetainBytes: -1,
		Buffers:       func() *mem.User { return nil },
		Registrations: func(fabric.Domain) *regcache.Cache { return cache },
	}, see)
	t.Cleanup(func() { must(t, cache.Close()) })
	r.memory = memory(make([]byte, 1<<20))
	before := mem.Copies()[mem.CopyCaller]
	for name, op := range map[string]func() error{
		"write": func() error { return r.write(stripe.Durable) }, "read": r.read,
	} {
		run := func() { must(t, op()) }
		for range 20 {
			run()
		}
		if got := alloctest.PerRun(0, 50, run); got > 0 {
			t.Errorf("%s: %.0f allocations", name, got)
		}
	}
	if s := cache.Stats(); s.Hits == 0 || s.Misses != 1 || s.Copied != 0 {
		t.Errorf("%+v", s)
	}
	if now := mem.Copies()[mem.CopyCaller]; now != before {
		t.Errorf("%d bytes were copied", now.Bytes-before.Bytes)
	}
}

// BenchmarkWrite compares what keeping and summing cost: durable writes leave the caller's memory.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{4 << 10, 1 << 20} {
		for _, way := range []struct {
			name   string
			d      stripe.Durability
			noSums bool
		}{{"kept", stripe.Volatile, false}, {"kept,nosums", stripe.Volatile, true},
			{"durable", stripe.Durable, false}, {"durable,nosums", stripe.Durable, true}} {
			b.Run(fmt.Sprintf("%dK/%s", n>>10, way.name), func(b *testing.B) {
				r := newCalm(b, n, Options{})
				r.target.How.NoSums = way.noSums
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					must(b, r.write(way.d))
				}
			})
		}
	}
}
