package store

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// inFlight holds the request ids of operations that are being done. A client that lost its
// connection may repeat an operation while the first one still runs; the repetition waits here and
// then finds the id in the engine.
type inFlight struct {
	mu  sync.Mutex
	ids map[kv.ReqID]chan struct{} // closed when the operation is over

	// Closings that were done, because most of them leave no trace in the engine: the latest ones, in
	// two halves.
	young, old map[kv.ReqID][]errs.Kind // of CloseMany: what came of each
}

// closedMax bounds each half: more than requests can be repeated at once; some 3 MiB.
const closedMax = 32 << 10

// close notes that a closing was done.
func (f *inFlight) close(id kv.ReqID) { f.closeAll(id, nil) }

// closeAll notes that many were.
func (f *inFlight) closeAll(id kv.ReqID, kinds []errs.Kind) {
	if id == (kv.ReqID{}) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.young == nil || len(f.young) >= closedMax {
		f.old, f.young = f.young, map[kv.ReqID][]errs.Kind{}
	}
	f.young[id] = kinds
}

// closed tells whether a closing was done.
func (f *inFlight) closed(id kv.ReqID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, young := f.young[id]
	_, old := f.old[id]
	return young || old
}

// closedAll is what came of many closings; nil: they were not done.
func (f *inFlight) closedAll(id kv.ReqID) []errs.Kind {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kinds := f.young[id]; kinds != nil {
		return kinds
	}
	return f.old[id]
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
