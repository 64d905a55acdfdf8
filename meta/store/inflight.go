package store

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/kv"
)

// inFlight holds the request ids of operations that are being done. A client that lost its
// connection may repeat an operation while the first one still runs; the repetition waits here and
// then finds the id in the engine.
type inFlight struct {
	mu  sync.Mutex
	ids map[kv.ReqID]chan struct{} // closed when the operation is over
}

func (f *inFlight) enter(ctx context.Context, id kv.ReqID) error {
	for {
		f.mu.Lock()
		over, busy := f.ids[id]
		if !busy {
			f.ids[id] = make(chan struct{})
			f.mu.Unlock()
			return nil
		}
		f.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *inFlight) leave(id kv.ReqID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.ids[id])
	delete(f.ids, id)
}
