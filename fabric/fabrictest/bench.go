package fabrictest

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

// Bench measures a provider: a round trip of 8 bytes, and 1 MiB writes, eight of them under way.
func Bench(b *testing.B, cfg Config) {
	b.Run("pingpong 8 B", func(b *testing.B) { PingPong(b, cfg) })
	b.Run("write 1 MiB", func(b *testing.B) { WriteStream(b, cfg, 1<<20) })
}

// PingPong sends 8 bytes there and back per iteration.
func PingPong(b *testing.B, cfg Config) {
	r := newRig(b, cfg)
	ctx := context.Background()
	done := make(chan struct{})
	b.Cleanup(func() { // before the rig's own
		check(b, r.b.ep.Close())
		<-done
	})
	for _, s := range []*side{r.a, r.b} {
		s.recv(1, 8)
	}
	go func() {
		defer close(done)
		p := newPlayer(r.b)
		for p.await(ctx) && p.serve() {
		}
	}()
	p := newPlayer(r.a)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if !p.serve() || !p.await(ctx) {
			b.Fatal("the other side is gone")
		}
	}
	b.StopTimer()
}

// player is one side of a ping-pong, with everything that it posts made in advance.
type player struct {
	*side
	dst   [4]fabric.Completion
	wrs   [1]fabric.WR
	recvs [1]fabric.Recv
}

func newPlayer(s *side) *player {
	p := &player{side: s}
	p.recvs[0] = fabric.Recv{Context: 1, Reg: s.reg, Buf: s.piece(4096, 8)}
	local := []fabric.Sge{{Reg: s.reg, Buf: s.piece(0, 8)}}
	p.wrs[0] = fabric.WR{Op: fabric.OpSend, Local: local, Flags: fabric.FlagInline}
	return p
}

// await takes the ball and makes room for the next one.
func (p *player) await(ctx context.Context) bool {
	n, err := p.cq.Wait(ctx, p.dst[:])
	return err == nil && n == 1 && p.dst[0].Err == nil && p.ep.PostRecv(p.recvs[:]) == nil
}

func (p *player) serve() bool { return p.ep.Post(p.wrs[:]) == nil }

// WriteStream writes size bytes (at most 1 MiB) per iteration.
func WriteStream(b *testing.B, cfg Config, size int) {
	r := newRig(b, cfg)
	rem := r.b.grant(0, size, fabric.RemoteWrite)
	local := []fabric.Sge{{Reg: r.a.reg, Buf: r.a.piece(0, size)}}
	wrs := []fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: local, Remote: rem,
	}}
	dst := make([]fabric.Completion, depth)
	ctx := context.Background()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for posted, done := 0, 0; done < b.N; {
		for ; posted < b.N && posted < done+8; posted++ {
			check(b, r.a.ep.Post(wrs))
		}
		n, err := r.a.cq.Wait(ctx, dst)
		check(b, err)
		for _, c := range dst[:n] {
			check(b, c.Err)
		}
		done += n
	}
	b.StopTimer()
}
