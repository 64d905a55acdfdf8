package iod

import (
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

var target = Target{
	Server: 3,
	Object: stripe.ObjectID{File: 77, Gen: 2, Stripe: 1},
	Layout: 6,
	Cap:    [capability.Bytes]byte{1, 2, 3, 63: 9},
	Stamp:  wire.Stamp{Session: 5, Slot: 1, Seq: 2, Epoch: 3, Gen: 2, TruncSeq: 4},
	How: How{Mode: DirectReads, Policy: PolicyKeep, Streams: StreamsSingle, UnitBytes: 8 << 10,
		ChunkBytes: 12 << 10},
}

func encode(op Op, a *Args) []byte {
	var e wire.Enc
	AppendRequest(&e, op, &target, a)
	return e.B
}

func TestRequestsSurviveTheWire(t *testing.T) {
	access := seg.Strided(seg.Vector{Off: 4096, Block: 512, Dims: []seg.Dim{{Count: 8, Stride: 1024}}})
	var r Request // one for all: nothing may be left of the one before
	for _, c := range []struct {
		op Op
		a  Args
	}{
		{OpRead, Args{Access: access}},
		{OpWrite, Args{Access: seg.List([]seg.Piece{{Off: 1, Len: 2}, {Off: 9, Len: SumChunk}}),
			Durability: stripe.Durable, Sums: []uint32{7, 1 << 31}}},
		{OpPunch, Args{Off: 5, Len: 6, Durability: stripe.Durable}},
		{OpPunch, Args{Off: 5, Len: 6, Again: 3}},
		{OpWrite, Args{Access: seg.Contig(1, 2), Sums: []uint32{7}, Again: 1 << 40}},
		{OpPunch, Args{Off: 5, Len: 6, Durability: stripe.Grouped, Keep: true}},
		{OpReserve, Args{Off: 5, Len: 6, Extend: true}},
		{OpReserve, Args{Off: 5, Len: 6, Release: true}},
		{OpReserve, Args{Off: 5, Len: 6}},
		{OpMap, Args{Off: 7, Len: 8}},
		{OpTruncate, Args{Len: 9}},
		{OpSync, Args{}}, {OpStat, Args{}}, {OpRemove, Args{}}, {OpFence, Args{}},
	} {
		if err := r.Decode(c.op, target.Stamp, encode(c.op, &c.a)); err != nil {
			t.Fatalf("op %d: %v", c.op, err)
		}
		want, a := target, r.Args
		if c.op != OpRead && c.op != OpWrite {
			want.How = How{}
		}
		if d := cmp.Diff(want, r.Target); d != "" {
			t.Errorf("op %d: %s", c.op, d)
		}
		if a.Access.Len() != c.a.Access.Len() || a.Access.Span() != c.a.Access.Span() ||
			a.Durability != c.a.Durability || a.Again != c.a.Again || a.Off != c.a.Off || a.Len != c.a.Len ||
			a.Keep != c.a.Keep || a.Extend != c.a.Extend || a.Release != c.a.Release ||
			!slices.Equal(a.Sums, c.a.Sums) {
			t.Errorf("op %d: args %+v, want %+v", c.op, a, c.a)
		}
	}
}

func TestRequestsThatNoServerCanCarryOut(t *testing.T) {
	good := Args{Access: seg.Contig(0, 1), Sums: []uint32{5}}
	const how = 8 + 4 + 4 + 4 + capability.Bytes
	spoilt := func(at int, v byte) []byte {
		b := encode(OpWrite, &good)
		b[at] = v
		return b
	}
	for _, c := range []struct {
		name string
		op   Op
		body []byte
		want errs.Kind
	}{
		{"durability", OpWrite, spoilt(how+12, 7), errs.Protocol},
		{"mode", OpWrite, spoilt(how, 3), errs.Invalid},
		{"policy", OpWrite, spoilt(how+1, 5), errs.Invalid},
		{"streams", OpWrite, spoilt(how+2, 4), errs.Invalid},
		{"flags", OpWrite, spoilt(how+3, 4), errs.Protocol},
		{"a read that comes again", OpRead, spoilt(how+3, flagAgain), errs.Protocol},
		{"again without a life", OpWrite, spoilt(how+3, flagAgain), errs.Protocol},
		{"unit", OpWrite, spoilt(how+7, 1), errs.Invalid},
		{"chunk", OpWrite, spoilt(how+11, 1), errs.Invalid},
		{"sums that were not to be", OpWrite, spoilt(how+3, flagNoSums), errs.Invalid},
		{"no sums", OpWrite, encode(OpWrite, &Args{Access: seg.Contig(0, 1)}), errs.Invalid},
		{"too many sums", OpWrite, encode(OpWrite, &Args{Sums: make([]uint32, SumsMax+1)}),
			errs.Protocol},
		{"too long", OpRead, encode(OpRead, &Args{Access: seg.Contig(0, TransferMax+1)}), errs.TooBig},
		{"billion pieces", OpRead, encode(OpRead, &Args{Access: seg.Strided(seg.Vector{Block: 1,
			Dims: []seg.Dim{{Count: 1 << 30, Stride: 1}}})}), errs.TooBig},
		{"outside", OpTruncate, encode(OpTruncate, &Args{Len: stripe.MaxObjectBytes + 1}), errs.Invalid},
		{"blank that is volatile", OpPunch, encode(OpPunch, &Args{Len: 1, Keep: true}), errs.Invalid},
		{"reserve and release", OpReserve, encode(OpReserve, &Args{Len: 1, Extend: true, Release: true}),
			errs.Invalid},
		{"reserve outside", OpReserve, encode(OpReserve, &Args{Off: 5, Len: stripe.MaxObjectBytes}),
			errs.Invalid},
		{"reserve how", OpReserve, spoiltReserve(4), errs.Protocol},
		{"cut", OpSync, encode(OpSync, &Args{})[:70], errs.Protocol},
		{"left over", OpSync, append(encode(OpSync, &Args{}), 0), errs.Protocol},
	} {
		var r Request
		err := r.Decode(c.op, target.Stamp, c.body)
		if errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want kind %v", c.name, err, c.want)
		}
	}
}

func spoiltReserve(flags byte) []byte {
	b := encode(OpReserve, &Args{Len: 1})
	b[8+4+4+4+capability.Bytes] = flags
	return b
}

func TestRepliesSurviveTheWire(t *testing.T) {
	var e wire.Enc
	extents := []stripe.Extent{{Off: 0, Len: 4096, Hole: true}, {Off: 4096, Len: 1},
		{Off: 4097, Len: 5, Hole: true, Reserved: true}}
	AppendExtents(&e, extents)
	if got, err := DecodeExtents(e.B); err != nil || !cmp.Equal(got, extents) {
		t.Errorf("extents: %v %v", got, err)
	}
	e.B = e.B[:0]
	fresh := []seg.Piece{{Off: 1, Len: 2}, {Off: 5, Len: 6}}
	AppendReserved(&e, Mark{9, 7}, 77, fresh)
	mark, end, pieces, err := DecodeReserved(e.B)
	if err != nil || mark != (Mark{9, 7}) || end != 77 || !slices.Equal(pieces, fresh) {
		t.Errorf("reserved: %v %d %v %v", mark, end, pieces, err)
	}
	e.B = e.B[:0]
	info := stripe.Info{ID: target.Object, Size: 1, Allocated: 2, TruncSeq: 3}
	AppendInfo(&e, &info)
	if got, err := DecodeInfo(target.Object, e.B); err != nil || got != info {
		t.Errorf("info: %v %v", got, err)
	}
	e.B = e.B[:0]
	AppendData(&e, Mark{9, 7}, []uint32{1, 2})
	m, sums, err := DecodeData(e.B, SumChunk+1, &How{}, []uint32{0})
	if err != nil || m != (Mark{9, 7}) || !cmp.Equal(sums, []uint32{0, 1, 2}) {
		t.Errorf("data: %v %v %v", m, sums, err)
	}
	if _, _, err := DecodeData(e.B, SumChunk, &How{}, nil); errs.KindOf(err) != errs.Protocol {
		t.Errorf("two sums for one chunk: %v", err)
	}
	if _, _, err := DecodeData(e.B, SumChunk+1, &How{NoSums: true}, nil); err == nil {
		t.Error("sums that nobody asked for are accepted")
	}
	e.B = e.B[:0]
	st := Status{ID: 1, StoreID: 2, Verifier: 3, UptimeMs: 4, Space: stripe.Space{Total: 6, Free: 5},
		Counts: []Count{{"a", 1}, {"b", 2}}}
	AppendStatus(&e, &st)
	if got, err := DecodeStatus(e.B); err != nil || !cmp.Equal(got, st) {
		t.Errorf("status: %v %v", got, err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(uint16(OpRead), encode(OpRead, &Args{Access: seg.Contig(1, 2)}))
	f.Add(uint16(OpWrite), encode(OpWrite, &Args{Access: seg.List([]seg.Piece{{Off: 1, Len: 2}})}))
	f.Add(uint16(OpPunch), encode(OpPunch, &Args{Off: 1, Len: 2}))
	f.Add(uint16(OpWrite), encode(OpWrite, &Args{Access: seg.Contig(0, 1), Sums: []uint32{5}}))
	f.Add(uint16(OpReserve), encode(OpReserve, &Args{Off: 1, Len: 2, Extend: true}))
	var r Request
	f.Fuzz(func(t *testing.T, op uint16, body []byte) {
		if r.Decode(Op(op), target.Stamp, body) != nil {
			return
		}
		a := &r.Args
		if len(a.Sums) > SumsMax || r.Target.How.Validate() != nil {
			t.Fatalf("accepted %+v", r.Target.How)
		}
		if a.Access.Len() > TransferMax || a.Off < 0 || a.Len < 0 || a.Access.Pieces() > PiecesMax {
			t.Fatalf("accepted %+v", a)
		}
	})
}

func FuzzDecodeReplies(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		if x, err := DecodeExtents(body); err == nil && len(x) > ExtentsMax {
			t.Fatal("more extents than allowed")
		}
		_, _ = DecodeStatus(body)
		_, _ = DecodeMark(body)
		for _, n := range []int64{0, 1, TransferMax} {
			_, sums, err := DecodeData(body, n, &How{}, nil)
			if err == nil && len(sums) != Sums(n) {
				t.Fatalf("%d sums of %d bytes", len(sums), n)
			}
		}
		if _, _, x, err := DecodeReserved(body); err == nil && len(x) > ExtentsMax {
			t.Fatal("more pieces than allowed")
		}
		_, _ = DecodeInfo(target.Object, body)
	})
}

// TestSummingIsTheSumOfEveryChunk cuts streams in pieces at random and compares with whole chunks.
func TestSummingIsTheSumOfEveryChunk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table := crc32.MakeTable(crc32.Castagnoli)
	var s Summing
	for _, n := range []int{0, 1, SumChunk - 1, SumChunk, SumChunk + 1, 3*SumChunk + 77} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		var want []uint32
		for chunk := range slices.Chunk(data, SumChunk) {
			want = append(want, crc32.Checksum(chunk, table))
		}
		s.Reset()
		for rest := data; len(rest) > 0; {
			cut := 1 + rng.IntN(min(len(rest), 100<<10))
			s.Add(rest[:cut])
			rest = rest[cut:]
		}
		if got := s.Sums(); !slices.Equal(got, want) || len(want) != Sums(int64(n)) {
			t.Errorf("%d bytes: %x, want %x", n, got, want)
		}
	}
}
