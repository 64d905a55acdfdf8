//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// BenchmarkFabric is what perftest measures too, and how: ib_send_lat polls, ib_write_bw and
// ib_read_bw keep 128 requests under way. An emulated Soft-RoCE needs far more than the spin of
// a device, so the queues spin for longer than it takes.
func BenchmarkFabric(b *testing.B) {
	b.Run("pingpong 8 B, polled", func(b *testing.B) { pingPong(b, (*side).polled) })
	b.Run("pingpong 8 B, spun", func(b *testing.B) { pingPong(b, (*side).waited) })
	b.Run("write 64 KiB", func(b *testing.B) { stream(b, fabric.OpWrite, 64<<10, 1) })
	b.Run("write 64 KiB of 16", func(b *testing.B) { stream(b, fabric.OpWrite, 64<<10, 16) })
	b.Run("read 64 KiB", func(b *testing.B) { stream(b, fabric.OpRead, 64<<10, 1) })
	b.Run("read 1 MiB", func(b *testing.B) { stream(b, fabric.OpRead, 1<<20, 1) })
	b.Run("grant and revoke", benchGrant)
}

// BenchmarkSuite is what every provider measures.
func BenchmarkSuite(b *testing.B) { fabrictest.Bench(b, config(b, Options{})) }

func newBenchRig(b *testing.B) *rig {
	return newRigWith(b, Options{}, fabric.CQOptions{Spin: 50 * time.Millisecond})
}

// polled takes one completion without ever sleeping.
func (s *side) polled() bool {
	for {
		if n := s.cq.Poll(s.dst[:1]); n > 0 {
			return s.dst[0].Err == nil
		}
	}
}

func (s *side) waited() bool {
	_, err := s.cq.Wait(context.Background(), s.dst[:1])
	return err == nil && s.dst[0].Err == nil
}

// ball is what a side sends and posts in each round. A few receives are posted, so that the ball
// can go back before there is a place for the next one.
func (s *side) ball() ([]fabric.WR, []fabric.Recv) {
	recvs := []fabric.Recv{{Reg: s.reg, Buf: s.mem[64:72]}}
	for range 4 {
		fatal(s.t, s.ep.PostRecv(recvs))
	}
	return []fabric.WR{{
		Op: fabric.OpSend, Flags: fabric.FlagInline,
		Local: []fabric.Sge{{Reg: s.reg, Buf: s.mem[:8]}},
	}}, recvs
}

// pingPong sends 8 bytes there and back. The median is what ib_send_lat calls typical, twice.
//
// The two sides of ib_send_lat are two processes. Here they are two goroutines that are in C most
// of the time; where they have all processors of the runtime, it takes them away at each call that
// is long (Soft-RoCE does its work in the call that posts), so it is given more.
func pingPong(b *testing.B, await func(*side) bool) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 + runtime.NumCPU()))
	r := newBenchRig(b)
	sendA, recvA := r.a.ball()
	sendB, recvB := r.b.ball()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for await(r.b) && r.b.ep.Post(sendB) == nil && r.b.ep.PostRecv(recvB) == nil {
		}
	}()
	round := func() {
		if r.a.ep.Post(sendA) != nil || r.a.ep.PostRecv(recvA) != nil || !await(r.a) {
			b.Fatal("the other side is gone")
		}
	}
	for range 100 {
		round()
	}
	b.ReportAllocs()
	b.ResetTimer()
	samples := make([]time.Duration, 0, b.N)
	last := time.Now()
	for range b.N {
		round()
		now := time.Now()
		samples = append(samples, now.Sub(last))
		last = now
	}
	b.StopTimer()
	slices.Sort(samples)
	b.ReportMetric(float64(samples[0]), "min-ns/op")
	b.ReportMetric(float64(samples[len(samples)/2]), "p50-ns/op")
	fatal(b, r.a.ep.Close())
	<-ended
}

// stream keeps the send queue full with requests of so many pieces. One of 16 is signalled (of
// perftest's, one of 100).
func stream(b *testing.B, op fabric.Op, size, pieces int) {
	const every = 16
	r := newBenchRig(b)
	rem := r.b.grant(0, size, fabric.RemoteRead|fabric.RemoteWrite)
	wr := fabric.WR{Op: op, Remote: rem}
	for i := range pieces {
		piece := r.a.mem[i*size/pieces : (i+1)*size/pieces]
		wr.Local = append(wr.Local, fabric.Sge{Reg: r.a.reg, Buf: piece})
	}
	wrs := []fabric.WR{wr}
	ctx := context.Background()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for posted, done := 0, 0; done < b.N; {
		for ; posted < b.N && posted < done+depth; posted++ {
			wrs[0].Flags, wrs[0].Context = 0, uint64(posted+1)
			if posted%every == every-1 || posted == b.N-1 {
				wrs[0].Flags = fabric.FlagSignaled
			}
			fatal(b, r.a.ep.Post(wrs))
		}
		n, err := r.a.cq.Wait(ctx, r.a.dst)
		fatal(b, err)
		for i := range n {
			fatal(b, r.a.dst[i].Err)
			done = int(r.a.dst[i].Context)
		}
	}
	b.StopTimer()
}

func benchGrant(b *testing.B) {
	r := newBenchRig(b)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		r.b.reg.Revoke(r.b.grant(0, 64<<10, fabric.RemoteWrite))
	}
	b.StopTimer()
}

// BenchmarkClock is what a sample of the median costs.
func BenchmarkClock(b *testing.B) {
	for range b.N {
		_ = time.Now()
	}
}
