package volumeexport

import (
	"context"
	"io"

	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/seg"
)

// accessOf is a batch as the client library takes it: each server is asked once.
func accessOf(list []nbd.Span) ([][]byte, seg.Access) {
	bufs, pieces := make([][]byte, len(list)), make([]seg.Piece, len(list))
	for i := range list {
		bufs[i] = list[i].Data
		pieces[i] = seg.Piece{Off: list[i].Off, Len: int64(len(list[i].Data))}
	}
	return bufs, seg.List(pieces)
}

// Batches is true: a message to a server costs as much as many small requests in it.
func (v *Volume) Batches() bool { return true }

// ReadMany reads all of the ranges, with one request to each server.
func (v *Volume) ReadMany(ctx context.Context, list []nbd.Span) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.gone {
		return v.given()
	}
	bufs, access := accessOf(list)
	n, err := v.file.ReadList(ctx, bufs, access)
	if n == access.Len() && (err == nil || err == io.EOF) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return v.judge(err)
}

// WriteMany writes all of the ranges, with one request to each server.
func (v *Volume) WriteMany(ctx context.Context, list []nbd.Span) error {
	if v.opt.Shared { // each is durable
		for i := range list {
			if err := v.WriteAt(ctx, list[i].Data, list[i].Off, false); err != nil {
				return err
			}
		}
		return nil
	}
	return v.change(ctx, func(f file) error {
		bufs, access := accessOf(list)
		_, err := f.WriteList(ctx, bufs, access)
		return err
	})
}
