package nbd_test

import (
	"context"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
	"github.com/sluice-storage/sluice/nbd/memexport"
)

// pieces is a memory export that lends a few buffers at a time: the least that a Streamer is.
type pieces struct {
	*memexport.Memory
	free chan []byte
	mu   sync.Mutex
	lent int
}

type onePiece struct {
	from *pieces
	buf  []byte
}

func (o *onePiece) Return() {
	clear(o.buf)
	o.from.mu.Lock()
	o.from.lent--
	o.from.mu.Unlock()
	o.from.free <- o.buf
}

func (p *pieces) Stream(ctx context.Context, off, length int64, to nbd.Sink) error {
	for n := int64(0); length > 0; off, length = off+n, length-n {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-ctx.Done():
			return ctx.Err()
		}
		p.mu.Lock()
		p.lent++
		p.mu.Unlock()
		n = min(length, int64(len(buf)))
		if err := p.ReadAt(ctx, buf[:n], off); err != nil {
			return err
		}
		err := to.Deliver(nbd.Piece{Off: off, Len: n, Data: [][]byte{buf[:n]}, Lent: &onePiece{p, buf}})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestLeastStreamer runs the suite over an export that has nothing to spare: what the suite's sinks
// keep at a time must be enough for them, too.
func TestLeastStreamer(t *testing.T) {
	exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
		m, err := memexport.New(size)
		if err != nil {
			tb.Fatal(err)
		}
		p := &pieces{Memory: m, free: make(chan []byte, 64)}
		for range cap(p.free) {
			p.free <- make([]byte, 96<<10)
		}
		tb.Cleanup(func() {
			if p.lent != 0 {
				tb.Errorf("%d pieces did not come back", p.lent)
			}
		})
		return p
	})
}
