package relay

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Receiver takes the data of a read. Deliver sends the bytes that belong at stream offset at and
// returns when their memory may be used again. It is called from several goroutines at once, with
// chunks in any order that do not overlap and cover the request together. sums are the CRC-32C of
// each BlockBytes of data; the last one of the request may be of less. It must return when the
// context ends.
type Receiver interface {
	Deliver(ctx context.Context, at int64, data []fabric.Sge, sums []uint32) error
}

// Sender is where the data of a write comes from. Fetch fills the memory with the bytes from stream
// offset at on, and returns when they are there; it is called as Deliver is. Check is then given
// the sums of these bytes, as they lie in memory, and refuses a chunk that does not match, before
// it is stored. Chunks of a write begin at multiples of CheckBytes, so that sums of that many bytes
// can be told from the sums of their blocks: see crc32c.JoinBlocks.
type Sender interface {
	Fetch(ctx context.Context, at int64, into []fabric.Sge) error
	Check(at int64, sums []uint32) error
}

// CheckBytes is the alignment of the chunks of writes; only the last one may be smaller.
const CheckBytes = 64 << 10

// How says how a request is moved. Zero values are the engine's.
type How struct {
	ChunkBytes int
	Streams    Streams
}

// ReadJob is one request to read: Bytes bytes of the object from Off on, which is stream offset 0.
// It belongs to the engine for as long as Read runs.
type ReadJob struct {
	Object stripe.ObjectID
	Off    int64
	Bytes  int64
	How    How
	To     Receiver

	// NoSums leaves sums out altogether, for disks that have none: Deliver is given none.
	NoSums bool

	// Sums gets the CRC-32C of each BlockBytes of the stream, the last one of what is left: it has
	// SumCount(Bytes) places. nil: they are not needed. They come from the disk where the stream's
	// blocks are the object's, and are computed where they are not.
	Sums []uint32
}

// WriteJob is one request to write.
type WriteJob struct {
	Object stripe.ObjectID
	Off    int64
	Bytes  int64
	How    How
	From   Sender

	// Unchecked leaves Check out: the store sums what it stores.
	Unchecked bool

	// Stamp is the request's. Its number is recorded when all chunks are stored, on every member that
	// has some. A repeat after that is recognised by the store's Admit; one before that stores all of
	// it again, which overwrites nothing that was acknowledged since.
	Stamp wire.Stamp

	// Durability of all of it when Write returns. One sync at the end makes all chunks stable.
	Durability stripe.Durability
}

// SumCount is how many sums a stream of that many bytes has.
func SumCount(bytes int64) int { return int((bytes + BlockBytes - 1) / BlockBytes) }

// Read moves a request from the disk to the receiver. It returns when everything that it has
// begun has ended: with the first error there was, or with none when all has been delivered. Errors
// are those of disk, room and receiver; errs.Invalid; errs.Closed; the context's.
func (e *Engine) Read(ctx context.Context, j *ReadJob) error {
	const op = "relay.Read"
	if j.Sums != nil && len(j.Sums) != SumCount(j.Bytes) {
		return errs.Newf(errs.Invalid, op, "", "%d sums for %d bytes", len(j.Sums), j.Bytes)
	}
	if err := j.How.validate(op); err != nil {
		return err
	}
	f, err := e.begin(ctx, op, j.Object, j.Off, j.Bytes)
	if err != nil {
		return err
	}
	e.count.reads.Add(1)
	f.shape(j.How, BlockBytes)
	f.to, f.sums, f.noSums = j.To, j.Sums, j.NoSums
	f.limit = f.ahead // chunks that are being read
	err = f.run()
	e.end(f)
	return err
}

// Write moves a request from the sender to the disk. It returns as Read does.
func (e *Engine) Write(ctx context.Context, j *WriteJob) error {
	const op = "relay.Write"
	if err := j.How.validate(op); err != nil {
		return err
	}
	f, err := e.begin(ctx, op, j.Object, j.Off, j.Bytes)
	if err != nil {
		return err
	}
	e.count.writes.Add(1)
	f.shape(j.How, CheckBytes)
	f.from, f.unchecked = j.From, j.Unchecked
	f.stamp[0], f.number[0] = j.Stamp, j.Stamp
	f.stamp[0].Session, f.stamp[0].Slot, f.stamp[0].Seq = 0, 0, 0
	err = f.run()
	if err == nil {
		err = f.finish(j.Durability)
	}
	e.end(f)
	return err
}

func (h How) validate(op string) error {
	if h.ChunkBytes != 0 && !chunkFits(h.ChunkBytes) || h.Streams >= streamsEnd {
		return errs.Newf(errs.Invalid, op, "", "chunks of %d bytes, streams %d", h.ChunkBytes,
			h.Streams)
	}
	return nil
}

// begin checks a request and takes a flow for it.
func (e *Engine) begin(ctx context.Context, op string, id stripe.ObjectID, off,
	bytes int64) (*flow, error) {
	if err := stripe.CheckRange(ctx, op, id, off, bytes); err != nil {
		return nil, err
	}
	others, err := e.enter(op)
	if err != nil {
		return nil, err
	}
	f, ok := e.flows.Get().(*flow)
	if !ok {
		f = &flow{e: e}
		f.turn.L = &f.mu
	}
	f.ctx, f.id, f.off, f.bytes, f.others = ctx, id, off, bytes, others
	return f, nil
}

// end frees the flow for the next request.
func (e *Engine) end(f *flow) {
	f.reset()
	e.flows.Put(f)
	e.leave()
}
