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
//	every op:        |file u64 |stripe u32 |server u32 |layout u32 |capability 64 |
//	OpRead:          |how 12 | object access (see package seg) |
//	OpWrite:         |how 12 |durability u8 | object access |count u32 | count x (sum u32) |again|
//	OpPunch:         |durability u8 |flags u8 |off u64 |length u64 |again|
//	OpMap:           |off u64 |length u64 |
//	OpTruncate:      |size u64 |
//	OpReserve:       |flags u8 |off u64 |length u64 |
//	OpSync, OpStat, OpRemove, OpFence, OpStatus, OpList: nothing
//
//	how:             |mode u8 |policy u8 |streams u8 |flags u8 |unit u32 |chunk u32 |
//	again:           |life u64 |, or nothing
//
// Bit 0 of the flags is NoSums, which only reads and writes have; bit 1, which only writes and
// punches have, says that there is an Again; bit 2, which only punches have, that the range keeps
// its space. In a Reserve bit 0 is Extend and bit 1 Release. The others are 0. A write has no sums
// where NoSums is set, and one for each SumChunk bytes of the stream else. Session, slot, sequence,
// epoch, generation and truncate sequence are in the message's header.
type Args struct {
	Access     seg.Access
	Durability stripe.Durability
	Off, Len   int64
	Sums       []uint32 // of a write's data

	// Again is above 0 for a write or punch that was acknowledged once, under an earlier verifier,
	// and is sent again because the server may have lost it: the life that it was acknowledged in,
	// as the Mark said. Without a number it must be durable: nobody would recognise it another
	// time.
	Again uint64

	Keep    bool // of a punch: the range keeps its space, see stripe.Reserver
	Extend  bool // of a reservation
	Release bool // of a reservation: it is given back
}

const (
	flagNoSums = 1 << iota
	flagAgain
	flagKeep
)

// The flags of a reservation.
const (
	flagExtend = 1 << iota
	flagRelease
)

// AppendRequest adds a request's body to e.
func AppendRequest(e *wire.Enc, op Op, t *Target, a *Args) {
	e.U64(t.Object.File)
	e.U32(t.Object.Stripe)
	e.U32(t.Server)
	e.U32(t.Layout)
	e.Raw(t.Cap[:])
	switch op {
	case OpRead:
		appendHow(e, &t.How, 0)
		a.Access.Append(e)
	case OpWrite:
		appendHow(e, &t.How, a.flags())
		e.U8(uint8(a.Durability))
		a.Access.Append(e)
		appendSums(e, a.Sums)
		a.appendAgain(e)
	case OpPunch:
		e.U8(uint8(a.Durability))
		e.U8(a.flags())
		e.I64(a.Off)
		e.I64(a.Len)
		a.appendAgain(e)
	case OpReserve:
		e.U8(a.reserveFlags())
		e.I64(a.Off)
		e.I64(a.Len)
	case OpMap:
		e.I64(a.Off)
		e.I64(a.Len)
	case OpTruncate:
		e.I64(a.Len)
	}
}

func (a *Args) flags() (flags uint8) {
	if a.Again != 0 {
		flags |= flagAgain
	}
	if a.Keep {
		flags |= flagKeep
	}
	return flags
}

func (a *Args) reserveFlags() (flags uint8) {
	if a.Extend {
		flags |= flagExtend
	}
	if a.Release {
		flags |= flagRelease
	}
	return flags
}

func (a *Args) appendAgain(e *wire.Enc) {
	if a.Again != 0 {
		e.U64(a.Again)
	}
}

func appendHow(e *wire.Enc, h *How, flags uint8) {
	if h.NoSums {
		flags |= flagNoSums
	}
	e.U8(uint8(h.Mode))
	e.U8(h.Policy)
	e.U8(h.Streams)
	e.U8(flags)
	e.U32(uint32(h.UnitBytes))
	e.U32(uint32(h.ChunkBytes))
}

// decodeHow refuses flags that are not among those known.
func decodeHow(d *wire.Dec, known uint8) (h How, flags uint8) {
	h = How{Mode: Mode(d.U8()), Policy: d.U8(), Streams: d.U8()}
	flags = decodeFlags(d, known)
	h.NoSums = flags&flagNoSums != 0
	h.UnitBytes, h.ChunkBytes = int(d.U32()), int(d.U32())
	return h, flags
}

func decodeFlags(d *wire.Dec, known uint8) uint8 {
	flags := d.U8()
	if flags&^known != 0 {
		d.Fail("unknown flags of a transfer")
	}
	return flags
}

func appendSums(e *wire.Enc, sums []uint32) {
	e.U32(uint32(len(sums)))
	for _, s := range sums {
		e.U32(s)
	}
}

// decodeSums appends what it takes to sums.
func decodeSums(d *wire.Dec, sums []uint32) []uint32 {
	for range d.Count(SumsMax, 4) {
		sums = append(sums, d.U32())
	}
	return sums
}

// Request is a decoded request. It is made to be used again: its access and sums lie in memory that
// the next Decode takes.
type Request struct {
	Target Target
	Args   Args
	pieces seg.Scratch
	sums   []uint32
}

// Decode reads a request's body. It refuses what no server could carry out: unknown durability or
// mode, accesses outside an object, more pieces or bytes than the limits, a wrong number of sums.
func (r *Request) Decode(op Op, st wire.Stamp, body []byte) error {
	d := wire.NewDec(body)
	t, a := &r.Target, &r.Args
	*a = Args{}
	t.Object = stripe.ObjectID{File: d.U64(), Gen: st.Gen, Stripe: d.U32()}
	t.Server, t.Layout = d.U32(), d.U32()
	copy(t.Cap[:], d.Raw(capability.Bytes))
	t.Stamp, t.How = st, How{}
	var flags uint8
	switch op {
	case OpRead:
		t.How, _ = decodeHow(&d, flagNoSums)
		a.Access = seg.DecodeInto(&d, &r.pieces)
	case OpWrite:
		t.How, flags = decodeHow(&d, flagNoSums|flagAgain)
		a.Durability = decodeDurability(&d)
		a.Access = seg.DecodeInto(&d, &r.pieces)
		r.sums = decodeSums(&d, r.sums[:0])
		a.Sums = r.sums
	case OpPunch:
		a.Durability = decodeDurability(&d)
		flags = decodeFlags(&d, flagAgain|flagKeep)
		a.Keep = flags&flagKeep != 0
		a.Off, a.Len = d.Size(), d.Size()
	case OpReserve:
		how := decodeFlags(&d, flagExtend|flagRelease)
		a.Extend, a.Release = how&flagExtend != 0, how&flagRelease != 0
		a.Off, a.Len = d.Size(), d.Size()
	case OpMap:
		a.Off, a.Len = d.Size(), d.Size()
	case OpTruncate:
		a.Len = d.Size()
	}
	if flags&flagAgain != 0 {
		if a.Again = d.U64(); a.Again == 0 {
			d.Fail("sent again, of no life")
		}
	}
	if err := d.Done(); err != nil {
		return err
	}
	if err := t.How.Validate(); err != nil {
		return err
	}
	return a.validate(op, &t.How, st)
}

func decodeDurability(d *wire.Dec) stripe.Durability {
	v := stripe.Durability(d.U8())
	if v > stripe.Grouped {
		d.Fail("unknown durability")
	}
	return v
}

func (a *Args) validate(op Op, h *How, st wire.Stamp) error {
	if a.Again != 0 && !stripe.Numbered(st) && a.Durability == stripe.Volatile {
		return errs.Newf(errs.Invalid, "iod.Decode", "", "sent again without a number, and volatile")
	}
	if a.Keep && (a.Again != 0 || a.Durability == stripe.Volatile) || a.Extend && a.Release {
		return errs.Newf(errs.Invalid, "iod.Decode", "", "flags that contradict each other")
	}
	switch op {
	case OpRead, OpWrite:
		if err := a.Access.Validate(PiecesMax, stripe.MaxObjectBytes); err != nil {
			return err
		}
		n := a.Access.Len()
		if n > TransferMax {
			return errs.Newf(errs.TooBig, "iod.Decode", "",
				"%d bytes in one request, at most %d", n, TransferMax)
		}
		want := Sums(n)
		if h.NoSums {
			want = 0
		}
		if op == OpWrite && len(a.Sums) != want {
			return errs.Newf(errs.Invalid, "iod.Decode", "",
				"%d checksums for %d bytes, want %d", len(a.Sums), n, want)
		}
	case OpPunch, OpMap, OpTruncate, OpReserve:
		return seg.Contig(a.Off, a.Len).Validate(1, stripe.MaxObjectBytes)
	}
	return nil
}

// AppendMark adds a Mark to a reply.
//
//	|verifier u64 |life u64 |
func AppendMark(e *wire.Enc, m Mark) {
	e.U64(m.Verifier)
	e.U64(m.Life)
}

// DecodeMark reads a reply that is a Mark.
func DecodeMark(body []byte) (Mark, error) {
	d := wire.NewDec(body)
	m := Mark{Verifier: d.U64(), Life: d.U64()}
	return m, d.Done()
}

// AppendData adds the reply to a read: a Mark and the sums of the data, none where the request said
// NoSums.
//
//	|verifier u64 |life u64 |count u32 | count x (sum u32) |
func AppendData(e *wire.Enc, m Mark, sums []uint32) {
	AppendMark(e, m)
	appendSums(e, sums)
}

// DecodeData reads the reply to a read of n bytes; the sums are appended to sums. A reply with
// another number of them than the data has, or asked for none, is refused.
func DecodeData(body []byte, n int64, h *How, sums []uint32) (Mark, []uint32, error) {
	d := wire.NewDec(body)
	m := Mark{Verifier: d.U64(), Life: d.U64()}
	have := len(sums)
	sums = decodeSums(&d, sums)
	want := Sums(n)
	if h.NoSums {
		want = 0
	}
	if d.Err() == nil && len(sums)-have != want {
		d.Fail("wrong number of checksums")
	}
	return m, sums, d.Done()
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

// AppendReserved adds the reply to a Reserve.
//
//	|verifier u64 |life u64 |end u64 |count u32 | count x (off u64, length u64) |
func AppendReserved(e *wire.Enc, m Mark, end int64, fresh []seg.Piece) {
	AppendMark(e, m)
	e.I64(end)
	e.U32(uint32(len(fresh)))
	for _, p := range fresh {
		e.I64(p.Off)
		e.I64(p.Len)
	}
}

// DecodeReserved reads the reply to a Reserve.
func DecodeReserved(body []byte) (m Mark, end int64, fresh []seg.Piece, err error) {
	d := wire.NewDec(body)
	m = Mark{Verifier: d.U64(), Life: d.U64()}
	end = d.Size()
	fresh = make([]seg.Piece, d.Count(ExtentsMax, 16))
	for i := range fresh {
		fresh[i] = seg.Piece{Off: d.Size(), Len: d.Size()}
	}
	return m, end, fresh, d.Done()
}

// AppendExtents adds a map to a reply.
//
//	|count u32 | count x (off u64, length u64, kind u8) |
//
// The kind is 0 for data, 1 for a hole, 2 for one that is reserved.
func AppendExtents(e *wire.Enc, x []stripe.Extent) {
	e.U32(uint32(len(x)))
	for i := range x {
		e.I64(x[i].Off)
		e.I64(x[i].Len)
		switch {
		case x[i].Reserved:
			e.U8(2)
		case x[i].Hole:
			e.U8(1)
		default:
			e.U8(0)
		}
	}
}

// DecodeExtents reads a reply that is a map.
func DecodeExtents(body []byte) ([]stripe.Extent, error) {
	d := wire.NewDec(body)
	x := make([]stripe.Extent, d.Count(ExtentsMax, 17))
	for i := range x {
		x[i] = stripe.Extent{Off: d.Size(), Len: d.Size()}
		kind := d.U8()
		if kind > 2 {
			d.Fail("unknown kind of an extent")
		}
		x[i].Hole, x[i].Reserved = kind != 0, kind == 2
	}
	return x, d.Done()
}

// AppendObjects adds a page of a List to a reply.
//
//	|count u32 | count x (file u64, generation u32, stripe u32) |
func AppendObjects(e *wire.Enc, ids []stripe.ObjectID) {
	e.U32(uint32(len(ids)))
	for _, id := range ids {
		e.U64(id.File)
		e.U32(id.Gen)
		e.U32(id.Stripe)
	}
}

// DecodeObjects reads a reply that is a page of a List.
func DecodeObjects(body []byte) ([]stripe.ObjectID, error) {
	d := wire.NewDec(body)
	ids := make([]stripe.ObjectID, d.Count(InfosMax, 16))
	for i := range ids {
		ids[i] = stripe.ObjectID{File: d.U64(), Gen: d.U32(), Stripe: d.U32()}
	}
	return ids, d.Done()
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
