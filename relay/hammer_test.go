package relay

import (
	"context"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
)

// Many short requests, whose lanes end at every possible moment, on flows that are used again and
// again: no lane ever meets the next request of its flow.
func TestFlowsAreUsedAgain(t *testing.T) {
	r := &room{}
	e := start(t, Options{Disk: &still{}, Room: r, ChunkBytes: 4096, WindowBytes: 64 << 10,
		Workers: 8, Place: places{3, 8192}})
	ctx := context.Background()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for k := range int64(200) {
				n := (k%9 + 1) * 4096
				p := newPeer(t, n)
				id := stripe.ObjectID{File: uint64(i + 1)}
				job := ReadJob{Object: id, Bytes: n, To: counting{p}, How: How{
					Streams: Streams(1 + k%3)}}
				if err := e.Read(ctx, &job); err != nil {
					t.Error(err)
					return
				}
				p.all()
			}
		})
	}
	wg.Wait()
	if now, _ := r.outstanding(); now != 0 {
		t.Fatalf("%d bytes are out", now)
	}
}
