package fabrictest

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
)

// Bench measures a provider: round trips, and streams of messages, writes and reads by size.
func Bench(b *testing.B, cfg Config) {
	for _, size := range []int{8, 512, 4 << 10, 64 << 10} {
		b.Run("pingpong "+human(size), func(b *testing.B) { PingPong(b, cfg, size) })
	}
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		b.Run("send "+human(size), func(b *testing.B) { SendStream(b, cfg, size) })
	}
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run("write "+human(size), func(b *testing.B) { WriteStream(b, cfg, size, 1) })
		b.Run("read "+human(size), func(b *testing.B) { ReadStream(b, cfg, size) })
	}
	b.Run("gather 16 x 4 KiB", func(b *testing.B) { WriteStream(b, cfg, 64<<10, 16) })
}

func human(size int) string {
	switch {
	case size >= 1<<20:
		return fmt.Sprintf("%d MiB", size>>20)
	case size >= 1<<10:
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d B", size)
}

// PingPong sends size bytes there and back per iteration.
func PingPong(b *testing.B, cfg Config, size int) {
	r := newRig(b, cfg)
	needMessage(b, r, size)
	ctx := context.Background()
	done := make(chan struct{})
	b.Cleanup(func() { // before the rig's own
		check(b, r.b.ep.Close())
		<-done
	})
	for _, s := range []*side{r.a, r.b} {
		s.recv(1, size)
	}
	go func() {
		defer close(done)
		p := newPlayer(r.b, size)
		for p.await(ctx) && p.serve() {
		}
	}()
	p := newPlayer(r.a, size)
	b.ReportAllocs()
	for b.Loop() {
		if !p.serve() || !p.await(ctx) {
			b.Fatal("the other side is gone")
		}
	}
}

func needMessage(b *testing.B, r *rig, size int) {
	if limit := r.a.dom.Caps().MaxMessage; size > limit {
		b.Skipf("messages have at most %d bytes", limit)
	}
}

// player is one side of a ping-pong, with everything that it posts made in advance.
type player struct {
	*side
	left  int // silent requests before the next signalled one
	dst   [4]fabric.Completion
	wrs   [1]fabric.WR
	recvs [1]fabric.Recv
}

func newPlayer(s *side, size int) *player {
	p := &player{side: s}
	p.recvs[0] = fabric.Recv{Context: 1, Reg: s.reg, Buf: s.piece(4096, size)}
	local := []fabric.Sge{{Reg: s.reg, Buf: s.piece(memBytes/2, size)}}
	p.wrs[0] = fabric.WR{Op: fabric.OpSend, Local: local}
	if size <= s.dom.Caps().MaxInline {
		p.wrs[0].Flags = fabric.FlagInline
	}
	return p
}

// await takes the ball and makes room for the next one.
func (p *player) await(ctx context.Context) bool {
	for {
		n, err := p.cq.Wait(ctx, p.dst[:])
		if err != nil {
			return false
		}
		caught := false
		for i := range p.dst[:n] {
			if p.dst[i].Err != nil {
				return false
			}
			caught = caught || p.dst[i].Op == fabric.OpRecv
		}
		if caught {
			return p.ep.PostRecv(p.recvs[:]) == nil
		}
	}
}

// serve sends the ball; now and then it asks for the completion, which frees the places of all.
func (p *player) serve() bool {
	p.wrs[0].Flags &^= fabric.FlagSignaled
	if p.left--; p.left < 0 {
		p.left = depth / 2
		p.wrs[0].Flags |= fabric.FlagSignaled
	}
	return p.ep.Post(p.wrs[:]) == nil
}

// WriteStream writes size bytes (at most 512 KiB in more than one piece) per iteration.
func WriteStream(b *testing.B, cfg Config, size, pieces int) {
	r := newRig(b, cfg)
	if limit := r.a.dom.Caps().MaxSge; pieces > limit {
		b.Skipf("requests have at most %d pieces", limit)
	}
	wr := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled}
	wr.Remote = r.b.grant(0, size, fabric.RemoteWrite)
	for i := range pieces {
		part := size / pieces // with gaps between them, so that nobody can join them
		buf := r.a.piece(i*2*part, part)
		wr.Local = append(wr.Local, fabric.Sge{Reg: r.a.reg, Buf: buf})
	}
	r.stream(b, wr, size)
}

// ReadStream reads size bytes (at most 1 MiB) per iteration.
func ReadStream(b *testing.B, cfg Config, size int) {
	r := newRig(b, cfg)
	r.stream(b, r.a.read(0, 0, r.b.grant(0, size, fabric.RemoteRead)), size)
}

// stream keeps eight of a request under way.
func (r *rig) stream(b *testing.B, wr fabric.WR, size int) {
	wrs := []fabric.WR{wr}
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

// SendStream sends size bytes per iteration; the receiver returns a credit for every batch.
func SendStream(b *testing.B, cfg Config, size int) {
	r := newRig(b, cfg)
	needMessage(b, r, size)
	const batch = depth / 2
	ctx := context.Background()
	recvs := make([]fabric.Recv, batch)
	for i := range recvs {
		recvs[i] = fabric.Recv{Reg: r.b.reg, Buf: r.b.piece(i%8*size, size)}
	}
	check(b, r.b.ep.PostRecv(recvs))
	check(b, r.b.ep.PostRecv(recvs))
	credit := newPlayer(r.a, 8) // receives them
	check(b, r.a.ep.PostRecv(credit.recvs[:]))
	done := make(chan struct{})
	b.Cleanup(func() { // before the rig's own
		check(b, r.b.ep.Close())
		<-done
	})
	go func() {
		defer close(done)
		back, dst := newPlayer(r.b, 8), make([]fabric.Completion, depth)
		for takeBatch(ctx, r.b, dst, batch) && r.b.ep.PostRecv(recvs) == nil && back.serve() {
		}
	}()
	wrs := make([]fabric.WR, batch)
	for i := range wrs {
		local := []fabric.Sge{{Reg: r.a.reg, Buf: r.a.piece(memBytes/2, size)}}
		wrs[i] = fabric.WR{Op: fabric.OpSend, Local: local}
	}
	wrs[batch-1].Flags = fabric.FlagSignaled
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; sent += batch { // the last batch may be one too many
		check(b, r.a.ep.Post(wrs))
		if !credit.await(ctx) {
			b.Fatal("the other side is gone")
		}
	}
	b.StopTimer()
}

// takeBatch waits for count messages.
func takeBatch(ctx context.Context, s *side, dst []fabric.Completion, count int) bool {
	for count > 0 {
		n, err := s.cq.Wait(ctx, dst)
		if err != nil {
			return false
		}
		for i := range dst[:n] {
			if dst[i].Err != nil {
				return false
			}
			if dst[i].Op == fabric.OpRecv {
				count--
			}
		}
	}
	return true
}
