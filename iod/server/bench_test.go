package server_test

import (
	"context"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/wire"
)

// BenchmarkCachedReads is requests for 4 KiB that are cached, 32 at once, over tcp in one process.
func BenchmarkCachedReads(b *testing.B) {
	g := newRig(b)
	conn, err := g.pool.Get(b.Context(), 1)
	g.check(err)
	tg := g.target(1, capability.Read|capability.Write)
	_, err = g.remote.Write(b.Context(), tg, seg.Contig(0, 1<<20), view(make([]byte, 1<<20)), 0)
	g.check(err)
	p := g.memory(32 * 4096)
	work := make(chan struct{}, 1024)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			var e wire.Enc
			iod.AppendRequest(&e, iod.OpRead, &tg, &iod.Args{Access: seg.Contig(int64(i)*4096, 4096)})
			req := msg.Request{Op: uint16(iod.OpRead), Stamp: tg.Stamp, Body: e.B, Level: 1,
				In: view(p[i*4096:][:4096])}
			var rep msg.Reply
			for range work {
				if err := conn.Call(context.Background(), &req, &rep); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
}
