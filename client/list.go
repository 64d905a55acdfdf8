package client

import (
	"context"
	"io"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/seg"
)

// Transfer is one access to a file with many pieces, in memory, in the file, or in both: list I/O.
// The bytes of each side form a stream, in the order in which its pieces are given; the streams
// have equal lengths and are matched byte by byte.
//
//	memory  |--a--|   |---b---|   |-c-|
//	            \      /  \         \
//	file     |----1----|   |----2----|
//
// Each server is asked once, as long as its part is at most 8 MiB (iod.TransferMax) and 64 Ki
// pieces (iod.PiecesMax) and its description fits a message, which has room for a thousand
// irregular pieces, or any number of regular ones: a vector travels as a vector, or as one run for
// each stripe unit. What is more goes in several requests. All are under way at once.
//
// errs.Invalid: the lengths differ, a count, offset or stride is negative, a piece of memory lies
// outside of Bufs, or a read has pieces of memory that overlap. errs.TooBig: more than 4 Mi pieces
// on one side, or a piece of a write behind the largest file. Pieces of the file may overlap: of a
// byte that is written twice one of the two stays.
type Transfer struct {
	// Write: from memory to the file. Default false: from the file to memory.
	Write bool

	// Durable: what is written is on stable storage when the call returns; see File.WriteAtDurable.
	Durable bool

	// Bufs are the memory, laid end to end. It belongs to the call until that returns.
	Bufs [][]byte

	// Memory says which bytes of Bufs, in that order: a list, or nested vectors. Default: all.
	Memory seg.Access

	// File says which bytes of the file: a list, or nested vectors.
	File seg.Access

	// Parents are the allocations that Bufs are parts of: see Parent. Default: none, each buffer
	// stands for itself.
	Parents []Parent

	// Method is how data in several pieces is moved. Default Auto, by measurement: for each provider
	// and shape what has taken less time so far.
	Method Method

	// Explain, if not nil, is told how it was done. Default nil.
	Explain *Explanation
}

// Parent is an allocation hint: memory of which many pieces are parts. Where a provider moves
// registered memory only (RDMA devices) one registration of the parent serves all pieces, of this
// transfer and of the next ones, in place of one for each piece; and a request describes them by
// one window. The parent must be mapped as a whole; only what is meant is read or changed.
type Parent struct {
	Bytes []byte

	// Pin, in bytes, is how much of the parent may be registered, from the first byte that is meant
	// on. Pieces behind that are copied. Default 0: all. Negative: nothing.
	Pin int64
}

func (p *Parent) pinned() int64 {
	switch {
	case p.Pin == 0:
		return int64(len(p.Bytes))
	case p.Pin < 0:
		return 0
	}
	return p.Pin
}

// parentsMax is how many parents a transfer may have.
const parentsMax = 1024

// Method is how data in several pieces is moved.
type Method = mem.Method

// The methods.
const (
	Auto   = mem.Auto   // by measurement
	Gather = mem.Gather // each piece straight between its memory and the server
	Pack   = mem.Pack   // all pieces together, through a buffer
)

// listMax is how many pieces each side of one call may have after expansion.
const listMax = 4 << 20

// Transfer carries out t, and returns how many bytes were moved. A read fills what lies at or
// behind the end of the file with zeroes; n counts the bytes of the stream before the first such
// byte, with io.EOF if there is one. A write is all or nothing where a quota leaves no room. While
// it fails in another way each piece is old or new.
func (f *File) Transfer(ctx context.Context, t *Transfer) (n int64, err error) {
	op := "client.Transfer"
	if t.Write {
		n, err = f.transferOut(ctx, t)
	} else {
		n, err = f.transferIn(ctx, t)
	}
	if err == io.EOF { // compared as such by callers
		return n, err
	}
	return n, errs.Wrap(op, "", err)
}

// ReadList is Transfer that reads into bufs.
func (f *File) ReadList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error) {
	return f.Transfer(ctx, &Transfer{Bufs: bufs, File: file})
}

// WriteList is Transfer that writes bufs.
func (f *File) WriteList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error) {
	return f.Transfer(ctx, &Transfer{Write: true, Bufs: bufs, File: file})
}

// spaceOf checks both sides. No space, without an error, says that there is nothing to move.
func spaceOf(t *Transfer) (*space, error) {
	if err := t.File.Validate(listMax, layout.FileSizeMax); err != nil {
		return nil, err
	}
	if t.Method > Pack {
		return nil, errs.Newf(errs.Invalid, "", "", "method %d", t.Method)
	}
	n := t.File.Len()
	if n == 0 && t.Memory.Len() == 0 {
		return nil, nil
	}
	s, err := newSpace(t)
	if err != nil {
		return nil, err
	}
	if s.access.Len() != n {
		return nil, errs.Newf(errs.Invalid, "", "", "%d bytes of memory for %d bytes of the file",
			s.access.Len(), n)
	}
	return s, nil
}

func (f *File) transferIn(ctx context.Context, t *Transfer) (int64, error) {
	if err := f.readable(0); err != nil {
		return 0, err
	}
	s, err := spaceOf(t)
	if err != nil || s == nil {
		return 0, err
	}
	var size int64
	var seen sight
	done, err := f.readSmall(ctx, func(data []byte) {
		size = int64(len(data))
		s.each(t.File, func(b []byte, off int64) { clear(b[copyAt(b, data, off):]) })
	})
	end := t.File.Span().End()
	if done {
		t.Explain.small()
	} else if size, seen, err = f.sizeSeen(ctx, end); err == nil {
		err = f.list(ctx, reading, s, t)
	}
	if err == nil && !done && f.node.doubts(seen) {
		if size, err = f.sizeFor(ctx, end); err == nil {
			s.each(t.File, func(b []byte, off int64) { clear(b[min(max(size-off, 0), int64(len(b))):]) })
		}
	}
	if err != nil {
		return 0, err
	}
	if end <= size {
		return t.File.Len(), nil
	}
	return before(t.File, size), io.EOF
}

func (f *File) transferOut(ctx context.Context, t *Transfer) (int64, error) {
	dir := writing
	if t.Durable {
		dir = writingDurably
	}
	s, err := spaceOf(t)
	if err != nil || s == nil {
		return 0, err
	}
	span := t.File.Span()
	if err := f.room("", span.Off, span.Len); err != nil {
		return 0, err
	}
	to, err := f.Room(ctx, span.Off, span.End())
	if err == nil && to < span.End() {
		_, err = roomIn(to, to) // pieces are in any order: all or nothing
	}
	if err != nil {
		return 0, err
	}
	done, err := f.writeSmall(ctx, dir, span.Off, span.End(), func(data []byte) {
		s.each(t.File, func(b []byte, off int64) { copy(data[off:], b) })
	})
	if done {
		t.Explain.small()
	} else {
		err = f.list(ctx, dir, s, t)
	}
	if err != nil {
		return 0, err
	}
	return t.File.Len(), nil
}

// list moves what both sides mean.
func (f *File) list(ctx context.Context, dir direction, s *space, t *Transfer) error {
	return f.settle(ctx, func(ctx context.Context, g *grant, seq uint64) error {
		shares := plan(&g.layout, s, t.File)
		t.Explain.watch(shares)
		if err := f.all(ctx, g, seq, dir, shares); err != nil {
			return err
		}
		t.Explain.tell(&g.layout, shares)
		from, end := t.File.Span().Off, t.File.Span().End()
		if t.File.Pieces() > 1 {
			from = end // where it grows the file there may be gaps between the pieces
		}
		f.finish(dir, from, end, seq)
		return nil
	})
}
