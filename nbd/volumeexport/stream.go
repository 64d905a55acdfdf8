package volumeexport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/nbd"
)

// watchPause is how long a gateway waits before it asks again what becomes of its volume.
const watchPause = time.Second

// pieceBytes is what is read and delivered at a time of a large read: small enough that the first
// piece leaves early, large enough that a request to a server for it is worth while.
const pieceBytes = 256 << 10

// Stream delivers a large read in pieces, each as soon as its server has: a piece does not cross
// stripes, so that it waits for one server only. At most pieceMax of one read are under way.
func (v *Volume) Stream(ctx context.Context, off, length int64, to nbd.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	fails := make(chan error, 1)
	fail := func(err error) {
		select {
		case fails <- err:
			cancel()
		default:
		}
	}
	for places := make(chan struct{}, pieceMax); length > 0 && ctx.Err() == nil; {
		n := v.piece(off, length)
		if n == length { // the last one needs no other goroutine
			if err := v.deliver(ctx, off, n, to); err != nil {
				fail(err)
			}
			break
		}
		places <- struct{}{}
		at := off
		wg.Go(func() {
			if err := v.deliver(ctx, at, n, to); err != nil {
				fail(err)
			}
			<-places
		})
		off, length = off+n, length-n
	}
	wg.Wait()
	select {
	case err := <-fails:
		return err
	default:
		return ctx.Err()
	}
}

// pieceMax is how many pieces of a read are under way at the same time.
const pieceMax = 8

// piece is how much of a range is read at a time: it ends at a stripe's end.
func (v *Volume) piece(off, length int64) int64 {
	n := min(length, pieceBytes)
	if v.layout.Unit > 0 {
		n = min(n, v.layout.Unit-off%v.layout.Unit)
	}
	if length-n < pieceBytes/4 && (v.layout.Unit == 0 || off%v.layout.Unit+length <= v.layout.Unit) {
		return length // what would be left over is not worth a request
	}
	return n
}

// deliver reads a piece and hands it over.
func (v *Volume) deliver(ctx context.Context, off, n int64, to nbd.Sink) error {
	buf := v.in.buffer(int(n))
	if buf == nil {
		select {
		case v.spare <- struct{}{}:
			buf = spare{make([]byte, n), v}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p := buf.Bytes()[:n]
	if err := v.ReadAt(ctx, p, off); err != nil {
		buf.Return()
		var at *nbd.OffsetError
		if errors.As(err, &at) {
			return err
		}
		return &nbd.OffsetError{Off: off, Err: err}
	}
	return to.Deliver(nbd.Piece{Off: off, Len: n, Data: [][]byte{p}, Lent: buf})
}

// sparePieces bounds the pieces that lie in memory of the heap, because the client has none left.
const sparePieces = 64

// spare is such a piece.
type spare struct {
	p []byte
	v *Volume
}

func (s spare) Bytes() []byte { return s.p }
func (s spare) Return()       { <-s.v.spare }
