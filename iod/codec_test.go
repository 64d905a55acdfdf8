package iod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

var target = Target{
	Server: 3,
	Object: stripe.ObjectID{File: 77, Gen: 2, Stripe: 1},
	Cap:    [64]byte{1, 2, 3, 63: 9},
	Stamp:  wire.Stamp{Session: 5, Slot: 1, Seq: 2, Epoch: 3, Gen: 2, TruncSeq: 4},
}

func encode(op Op, a *Args) []byte {
	var e wire.Enc
	AppendRequest(&e, op, &target, a)
	return e.B
}

func TestRequestsSurviveTheWire(t *testing.T) {
	access := seg.Strided(seg.Vector{Off: 4096, Block: 512, Dims: []seg.Dim{{Count: 8, Stride: 1024}}})
	for _, c := range []struct {
		op Op
		a  Args
	}{
		{OpRead, Args{Access: access}},
		{OpWrite, Args{Access: seg.List([]seg.Piece{{Off: 1, Len: 2}}), Durability: stripe.Durable}},
		{OpPunch, Args{Off: 5, Len: 6, Durability: stripe.Durable}},
		{OpMap, Args{Off: 7, Len: 8}},
		{OpTruncate, Args{Len: 9}},
		{OpSync, Args{}}, {OpStat, Args{}}, {OpRemove, Args{}}, {OpFence, Args{}},
	} {
		got, a, err := DecodeRequest(c.op, target.Stamp, encode(c.op, &c.a))
		if err != nil {
			t.Fatalf("op %d: %v", c.op, err)
		}
		if d := cmp.Diff(target, got); d != "" {
			t.Errorf("op %d: %s", c.op, d)
		}
		if a.Access.Len() != c.a.Access.Len() || a.Access.Span() != c.a.Access.Span() ||
			a.Durability != c.a.Durability || a.Off != c.a.Off || a.Len != c.a.Len {
			t.Errorf("op %d: args %+v, want %+v", c.op, a, c.a)
		}
	}
}

func TestRequestsThatNoServerCanCarryOut(t *testing.T) {
	bad := encode(OpWrite, &Args{Access: seg.Contig(0, 1)})
	bad[len(bad)-seg.Contig(0, 1).WireBytes()-1] = 7
	for _, c := range []struct {
		name string
		op   Op
		body []byte
		want errs.Kind
	}{
		{"durability", OpWrite, bad, errs.Protocol},
		{"too long", OpRead, encode(OpRead, &Args{Access: seg.Contig(0, TransferMax+1)}), errs.TooBig},
		{"billion pieces", OpRead, encode(OpRead, &Args{Access: seg.Strided(seg.Vector{Block: 1,
			Dims: []seg.Dim{{Count: 1 << 30, Stride: 1}}})}), errs.TooBig},
		{"outside", OpTruncate, encode(OpTruncate, &Args{Len: stripe.MaxObjectBytes + 1}), errs.Invalid},
		{"cut", OpSync, encode(OpSync, &Args{})[:70], errs.Protocol},
		{"left over", OpSync, append(encode(OpSync, &Args{}), 0), errs.Protocol},
	} {
		_, _, err := DecodeRequest(c.op, target.Stamp, c.body)
		if errs.KindOf(err) != c.want {
			t.Errorf("%s: %v, want kind %v", c.name, err, c.want)
		}
	}
}

func TestRepliesSurviveTheWire(t *testing.T) {
	var e wire.Enc
	extents := []stripe.Extent{{Off: 0, Len: 4096, Hole: true}, {Off: 4096, Len: 1}}
	AppendExtents(&e, extents)
	if got, err := DecodeExtents(e.B); err != nil || !cmp.Equal(got, extents) {
		t.Errorf("extents: %v %v", got, err)
	}
	e.B = e.B[:0]
	info := stripe.Info{ID: target.Object, Size: 1, Allocated: 2, TruncSeq: 3}
	AppendInfo(&e, &info)
	if got, err := DecodeInfo(target.Object, e.B); err != nil || got != info {
		t.Errorf("info: %v %v", got, err)
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
	f.Fuzz(func(t *testing.T, op uint16, body []byte) {
		_, a, err := DecodeRequest(Op(op), target.Stamp, body)
		if err != nil {
			return
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
		_, _ = DecodeInfo(target.Object, body)
	})
}
