// Package array is the file system for programs that think in arrays: N-dimensional arrays in a
// file, NumPy's .npy or raw, of which subarrays, strided slices and tiles with ghost cells are read
// and written. What is asked for is described, not copied together: a tile of a million rows is one
// vector, and one request to each I/O server, whatever its shape.
//
//	f, err := fs.Open(ctx, "/field.npy")
//	a, err := array.Open(ctx, f)
//	part, err := a.All().Slice(array.Range(0, 10), array.Step(2), array.Index(3))
//	err = part.Read(ctx, memory, array.RowMajor)
//
// Tiles cut an array into boxes of equal shape, each with a border of ghost cells (tile.go). Blocks
// cache such tiles, in bounded memory, and bring the next ones of a walk before they are
// asked for (blocks.go): it is the multi-dimensional block interface of the PVFS.
//
// Elements are moved as they are: bytes in the other order are described by the type, not swapped,
// and structures are their bytes. The file is the client's (package client), which makes no copies
// for it; this package makes one where memory and file lie too differently for that (move.go says
// when). Nothing is locked: programs that write to the same elements at the same time get some of
// each, as with any file.
//
// Read array.go first, then slice.go (views), move.go (from a view to requests), tile.go and
// blocks.go; header.go is the format, dtype.go and literal.go are what its header is made of.
package array

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/seg"
)

// File is what arrays lie in: a client.File is one. ReadList and WriteList move many pieces in one
// call, as package client says.
type File interface {
	ReadList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error)
	WriteList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error)
	Truncate(ctx context.Context, size int64) error
	Size() int64
}

// Order says how the elements of an array in memory follow each other.
type Order uint8

const (
	AsFile      Order = iota // as in the file: what moves with the least work
	RowMajor                 // the last axis is the fastest, as in C and by default in NumPy
	ColumnMajor              // the first axis is the fastest, as in Fortran
)

// Array is an array in a file. It does not change and is safe for concurrent use. The file stays
// the caller's.
type Array struct {
	file    File
	header  Header
	off     int64 // of the first element
	bytes   int64
	strides []int64
	raw     bool
}

// Open reads the header of a .npy file.
func Open(ctx context.Context, f File) (*Array, error) {
	head := make([]byte, min(f.Size(), 4096))
	if err := readAll(ctx, f, head, 0); err != nil {
		return nil, err
	}
	_, end, _, err := headerLen(head)
	if err != nil {
		return nil, err
	}
	if end > int64(len(head)) && end <= f.Size() {
		head = make([]byte, end)
		if err := readAll(ctx, f, head, 0); err != nil {
			return nil, err
		}
	}
	h, data, err := ParseHeader(head)
	if err != nil {
		return nil, err
	}
	return newArray(f, h, data)
}

// Create makes a file a .npy array: it writes the header, and cuts or extends the file to the
// length of the array. Elements that nobody has written are zero and take no space. What the file
// had is lost.
func Create(ctx context.Context, f File, h Header) (*Array, error) {
	head, err := h.Append(nil)
	if err != nil {
		return nil, err
	}
	if h, _, err = ParseHeader(head); err != nil { // a type that was put together by hand
		return nil, err
	}
	a, err := newArray(f, h, int64(len(head)))
	if err == nil {
		err = f.Truncate(ctx, 0)
	}
	if err == nil {
		err = f.Truncate(ctx, a.End())
	}
	if err == nil {
		_, err = f.WriteList(ctx, [][]byte{head}, seg.Contig(0, int64(len(head))))
	}
	if err != nil {
		return nil, errs.Wrap("array.Create", "", err)
	}
	return a, nil
}

// Raw is an array without a header, whose first element is at off. It looks at nothing: a file that
// is shorter is found out when it is read. Header.Version is ignored.
func Raw(f File, off int64, h Header) (*Array, error) {
	if off < 0 || off > layout.FileSizeMax/2 {
		return nil, errs.Newf(errs.Invalid, "array.Raw", "", "offset %d", off)
	}
	h.Version = 0
	h.Shape = slices.Clone(h.Shape)
	a, err := newArray(f, h, off)
	if err == nil {
		a.raw = true
	}
	return a, err
}

func newArray(f File, h Header, off int64) (*Array, error) {
	n, err := h.Bytes()
	if err != nil {
		return nil, err
	}
	return &Array{file: f, header: h, off: off, bytes: n,
		strides: strides(h.Shape, h.Type.Bytes, h.Fortran)}, nil
}

// Header is what the array was made or opened with.
func (a *Array) Header() Header {
	h := a.header
	h.Shape = slices.Clone(h.Shape)
	return h
}

// Type is what its elements are.
func (a *Array) Type() Type { return a.header.Type }

// Shape is its length along each axis.
func (a *Array) Shape() []int64 { return slices.Clone(a.header.Shape) }

// Offset is where its first element lies in the file.
func (a *Array) Offset() int64 { return a.off }

// End is where it ends in the file.
func (a *Array) End() int64 { return a.off + a.bytes }

// Bytes is how long it is.
func (a *Array) Bytes() int64 { return a.bytes }

// IsRaw tells whether it has no header.
func (a *Array) IsRaw() bool { return a.raw }

// All is a view of the whole array.
func (a *Array) All() View {
	return View{a: a, off: a.off, shape: a.Shape(), strides: slices.Clone(a.strides)}
}

// order turns AsFile into one of the others.
func (a *Array) order(o Order) Order {
	switch {
	case o != AsFile:
		return o
	case a.header.Fortran:
		return ColumnMajor
	}
	return RowMajor
}

// readAll reads exactly p.
func readAll(ctx context.Context, f File, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	_, err := f.ReadList(ctx, [][]byte{p}, seg.Contig(off, int64(len(p))))
	return whole(err)
}

// whole turns the end of the file into an error: an array has all of its elements.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return errs.New(errs.IO, "array.Read", "", io.ErrUnexpectedEOF)
	}
	return err
}
