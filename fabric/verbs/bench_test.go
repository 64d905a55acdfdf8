//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"context"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// benchOptions poll for longer than the slowest device takes for a round trip: Soft-RoCE in an
// emulated guest needs most of a millisecond.
func benchOptions() Options { return Options{} }

func BenchmarkFabric(b *testing.B) {
	fabrictest.Bench(b, config(b, benchOptions()))
	b.Run("write 64 KiB", func(b *testing.B) { stream(b, fabric.OpWrite, 64<<10, 1) })
	b.Run("write 64 KiB of 16", func(b *testing.B) { stream(b, fabric.OpWrite, 64<<10, 16) })
	b.Run("read 64 KiB", func(b *testing.B) { stream(b, fabric.OpRead, 64<<10, 1) })
	b.Run("read 512 KiB", func(b *testing.B) { stream(b, fabric.OpRead, 512<<10, 1) })
	b.Run("grant and revoke", benchGrant)
}

// stream keeps half of the send queue busy with requests of so many pieces.
func stream(b *testing.B, op fabric.Op, size, pieces int) {
	r := newRig(b, benchOptions())
	rem := r.b.grant(0, size, fabric.RemoteRead|fabric.RemoteWrite)
	wr := fabric.WR{Op: op, Flags: fabric.FlagSignaled, Remote: rem}
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
		for ; posted < b.N && posted < done+depth/2; posted++ {
			fatal(b, r.a.ep.Post(wrs))
		}
		n, err := r.a.cq.Wait(ctx, r.a.dst)
		fatal(b, err)
		for i := range n {
			fatal(b, r.a.dst[i].Err)
		}
		done += n
	}
	b.StopTimer()
}

func benchGrant(b *testing.B) {
	r := newRig(b, benchOptions())
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		r.b.reg.Revoke(r.b.grant(0, 64<<10, fabric.RemoteWrite))
	}
	b.StopTimer()
}
