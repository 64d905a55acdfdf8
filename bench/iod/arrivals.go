package iod

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/iod"
)

const (
	chunkBytes = 64 * kib
	marker     = 0x736c75696365_3f21 // what data is not, but once in 2^64 chunks
)

// arrivals is when each chunk of a large read is in the client's memory, which only shared memory
// shows while the request is under way: the others tell when it is over.
func (b *Bench) arrivals() kind {
	k := b.members(false, 4, 1)
	k.name, k.only, k.metric = "arrivals-1m", net.Shm, bench.Latency
	k.about = "when each chunk of a direct read of 1 MiB from 4 throttled members arrives, by streams"
	for i := range k.ways {
		k.ways[i].load.arrivals = true
	}
	return k
}

// trace is requests one after the other, each watched from beside it.
func (c *caller) trace(ctx context.Context, d time.Duration) (bench.Result, error) {
	if err := c.open(ctx); err != nil {
		return bench.Result{}, err
	}
	t := c.site.target()
	t.How = c.load.how
	chunks := make([][]float64, c.load.size/chunkBytes)
	r, err := bench.Repeat(ctx, d, c.load.size, func() error {
		return c.watched(ctx, &t, chunks)
	})
	for i, times := range chunks {
		r.Extras = append(r.Extras, bench.Extra{Metric: bench.Arrival + fmt.Sprint(i),
			Value: bench.Median(times)})
	}
	return r, err
}

// watched is one request. A chunk whose marker is gone has arrived; what the poll has not seen has
// arrived when the request ends.
func (c *caller) watched(ctx context.Context, t *iod.Target, chunks [][]float64) error {
	buf := c.jobs[0].memory.Windows[0].Buf
	at := func(i int) []byte { return buf[(i+1)*chunkBytes-8:] }
	for i := range chunks {
		binary.NativeEndian.PutUint64(at(i), marker)
	}
	var over atomic.Bool
	var err error
	begin := time.Now()
	go func() {
		err = c.call(ctx, t, &c.jobs[0])
		over.Store(true)
	}()
	missing := len(chunks)
	seen := make([]bool, len(chunks))
	for last := false; missing > 0 && !last; runtime.Gosched() {
		last = over.Load()
		for i := range chunks {
			if !seen[i] && (last || binary.NativeEndian.Uint64(at(i)) != marker) {
				chunks[i] = append(chunks[i], float64(time.Since(begin).Nanoseconds())/1e3)
				seen[i] = true
				missing--
			}
		}
	}
	for !over.Load() {
		runtime.Gosched()
	}
	return err
}
