// Package transfer copies one file, or memory, between two hosts over package exio: in blocks, each
// with its checksum, several at once, and going on where an earlier attempt was cut.
//
// The end that receives (sink) drives: it asks for a window of blocks and says which of them it has
// already, by their checksums; the end that sends (source) reads its original, skips what is equal,
// sends the rest, and tells the sums of all. What was received lies in a partial file beside the
// destination, and takes its name when everything is there, is synced, and the sums of both ends
// agree. There is no other state: an attempt that was cut at any moment, by whatever, is found by
// reading the partial file, and nothing is believed that was not read and compared.
//
//	sink                                              source
//	want blocks 0..63, I have 0..40, their sums  -->  reads 0..63, compares
//	                              <-- blocks 41..63, as messages with their index and sum
//	                              <-- sent: sums of 0..63, which were sent
//	...
//	writes, syncs, renames; finished: sum of all -->  compares with its own
//
// Service answers others; Dial connects to one and chooses the driver, by measuring where that
// pays. Either end can be source or sink. A peer chooses names below one folder, and sizes within
// Limits; nothing else.
//
// Read transfer.go first, then protocol.go (the messages in bytes), source.go and sink.go, host.go
// (files of this host), service.go, dial.go and choose.go.
package transfer

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/internal/crc32c"
)

// Original is what is sent. It is read by several goroutines at once.
type Original interface {
	io.ReaderAt
	io.Closer
	Size() int64
	Mode() os.FileMode
}

// Copy is what is received, under a name of its own until Complete.
type Copy interface {
	io.ReaderAt
	io.WriterAt

	// Found is how many bytes an earlier attempt has left: no more need to be looked at.
	Found() int64

	// Complete makes the copy durable and lets it take its name. sum, if not nil, reads it back before
	// that, past caches where possible, and must agree.
	Complete(ctx context.Context, check func(io.ReaderAt) error) error

	// Close leaves what there is, for the next attempt, unless Complete has been called.
	Close() error
}

// Creation is how a copy is begun.
type Creation struct {
	Size      int64
	Mode      os.FileMode // its permissions
	Overwrite bool        // replace what has the name
	Restart   bool        // forget an earlier attempt
}

// Store is where files are found by name.
type Store interface {
	Open(ctx context.Context, name string) (Original, error)
	Create(ctx context.Context, name string, how Creation) (Copy, error)
}

// Shape is memory in equal pieces, whose beginnings are Stride apart. The zero value is memory in
// one piece.
type Shape struct {
	Count  int `json:"pieces"`
	Bytes  int `json:"bytes"`
	Stride int `json:"stride"`
}

// Check refuses shapes that overlap, or are no shapes.
func (s Shape) Check() error {
	if s == (Shape{}) {
		return nil
	}
	if s.Count < 1 || s.Count > exio.MaxPieces || s.Bytes < 1 || s.Stride < s.Bytes ||
		int64(s.Count)*int64(s.Bytes) > BlockMax || int64(s.Count)*int64(s.Stride) > spanMax {
		return errs.Newf(errs.Invalid, "transfer", "", "%d pieces of %d bytes, %d apart: at most %d "+
			"pieces, %d bytes in all, within %d, that do not overlap", s.Count, s.Bytes, s.Stride,
			exio.MaxPieces, BlockMax, spanMax)
	}
	return nil
}

// Limits of what a peer may ask for.
const (
	BlockMin = 4 << 10
	BlockMax = 16 << 20

	blocksMax = 4 << 20 // 16 MiB of sums at each end
	depthMax  = 64
	spanMax   = 128 << 20 // of the pieces of one block
	nameMax   = 4096
)

// Options are how data is moved. Both ends have the same; the one that dials decides.
type Options struct {
	Block   int           // bytes of one. Default 1 MiB
	Depth   int           // blocks that are under way at once. Default 4
	Shape   Shape         // of the memory that each block lies in; its bytes are Block
	Verify  bool          // read the copy back when it is complete
	Timeout time.Duration // how long the peer may do nothing. Default 30 s
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	if o.Shape.Count > 0 {
		o.Block = o.Shape.Count * o.Shape.Bytes
	}
	if o.Block == 0 {
		o.Block = 1 << 20
	}
	if o.Depth == 0 {
		o.Depth = 4
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	return o
}

// Check refuses what is out of range.
func (o Options) Check(size int64) error {
	if err := o.Shape.Check(); err != nil {
		return err
	}
	least := BlockMin
	if o.Shape.Count > 0 {
		least = 1
	}
	switch {
	case o.Block < least || o.Block > BlockMax:
		return errs.Newf(errs.Invalid, "transfer", "", "blocks of %d bytes: from %d to %d", o.Block,
			least, BlockMax)
	case o.Depth < 1 || o.Depth > depthMax:
		return errs.Newf(errs.Invalid, "transfer", "", "%d blocks at once: from 1 to %d", o.Depth,
			depthMax)
	case size < 0 || size > int64(o.Block)*blocksMax:
		return errs.Newf(errs.TooBig, "transfer", "", "%d bytes in blocks of %d: at most %d blocks",
			size, o.Block, blocksMax)
	}
	return nil
}

// Result is what a transfer was.
type Result struct {
	Bytes   int64  `json:"bytes"`   // of the file
	Moved   int64  `json:"moved"`   // that went over the network
	Skipped int64  `json:"skipped"` // that the other end had already
	Sum     uint32 `json:"crc32c"`  // of the file
}

// extent is which bytes a transfer has, by blocks.
type extent struct {
	size  int64
	block int
}

func (e extent) count() int { return int((e.size + int64(e.block) - 1) / int64(e.block)) }

func (e extent) offset(i int) int64 { return int64(i) * int64(e.block) }

// length is that of block i: the last one may be shorter.
func (e extent) length(i int) int {
	return int(min(int64(e.block), e.size-e.offset(i)))
}

// window is how many blocks are asked for in one message: about 64 MiB.
func (e extent) window() int { return min(windowMax, max(8, 64<<20/e.block)) }

// whole is the sum of all blocks together.
func (e extent) whole(sums []uint32) uint32 {
	var all uint32
	for i, s := range sums {
		all = crc32c.Join(all, s, int64(e.length(i)))
	}
	return all
}

// sumOf is the checksum of pieces.
func sumOf(pieces [][]byte) (sum uint32) {
	for _, p := range pieces {
		sum = crc32c.Update(sum, p)
	}
	return sum
}

// buffer is memory for one block.
type buffer struct {
	all    []byte
	pieces [][]byte
}

// newBuffers makes memory for blocks.
func newBuffers(memory *exio.Memory, o Options) (all []buffer, err error) {
	span := o.Block
	if o.Shape.Count > 0 {
		span = o.Shape.Count * o.Shape.Stride
	}
	for range o.Depth {
		b := buffer{}
		if b.all, err = memory.Alloc(span); err != nil {
			freeBuffers(memory, all)
			return nil, err
		}
		b.pieces = [][]byte{b.all}
		if s := o.Shape; s.Count > 0 {
			b.pieces = nil
			for i := range s.Count {
				b.pieces = append(b.pieces, b.all[i*s.Stride:i*s.Stride+s.Bytes])
			}
		}
		all = append(all, b)
	}
	return all, nil
}

func freeBuffers(memory *exio.Memory, all []buffer) {
	for _, b := range all {
		_ = memory.Free(b.all) // it was allocated there
	}
}

// first are the first n bytes of a buffer.
func (b *buffer) first(n int) (pieces [][]byte) {
	for _, p := range b.pieces {
		if p = p[:min(n, len(p))]; len(p) > 0 {
			pieces = append(pieces, p)
		}
		n -= len(p)
	}
	return pieces
}
