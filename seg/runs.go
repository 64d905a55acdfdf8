package seg

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/wire"
)

// Run is one piece, or Count equal pieces whose beginnings are Stride bytes apart. What a vector
// becomes when a striped file cuts it is a few runs for each stripe unit.
type Run struct {
	Piece
	Count, Stride int64 // Count at least 1; Stride counts where there are more
}

// last is the offset of the run's last piece.
func (r *Run) last() int64 { return r.Off + (r.Count-1)*r.Stride }

// Runs is an access to the pieces of the runs, in the given order. Runs may overlap.
func Runs(runs []Run) Access { return Access{runs: runs} }

func runsLen(runs []Run) (n int64) {
	for i := range runs {
		n += runs[i].Len * runs[i].Count
	}
	return n
}

func runsPieces(runs []Run) (n int64) {
	for i := range runs {
		n += runs[i].Count
	}
	return n
}

func runsSpan(runs []Run) Piece {
	var lo, hi int64 = math.MaxInt64, 0
	for i := range runs {
		if runs[i].Len > 0 {
			lo, hi = min(lo, runs[i].Off), max(hi, runs[i].last()+runs[i].Len)
		}
	}
	if lo > hi {
		return Piece{}
	}
	return Piece{lo, hi - lo}
}

func validateRuns(runs []Run, maxPieces, end int64) error {
	var total, pieces int64
	for i := range runs {
		r := &runs[i]
		if r.Count < 1 || r.Stride < 0 {
			return errs.Newf(errs.Invalid, "seg.Validate", "", "a run without pieces, or backwards")
		}
		if r.Count > maxPieces-pieces {
			return tooMany(math.MaxInt64, maxPieces)
		}
		pieces += r.Count
		if r.Off < 0 || r.Len < 0 || r.Len > end || r.Off > end-r.Len {
			return outside(r.Off, r.Len, end)
		}
		if r.Count > 1 && r.Stride > (end-r.Len-r.Off)/(r.Count-1) {
			return outside(r.Off, r.Stride, end)
		}
		if r.Len > 0 && r.Count > (math.MaxInt64-total)/r.Len {
			return errs.Newf(errs.Invalid, "seg.Validate", "", "access is longer than 2^63 bytes")
		}
		total += r.Len * r.Count
	}
	return nil
}

// Runs on the wire are numbers of variable length (as protocol buffers have them: seven bits a
// byte, the lowest first), because what repeats in them is small: lengths, and gaps.
//
//	|2 u8 |count u32 | count x run |
//	run: |gap zigzag |len |count | and, where count is above 1: |stride |
//
// The gap is from the end of the piece before it, 0 at first, to the run's first piece.
func appendRuns(e *wire.Enc, runs []Run) {
	e.U8(2)
	e.U32(uint32(len(runs)))
	var at int64
	for i := range runs {
		r := &runs[i]
		e.B = binary.AppendVarint(e.B, r.Off-at)
		e.B = binary.AppendUvarint(e.B, uint64(r.Len))
		e.B = binary.AppendUvarint(e.B, uint64(r.Count))
		if r.Count > 1 {
			e.B = binary.AppendUvarint(e.B, uint64(r.Stride))
		}
		at = r.last() + r.Len
	}
}

// runBytes is what a run takes on the wire behind a piece that ends at.
func runBytes(r *Run, at int64) int {
	var b [4 * binary.MaxVarintLen64]byte
	n := binary.PutVarint(b[:], r.Off-at)
	n += binary.PutUvarint(b[n:], uint64(r.Len))
	n += binary.PutUvarint(b[n:], uint64(r.Count))
	if r.Count > 1 {
		n += binary.PutUvarint(b[n:], uint64(r.Stride))
	}
	return n
}

func runsBytes(runs []Run) int {
	n, at := runsFixed, int64(0)
	for i := range runs {
		n += runBytes(&runs[i], at)
		at = runs[i].last() + runs[i].Len
	}
	return n
}

const (
	runsFixed    = 1 + 4 // of runs on the wire
	runBytesMin  = 3
	runBytesMost = 4 * binary.MaxVarintLen64
)

// decodeRuns takes runs off a message. It refuses what no sender of this build writes and what
// would overflow; the rest is Validate's.
func decodeRuns(d *wire.Dec, runs []Run) []Run {
	n := d.Count(MaxPieces, runBytesMin)
	runs = slices.Grow(runs[:0], n)[:0]
	var at int64
	for range n {
		gap := varint(d)
		r := Run{Piece: Piece{Off: at + gap, Len: size(d)}, Count: size(d)}
		if r.Count > 1 {
			r.Stride = size(d)
		}
		bad := r.Count < 1 || gap > 0 && r.Off < at || r.Off < 0 || r.Len > math.MaxInt64-r.Off
		if !bad && r.Count > 1 {
			bad = r.Stride > (math.MaxInt64-r.Off-r.Len)/(r.Count-1)
		}
		if bad {
			d.Fail("a run of pieces outside of the address space")
		}
		if d.Err() != nil {
			return nil
		}
		runs = append(runs, r)
		at = r.last() + r.Len
	}
	return runs
}

func varint(d *wire.Dec) int64 {
	v, n := binary.Varint(d.Rest())
	return take(d, v, n)
}

func size(d *wire.Dec) int64 {
	v, n := binary.Uvarint(d.Rest())
	if v > math.MaxInt64 {
		n = 0
	}
	return take(d, int64(v), n)
}

// take takes a number of n bytes off the message.
func take(d *wire.Dec, v int64, n int) int64 {
	if n <= 0 {
		d.Fail("a number of variable length that does not end, or is too large")
		return 0
	}
	d.Raw(n)
	return v
}

// Packer makes the shortest form of a stream of pieces as they come, in memory that grows with the
// number of runs, not of pieces. The zero value is ready.
type Packer struct {
	runs  []Run
	bytes int  // on the wire, of all runs but the last
	shut  bool // the last run takes no more
	sure  int  // so many of the first runs do not change any more
	Len   int64
	Count int64 // pieces so far
}

// Add appends a piece. It melts into the piece before it where the two touch.
func (k *Packer) Add(p Piece) {
	if p.Len == 0 {
		return
	}
	k.Len += p.Len
	if n := len(k.runs); n > 0 && !k.shut && k.join(&k.runs[n-1], p) {
		return
	}
	k.push(Run{Piece: p, Count: 1})
	k.Count++
}

// AddRun appends all pieces of a run.
func (k *Packer) AddRun(r Run) {
	if r.Count == 1 || r.Stride == r.Len {
		r.Len *= r.Count
		k.Add(r.Piece)
		return
	}
	if k.Add(r.Piece); r.Len == 0 {
		return
	}
	r.Off, r.Count = r.Off+r.Stride, r.Count-1
	k.push(r)
	k.Len += r.Len * r.Count
	k.Count += r.Count
	k.settle()
}

// Cut makes the next piece begin a run of its own.
func (k *Packer) Cut() {
	k.settle()
	k.shut, k.sure = true, len(k.runs)
}

func (k *Packer) push(r Run) {
	k.settle()
	if n := len(k.runs); n > 0 {
		k.bytes += runBytes(&k.runs[n-1], k.endOf(n-2))
	}
	k.runs, k.shut = append(k.runs, r), false
}

// endOf is where the last piece of a run ends; 0 for the run before the first.
func (k *Packer) endOf(nth int) int64 {
	if nth < 0 {
		return 0
	}
	return k.runs[nth].last() + k.runs[nth].Len
}

// settle makes the last run a part of the one before it, if it goes on with that: a piece that has
// come in parts may be one of many equal ones.
func (k *Packer) settle() {
	n := len(k.runs)
	if n-k.sure < 2 {
		return
	}
	old, r := &k.runs[n-2], &k.runs[n-1]
	gap := r.Off - old.last()
	if r.Len != old.Len || gap < 0 || old.Count > 1 && old.Stride != gap ||
		r.Count > 1 && r.Stride != gap {
		return
	}
	k.bytes -= runBytes(old, k.endOf(n-3))
	old.Count, old.Stride = old.Count+r.Count, gap
	k.runs = k.runs[:n-1]
}

// join makes a piece part of the last run, if that goes on with it.
func (k *Packer) join(r *Run, p Piece) bool {
	gap := p.Off - r.last()
	switch {
	case gap == r.Len && r.Count == 1:
		r.Len += p.Len
	case gap == r.Len: // the last of several grows: it is none of them any more
		r.Count--
		k.push(Run{Piece: Piece{p.Off - r.Len, r.Len + p.Len}, Count: 1})
	case p.Len == r.Len && gap >= 0 && (r.Count == 1 || r.Stride == gap):
		r.Count, r.Stride = r.Count+1, gap
		k.Count++
	default:
		return false
	}
	return true
}

// WireMax is an upper bound of what the access takes on the wire, also with one piece more.
func (k *Packer) WireMax() int { return runsFixed + k.bytes + 3*runBytesMost }

// Runs are the runs so far. They are the Packer's.
func (k *Packer) Runs() []Run {
	k.settle()
	return k.runs
}

// Access is the access in its shortest form. It keeps the Packer's memory: Reset follows, or
// nothing.
func (k *Packer) Access() Access {
	k.settle()
	if len(k.runs) != 1 {
		return Runs(k.runs)
	}
	r := &k.runs[0]
	if r.Count == 1 {
		return Contig(r.Off, r.Len)
	}
	return Strided(Vector{Off: r.Off, Block: r.Len, Dims: []Dim{{r.Count, r.Stride}}})
}

// Reset begins anew, with memory of its own.
func (k *Packer) Reset() { *k = Packer{} }
