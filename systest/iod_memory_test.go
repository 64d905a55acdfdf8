package systest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

const (
	soakMemory  = 128 << 20
	soakRuntime = 60 << 20 // what a server may use beside its bound: the program and its runtime
	soakSpan    = 96 << 20 // of each client's file: together much more than the cache
	soakClients = 6
	soakDepth   = 4 // requests of each client at a time
)

// TestIodMemoryBound makes mixed requests of all sizes and modes and compares the most memory that
// the server has ever used with its one knob. With SLUICE_SOAK they are ten million;
// SLUICE_IOD_REQUESTS says another number.
func TestIodMemoryBound(t *testing.T) {
	requests := int64(envInt("SLUICE_IOD_REQUESTS", 40_000))
	if os.Getenv("SLUICE_SOAK") != "" {
		requests = int64(envInt("SLUICE_IOD_REQUESTS", 10_000_000))
	}
	s := startIod(t, "--memory", fmt.Sprint(soakMemory), "--write-back")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	began := time.Now()
	var done, bytes atomic.Int64
	var all sync.WaitGroup
	for i := range soakClients * soakDepth {
		client := uint64(i / soakDepth)
		var v *visitor
		if i%soakDepth == 0 {
			v = s.join(client%3 == 0)
			for range soakDepth {
				g := &glutton{s: s, v: v, session: 500 + client,
					rng: rand.New(rand.NewPCG(seed, uint64(i)+rand.Uint64N(1<<30)))}
				all.Go(func() {
					for done.Add(1) <= requests && !t.Failed() {
						n, err := g.step(t.Context())
						if err != nil {
							t.Errorf("client %d: %v", client, err)
						}
						bytes.Add(n)
					}
				})
			}
		}
	}
	all.Wait()
	pid := s.pid()
	most := memoryOf(t, pid, "VmHWM") + memoryOf(t, pid, "HugetlbPages")
	t.Logf("%d requests, %d MiB in %v: VmHWM and huge pages %d MiB, bound %d MiB + %d MiB", requests,
		bytes.Load()>>20, time.Since(began).Round(time.Millisecond), most>>20, soakMemory>>20,
		soakRuntime>>20)
	if most > soakMemory+soakRuntime {
		t.Errorf("the server has used %d MiB, its bound is %d MiB + %d MiB", most>>20,
			soakMemory>>20, soakRuntime>>20)
	}
	if st, err := s.state(); err != nil || st.Processes[len(st.Processes)-1].Restarts > 0 {
		t.Errorf("the server did not live through it: %+v, %v", st.Processes, err)
	}
}

// glutton makes random requests: mostly small, some as large as they come, in every mode.
type glutton struct {
	s       *ioServer
	v       *visitor
	session uint64
	rng     *rand.Rand
	buf     []byte
}

func (g *glutton) step(ctx context.Context) (int64, error) {
	id := stripe.ObjectID{File: 1<<40 + g.session, Gen: 1}
	tg := g.s.target(g.session, id, capability.Read|capability.Write, 0)
	tg.How.Mode = iod.Mode(g.rng.IntN(3))
	n := g.size()
	if g.buf == nil {
		g.buf = make([]byte, iod.TransferMax)
	}
	at := seg.Contig(g.rng.Int64N(soakSpan-n), n)
	if g.rng.IntN(2) == 0 {
		at = seg.Contig(at.Span().Off&^4095, n)
	}
	if n > 64 && g.rng.IntN(8) == 0 {
		at = seg.Strided(seg.Vector{Off: g.rng.Int64N(1 << 20), Block: n / 8,
			Dims: []seg.Dim{{Count: 8, Stride: n}}})
		n = at.Len()
	}
	m := &msg.Memory{Windows: []fabric.Sge{{Buf: g.buf[:n]}}, Access: seg.Contig(0, n)}
	var err error
	switch k := g.rng.IntN(100); {
	case k < 55:
		_, err = g.v.Read(ctx, tg, at, m)
	case k < 90:
		_, err = g.v.Write(ctx, tg, at, m, stripe.Volatile)
	case k < 97:
		_, err = g.v.Write(ctx, tg, at, m, stripe.Durable)
	case k < 99:
		_, err = g.v.Punch(ctx, tg, at.Span().Off, n, stripe.Volatile)
	default:
		_, err = g.v.Sync(ctx, tg)
	}
	return n, err
}

// size is that of a request, in bytes.
func (g *glutton) size() int64 {
	switch k := g.rng.IntN(1000); {
	case k < 700:
		return 1 + g.rng.Int64N(8<<10)
	case k < 970:
		return 4 << 10 << g.rng.IntN(5)
	case k < 998:
		return 64<<10 + g.rng.Int64N(1<<20)
	default:
		return iod.TransferMax
	}
}
