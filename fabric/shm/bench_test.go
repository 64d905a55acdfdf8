package shm

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// pair is an end here, which listened, and a peer in another process.
func pair(t testing.TB, part string, seed uint64, spin time.Duration) (*end, *child) {
	t.Helper()
	n, err := newEnd(Options{}, spin)
	fatal(t, err)
	t.Cleanup(func() { fatal(t, n.close()) })
	addr := addresses(t)()
	l, err := n.dom.Connector().Listen(addr)
	fatal(t, err)
	c := start(t, part, addr, seed, spin)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fatal(t, n.accept(ctx, l))
	fatal(t, n.swap(ctx))
	return n, c
}

// BenchmarkRoundTrip sends 8 bytes to another process and back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, c := range []struct {
		name string
		spin time.Duration
	}{{"spinning", 50 * time.Millisecond}, {"judged", 0}, {"sleeping", -1}} {
		b.Run(c.name, func(b *testing.B) {
			n, _ := pair(b, "echo", 0, c.spin)
			ctx := context.Background()
			dst := make([]fabric.Completion, 8)
			wrs := []fabric.WR{{
				Op: fabric.OpSend, Flags: fabric.FlagInline,
				Local: []fabric.Sge{{Reg: n.reg, Buf: n.mem[1<<20 : 1<<20+8]}},
			}}
			recvs := make([]fabric.Recv, 1)
			times := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				begin := time.Now()
				must(b, n.ep.Post(wrs))
				got, err := n.cq.Wait(ctx, dst)
				if err != nil || got != 1 || dst[0].Err != nil {
					b.Fatal(got, err, dst[0].Err)
				}
				times = append(times, time.Since(begin))
				at := int(dst[0].Context)
				buf := n.mem[at*msgBytes : (at+1)*msgBytes]
				recvs[0] = fabric.Recv{Context: uint64(at), Reg: n.reg, Buf: buf}
				must(b, n.ep.PostRecv(recvs))
			}
			b.StopTimer()
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2]), "ns/median")
			b.ReportMetric(float64(times[len(times)/10]), "ns/10%")
		})
	}
}

// BenchmarkPath is what the code of both sides costs: 8 bytes there and back in one goroutine,
// which waits for nobody.
func BenchmarkPath(b *testing.B) {
	x, y := ends(b, Options{})
	dst := make([]fabric.Completion, 8)
	recvs := make([]fabric.Recv, 1)
	wrs := []fabric.WR{{
		Op: fabric.OpSend, Flags: fabric.FlagInline,
		Local: []fabric.Sge{{Buf: make([]byte, 8)}},
	}}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		for _, n := range [2][2]*end{{x, y}, {y, x}} {
			must(b, n[0].ep.Post(wrs))
			for n[1].cq.Poll(dst) == 0 {
			}
			at := int(dst[0].Context)
			buf := n[1].mem[at*msgBytes : (at+1)*msgBytes]
			recvs[0] = fabric.Recv{Context: uint64(at), Reg: n[1].reg, Buf: buf}
			must(b, n[1].ep.PostRecv(recvs))
		}
	}
}

// BenchmarkWrite has the listener write into the client's arena, which is in another process.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d KiB", size>>10), func(b *testing.B) {
			n, _ := pair(b, "idle", 0, 0)
			moveMany(b, n, fabric.OpWrite, size)
		})
	}
}

// BenchmarkRead is the other direction.
func BenchmarkRead(b *testing.B) {
	n, _ := pair(b, "idle", 0, 0)
	moveMany(b, n, fabric.OpRead, 1<<20)
}

// must is fatal for loops that are measured: it costs nothing.
func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

func moveMany(b *testing.B, n *end, op fabric.Op, size int) {
	ctx := context.Background()
	dst := make([]fabric.Completion, 8)
	wrs := []fabric.WR{{
		Op: op, Flags: fabric.FlagSignaled, Remote: n.theirs.Slice(0, uint64(size)),
		Local: []fabric.Sge{{Reg: n.reg, Buf: n.mem[1<<20:][:size]}},
	}}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		must(b, n.ep.Post(wrs))
		got, err := n.cq.Wait(ctx, dst)
		if err != nil || got != 1 || dst[0].Err != nil {
			b.Fatal(got, err, dst[0].Err)
		}
	}
}

// BenchmarkRing has a client write to the listener, in one process: two copies.
func BenchmarkRing(b *testing.B) { fabrictest.WriteStream(b, config(Options{}), 1<<20, 1) }

// BenchmarkMemcpy is what there is to be had: a copy into shared memory.
func BenchmarkMemcpy(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d KiB", size>>10), func(b *testing.B) {
			n, err := newEnd(Options{}, 0)
			fatal(b, err)
			defer n.close()
			b.SetBytes(int64(size))
			for range b.N {
				copy(n.mem[2<<20:][:size], n.mem[1<<20:][:size])
			}
		})
	}
}

// BenchmarkSocket is what processes of one host do otherwise: 8 bytes through a unix socket and
// back. Both ends are in this process, which the netpoller does not mind.
func BenchmarkSocket(b *testing.B) {
	name := b.TempDir() + "/s"
	l, err := net.Listen("unix", name)
	fatal(b, err)
	defer os.Remove(name)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		var buf [8]byte
		for {
			if _, err := c.Read(buf[:]); err != nil {
				return
			}
			if _, err := c.Write(buf[:]); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("unix", name)
	fatal(b, err)
	defer c.Close()
	var buf [8]byte
	b.ResetTimer()
	for range b.N {
		_, err := c.Write(buf[:])
		must(b, err)
		_, err = c.Read(buf[:])
		must(b, err)
	}
}
