// Package seg is the algebra of structured access: which bytes of a file, an object or a memory a
// request means. An access is a list of pieces, a list of runs of equal pieces, or a nested vector;
// a subarray of a million rows is a few dozen bytes. The bytes of an access form a stream in the
// order in which its pieces are listed, and two accesses of equal length are matched byte by byte
// along their streams (Zip).
//
// It does no I/O and holds no data. Intersection with a stripe layout is in package layout.
//
// Read seg.go first, then cursor.go and runs.go.
package seg

import (
	"math"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Piece is a contiguous run of bytes.
type Piece struct{ Off, Len int64 }

// End is the offset just behind the piece.
func (p Piece) End() int64 { return p.Off + p.Len }

// Dim repeats what is inside it Count times, Stride bytes apart.
type Dim struct{ Count, Stride int64 }

// MaxDims is how deep a vector may be nested.
const MaxDims = 8

// MaxPieces is how many listed pieces one access may have on the wire.
const MaxPieces = 64 << 10

// Vector is a nested strided access: Dims[0] is the outermost repetition, Block bytes lie at the
// innermost level. With no Dims it is one piece.
type Vector struct {
	Off   int64
	Block int64
	Dims  []Dim
}

// Access is a list of pieces, a list of runs or a vector. The zero Access is empty. It does not
// change and may be shared; it keeps the slices that it was made from, which must not change
// either.
type Access struct {
	list []Piece
	runs []Run // where there are any, list is empty
	vec  Vector
	isV  bool
}

// Contig is one piece.
func Contig(off, length int64) Access {
	return Access{vec: Vector{Off: off, Block: length}, isV: true}
}

// List is an access to the pieces in the given order. Pieces may overlap and need not be sorted.
func List(pieces []Piece) Access { return Access{list: pieces} }

// Strided is an access by a vector.
func Strided(v Vector) Access { return Access{vec: v, isV: true} }

// Len is the number of bytes in the stream.
func (a Access) Len() int64 {
	if a.isV {
		return a.vec.Block * a.vec.blocks()
	}
	n := runsLen(a.runs)
	for _, p := range a.list {
		n += p.Len
	}
	return n
}

// Pieces is the number of pieces that a full walk visits.
func (a Access) Pieces() int64 {
	if a.isV {
		return a.vec.blocks()
	}
	return int64(len(a.list)) + runsPieces(a.runs)
}

func (v *Vector) blocks() int64 {
	n := int64(1)
	for _, d := range v.Dims {
		n *= d.Count
	}
	return n
}

// Span is the smallest piece that holds every byte of the access; zero for an empty one.
func (a Access) Span() Piece {
	if a.isV {
		return a.vec.span()
	}
	if a.runs != nil {
		return runsSpan(a.runs)
	}
	var lo, hi int64 = math.MaxInt64, 0
	for _, p := range a.list {
		if p.Len > 0 {
			lo, hi = min(lo, p.Off), max(hi, p.End())
		}
	}
	if lo > hi {
		return Piece{}
	}
	return Piece{lo, hi - lo}
}

func (v *Vector) span() Piece {
	if v.Block == 0 || v.blocks() == 0 {
		return Piece{}
	}
	end := v.Off + v.Block
	for _, d := range v.Dims {
		end += (d.Count - 1) * d.Stride
	}
	return Piece{v.Off, end - v.Off}
}

// Validate refuses what a peer must not send: negative or overflowing numbers, more than maxPieces
// pieces after expansion, or a byte at or behind end. It never expands a vector to find out.
func (a Access) Validate(maxPieces, end int64) error {
	if a.isV {
		return a.vec.validate(maxPieces, end)
	}
	if a.runs != nil {
		return validateRuns(a.runs, maxPieces, end)
	}
	if int64(len(a.list)) > maxPieces {
		return tooMany(int64(len(a.list)), maxPieces)
	}
	var total int64
	for _, p := range a.list {
		if p.Off < 0 || p.Len < 0 || p.Len > end || p.Off > end-p.Len {
			return outside(p.Off, p.Len, end)
		}
		if total += p.Len; total < 0 {
			return errs.Newf(errs.Invalid, "seg.Validate", "", "access is longer than 2^63 bytes")
		}
	}
	return nil
}

func (v *Vector) validate(maxPieces, end int64) error {
	if len(v.Dims) > MaxDims {
		return errs.Newf(errs.Invalid, "seg.Validate", "", "vector nested %d deep", len(v.Dims))
	}
	if v.Off < 0 || v.Block < 0 || v.Block > end || v.Off > end-v.Block {
		return outside(v.Off, v.Block, end)
	}
	n, last := int64(1), v.Off+v.Block
	for _, d := range v.Dims {
		if d.Count < 0 || d.Stride < 0 {
			return errs.Newf(errs.Invalid, "seg.Validate", "", "negative count or stride")
		}
		if d.Count > 0 && n > maxPieces/d.Count {
			return tooMany(math.MaxInt64, maxPieces)
		}
		n *= d.Count
		if d.Count > 1 && d.Stride > (end-last)/(d.Count-1) {
			return outside(v.Off, d.Stride, end)
		}
		last += max(d.Count-1, 0) * d.Stride
	}
	if n > maxPieces {
		return tooMany(n, maxPieces)
	}
	if v.Block > 0 && n > math.MaxInt64/v.Block {
		return errs.Newf(errs.Invalid, "seg.Validate", "", "access is longer than 2^63 bytes")
	}
	return nil
}

func tooMany(n, limit int64) error {
	return errs.Newf(errs.TooBig, "seg.Validate", "", "%d pieces, at most %d", n, limit)
}

func outside(off, length, end int64) error {
	return errs.Newf(errs.Invalid, "seg.Validate", "",
		"piece at %d of %d bytes lies outside [0, %d)", off, length, end)
}

// Append adds the access to a message.
//
//	list:    |0 u8 |count u32 | count x (off u64, len u64) |
//	vector:  |1 u8 |off u64 |block u64 |dims u8 | dims x (count u64, stride u64) |
//	runs:    |2 u8 |count u32 | count x run, see runs.go |
func (a Access) Append(e *wire.Enc) {
	if a.runs != nil {
		appendRuns(e, a.runs)
		return
	}
	if !a.isV {
		e.U8(0)
		e.U32(uint32(len(a.list)))
		for _, p := range a.list {
			e.I64(p.Off)
			e.I64(p.Len)
		}
		return
	}
	e.U8(1)
	e.I64(a.vec.Off)
	e.I64(a.vec.Block)
	e.U8(uint8(len(a.vec.Dims)))
	for _, d := range a.vec.Dims {
		e.I64(d.Count)
		e.I64(d.Stride)
	}
}

// WireBytes is how many bytes Append adds.
func (a Access) WireBytes() int {
	if a.isV {
		return 1 + 8 + 8 + 1 + 16*len(a.vec.Dims)
	}
	if a.runs != nil {
		return runsBytes(a.runs)
	}
	return 1 + 4 + 16*len(a.list)
}

// Scratch is memory that DecodeInto uses again. The zero value is ready.
type Scratch struct {
	list []Piece
	dims []Dim
	runs []Run
}

// Decode takes an access off a message. The result still has to be validated against its object.
func Decode(d *wire.Dec) Access { return DecodeInto(d, &Scratch{}) }

// DecodeInto is Decode for those who decode often: the access lies in s, and is over when s is used
// again.
func DecodeInto(d *wire.Dec, s *Scratch) Access {
	switch d.U8() {
	case 0:
		n := d.Count(MaxPieces, 16)
		s.list = slices.Grow(s.list[:0], n)[:n]
		for i := range s.list {
			s.list[i] = Piece{d.Size(), d.Size()}
		}
		return List(s.list)
	case 1:
		v := Vector{Off: d.Size(), Block: d.Size()}
		n := int(d.U8())
		if n > MaxDims {
			d.Fail("vector is nested too deep")
			return Access{}
		}
		s.dims = slices.Grow(s.dims[:0], n)[:n]
		for i := range s.dims {
			s.dims[i] = Dim{d.Size(), d.Size()}
		}
		v.Dims = s.dims
		return Strided(v)
	case 2:
		s.runs = decodeRuns(d, s.runs)
		return Runs(s.runs)
	default:
		d.Fail("unknown kind of access")
		return Access{}
	}
}
