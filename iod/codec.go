package iod

import (
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// Args are the fields of a request body behind the target. Which ones count depends on the op.
//
//	every op:        |file u64 |stripe u32 |server u32 |capability 64 |
//	OpRead:          | object access (see package seg) |
//	OpWrite:         |durability u8 | object access |
//	OpPunch:         |durability u8 |off u64 |length u64 |
//	OpMap:           |off u64 |length u64 |
//	OpTruncate:      |size u64 |
//	OpSync, OpStat, OpRemove, OpFence, OpStatus: nothing
//
// Session, slot, sequence, epoch, generation and truncate sequence are in the message's header.
type Args struct {
	Access     seg.Access
	Durability stripe.Durability
	Off, Len   int64
}

// AppendRequest adds a request's body to e.
func AppendRequest(e *wire.Enc, op Op, t *Target, a *Args) {
	e.U64(t.Object.File)
	e.U32(t.Object.Stripe)
	e.U32(t.Server)
	e.Raw(t.Cap[:])
	switch op {
	case OpRead:
		a.Access.Append(e)
	case OpWrite:
		e.U8(uint8(a.Durability))
		a.Access.Append(e)
	case OpPunch:
		e.U8(uint8(a.Durability))
		e.I64(a.Off)
		e.I64(a.Len)
	case OpMap:
		e.I64(a.Off)
		e.I64(a.Len)
	case OpTruncate:
		e.I64(a.Len)
	}
}

// DecodeRequest reads a request's body. It refuses what no server could carry out: unknown
// durability, accesses outside an object, more pieces or bytes than the limits.
func DecodeRequest(op Op, st wire.Stamp, body []byte) (t Target, a Args, err error) {
	d := wire.NewDec(body)
	t.Object = stripe.ObjectID{File: d.U64(), Gen: st.Gen, Stripe: d.U32()}
	t.Server = d.U32()
	copy(t.Cap[:], d.Raw(capability.Bytes))
	t.Stamp = st
	switch op {
	case OpRead:
		a.Access = seg.Decode(&d)
	case OpWrite:
		a.Durability = decodeDurability(&d)
		a.Access = seg.Decode(&d)
	case OpPunch:
		a.Durability = decodeDurability(&d)
		a.Off, a.Len = d.Size(), d.Size()
	case OpMap:
		a.Off, a.Len = d.Size(), d.Size()
	case OpTruncate:
		a.Len = d.Size()
	}
	if err := d.Done(); err != nil {
		return t, a, err
	}
	return t, a, a.validate(op)
}

func decodeDurability(d *wire.Dec) stripe.Durability {
	v := stripe.Durability(d.U8())
	if v > stripe.Durable {
		d.Fail("unknown durability")
	}
	return v
}

func (a *Args) validate(op Op) error {
	switch op {
	case OpRead, OpWrite:
		if err := a.Access.Validate(PiecesMax, stripe.MaxObjectBytes); err != nil {
			return err
		}
		if n := a.Access.Len(); n > TransferMax {
			return errs.Newf(errs.TooBig, "iod.Decode", "",
				"%d bytes in one request, at most %d", n, TransferMax)
		}
	case OpPunch, OpMap, OpTruncate:
		return seg.Contig(a.Off, a.Len).Validate(1, stripe.MaxObjectBytes)
	}
	return nil
}

// AppendMark adds a Mark to a reply.
//
//	|verifier u64 |
func AppendMark(e *wire.Enc, m Mark) { e.U64(m.Verifier) }

// DecodeMark reads a reply that is a Mark.
func DecodeMark(body []byte) (Mark, error) {
	d := wire.NewDec(body)
	m := Mark{Verifier: d.U64()}
	return m, d.Done()
}

// AppendInfo adds an object's Info to a reply.
//
//	|size u64 |allocated u64 |truncate sequence u64 |
func AppendInfo(e *wire.Enc, i *stripe.Info) {
	e.I64(i.Size)
	e.I64(i.Allocated)
	e.U64(i.TruncSeq)
}

// DecodeInfo reads a reply that is an Info of object id.
func DecodeInfo(id stripe.ObjectID, body []byte) (stripe.Info, error) {
	d := wire.NewDec(body)
	i := stripe.Info{ID: id, Size: d.Size(), Allocated: d.Size(), TruncSeq: d.U64()}
	return i, d.Done()
}

// AppendExtents adds a map to a reply.
//
//	|count u32 | count x (off u64, length u64, hole u8) |
func AppendExtents(e *wire.Enc, x []stripe.Extent) {
	e.U32(uint32(len(x)))
	for i := range x {
		e.I64(x[i].Off)
		e.I64(x[i].Len)
		e.Bool(x[i].Hole)
	}
}

// DecodeExtents reads a reply that is a map.
func DecodeExtents(body []byte) ([]stripe.Extent, error) {
	d := wire.NewDec(body)
	x := make([]stripe.Extent, d.Count(ExtentsMax, 17))
	for i := range x {
		x[i] = stripe.Extent{Off: d.Size(), Len: d.Size(), Hole: d.Bool()}
	}
	return x, d.Done()
}

// AppendStatus adds a Status to a reply.
//
//	|id u32 |store id u64 |verifier u64 |uptime ms u64 |total u64 |free u64 |
//	|count u32 | count x (name, value u64) |
func AppendStatus(e *wire.Enc, s *Status) {
	e.U32(s.ID)
	e.U64(s.StoreID)
	e.U64(s.Verifier)
	e.U64(s.UptimeMs)
	e.I64(s.Space.Total)
	e.I64(s.Space.Free)
	e.U32(uint32(len(s.Counts)))
	for _, c := range s.Counts {
		e.String(c.Name)
		e.U64(c.Value)
	}
}

// DecodeStatus reads a reply that is a Status.
func DecodeStatus(body []byte) (Status, error) {
	d := wire.NewDec(body)
	s := Status{ID: d.U32(), StoreID: d.U64(), Verifier: d.U64(), UptimeMs: d.U64()}
	s.Space = stripe.Space{Total: d.Size(), Free: d.Size()}
	s.Counts = make([]Count, d.Count(1024, 12))
	for i := range s.Counts {
		s.Counts[i] = Count{Name: d.String(64), Value: d.U64()}
	}
	return s, d.Done()
}
