package meta

import (
	"bytes"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta/acl"
	"github.com/sluice-storage/sluice/wire"
)

// Limits of what a decoder accepts, beside those of types.go.
const (
	clientMax = 255
	addrMax   = 1024    // as many places as package peer takes
	RenewMax  = 1024    // handles of one Renew
	listMax   = 1 << 20 // servers of one answer; the message's size bounds them before
	xattrsMax = 64 << 10
	pathMax   = 4 << 10 // of a quota's directory
)

// field is a part of Args or Result on the wire.
type field[T any] struct {
	enc func(e *wire.Enc, v *T)
	dec func(d *wire.Dec, v *T)
}

type (
	args   = []field[Args]
	result = []field[Result]
)

// Append adds the bytes of the arguments to b.
func (a *Args) Append(op Op, b []byte) []byte { return appendFields(ops[op].args, a, b) }

// Append adds the bytes of the answer to b.
func (r *Result) Append(op Op, b []byte) []byte { return appendFields(ops[op].res, r, b) }

// Decode reads arguments; errs.Protocol if they are malformed, errs.Unsupported if op is unknown.
func (a *Args) Decode(op Op, b []byte) error {
	if !op.Valid() {
		return errs.Newf(errs.Unsupported, "meta.Decode", "", "unknown operation %d", op)
	}
	return decodeFields(op, ops[op].args, a, b)
}

// Decode reads an answer; errs.Protocol if it is malformed.
func (r *Result) Decode(op Op, b []byte) error { return decodeFields(op, ops[op].res, r, b) }

func appendFields[T any](fields []field[T], v *T, b []byte) []byte {
	e := wire.Enc{B: b}
	for i := range fields {
		fields[i].enc(&e, v)
	}
	return e.B
}

func decodeFields[T any](op Op, fields []field[T], v *T, b []byte) error {
	d := wire.NewDec(b)
	for i := range fields {
		fields[i].dec(&d, v)
	}
	return errs.Wrap("meta.Decode", op.String(), d.Done())
}

// encAttr: the numbers in the order of the struct, then the layout.
//
//	|ino u64 |type u8 |mode u32 |uid u32 |gid u32 |nlink u32 |rdev u32 |size i64 |
//	|atime |mtime |ctime |btime |gen u32 |truncseq u64 |dataversion u64 |writers u8 |
//	|holes u8 |allocated i64 |small u8 |xattrs u8 |lease u8 |serial u64 |lists u8 |
//	|access list |default list |parent u64 |layout |
//
// The bits of lists say which of the two there are: 1 and 2. Only directories have a parent.
func encAttr(e *wire.Enc, a *Attr) {
	e.U64(uint64(a.Ino))
	e.U8(uint8(a.Type))
	for _, v := range [...]uint32{a.Mode, a.UID, a.GID, a.Nlink, a.Rdev} {
		e.U32(v)
	}
	e.I64(a.Size)
	for _, v := range [...]*Time{&a.Atime, &a.Mtime, &a.Ctime, &a.Btime} {
		v.Append(e)
	}
	e.U32(a.Gen)
	e.U64(a.TruncSeq)
	e.U64(a.DataVersion)
	e.Bool(a.Writers)
	e.Bool(a.Holes)
	e.I64(a.Allocated)
	e.Bool(a.Small)
	e.Bool(a.Xattrs)
	e.U8(uint8(a.Lease))
	e.U64(a.Serial)
	encLists(e, a)
	if a.Type == Directory {
		e.U64(uint64(a.Parent))
	}
	a.Layout.Append(e)
}

func decAttr(d *wire.Dec, a *Attr) {
	a.Ino = Ino(d.U64())
	a.Type = Type(d.U8())
	for _, v := range [...]*uint32{&a.Mode, &a.UID, &a.GID, &a.Nlink, &a.Rdev} {
		*v = d.U32()
	}
	a.Size = d.I64()
	for _, v := range [...]*Time{&a.Atime, &a.Mtime, &a.Ctime, &a.Btime} {
		v.Decode(d)
	}
	a.Gen = d.U32()
	a.TruncSeq = d.U64()
	a.DataVersion = d.U64()
	a.Writers = d.Bool()
	a.Holes = d.Bool()
	a.Allocated = d.I64()
	a.Small = d.Bool()
	a.Xattrs = d.Bool()
	a.Lease = LeaseMode(d.U8())
	a.Serial = d.U64()
	decLists(d, a)
	if a.Type == Directory {
		a.Parent = Ino(d.U64())
	}
	a.Layout = layout.Decode(d)
}

// Which lists there are.
const (
	listAccess = 1 << iota
	listDefault
)

func encLists(e *wire.Enc, a *Attr) {
	var which uint8
	if a.ACL != "" {
		which |= listAccess
	}
	if a.Default != "" {
		which |= listDefault
	}
	e.U8(which)
	if a.ACL != "" {
		e.String(string(a.ACL))
	}
	if a.Default != "" {
		e.String(string(a.Default))
	}
}

func decLists(d *wire.Dec, a *Attr) {
	which := d.U8()
	if which&^(listAccess|listDefault) != 0 {
		d.Fail("unknown lists")
	}
	if which&listAccess != 0 {
		a.ACL = DecodeList(d)
	}
	if which&listDefault != 0 {
		a.Default = DecodeList(d)
	}
}

// DecodeList takes an access control list that is there, and sound.
func DecodeList(d *wire.Dec) acl.List {
	raw := d.Bytes(acl.BytesMax)
	l, err := acl.Parse(raw)
	if d.Err() == nil && (err != nil || l == "" || string(l) != string(raw)) {
		d.Fail("an access control list that is none")
	}
	return l
}

// encHandle:
// |id u64 |attr |hints |bounded u8 |grow to i64 |count u32 |count x capability |data |.
func encHandle(e *wire.Enc, h *Handle) {
	e.U64(h.ID)
	encAttr(e, &h.Attr)
	h.Hints.Append(e)
	e.Bool(h.Bounded)
	e.I64(h.GrowTo)
	e.U32(h.Epoch)
	e.U32(uint32(len(h.Caps)))
	for i := range h.Caps {
		e.Raw(h.Caps[i][:])
	}
	encData(e, &h.Data)
}

func decHandle(d *wire.Dec, h *Handle) {
	h.ID = d.U64()
	decAttr(d, &h.Attr)
	h.Hints = hint.Decode(d)
	h.Bounded = d.Bool()
	h.GrowTo = d.I64()
	h.Epoch = d.U32()
	if n := d.Count(layout.WidthMax, capability.Bytes); n > 0 {
		h.Caps = make([][capability.Bytes]byte, n)
	}
	for i := range h.Caps {
		copy(h.Caps[i][:], d.Raw(capability.Bytes))
	}
	decData(d, &h.Data)
}

// encData is a small file's data in an answer: |given u8 |length u32 |data |. It is the decoder's
// to keep.
func encData(e *wire.Enc, b *[]byte) {
	e.Bool(*b != nil)
	if *b != nil {
		e.Bytes(*b)
	}
}

func decData(d *wire.Dec, b *[]byte) {
	if *b = nil; d.Bool() {
		*b = append([]byte{}, d.Bytes(SmallMax)...)
	}
}

// encFound: |dir attr |present u8 |attr |cookie u64 |target |data |, all behind present only if it
// is set.
func encFound(e *wire.Enc, f *Found) {
	encAttr(e, &f.Dir)
	e.Bool(f.Present)
	if f.Present {
		encAttr(e, &f.Attr)
		e.U64(f.Cookie)
		e.String(f.Target)
		encData(e, &f.Data)
	}
}

func decFound(d *wire.Dec, f *Found) {
	decAttr(d, &f.Dir)
	if f.Present = d.Bool(); f.Present {
		decAttr(d, &f.Attr)
		f.Cookie = d.U64()
		f.Target = d.String(SymlinkMax)
		decData(d, &f.Data)
	}
}

// encChange: |ino u64 |size i64 |truncseq u64 |mtime |holes u8 |age i64 |epoch u64 |whole u8 |
// data |, the data only if whole is set.
func encChange(e *wire.Enc, c *Change) {
	e.U64(uint64(c.Ino))
	e.I64(c.Size)
	e.U64(c.TruncSeq)
	c.Mtime.Append(e)
	e.Bool(c.Holes)
	e.I64(int64(c.Age))
	e.U64(c.Epoch)
	e.Bool(c.Whole)
	if c.Whole {
		e.Bytes(c.Data)
	}
}

func decChange(d *wire.Dec, c *Change) {
	c.Ino = Ino(d.U64())
	c.Size = d.I64()
	c.TruncSeq = d.U64()
	c.Mtime.Decode(d)
	c.Holes = d.Bool()
	c.Age = time.Duration(d.I64())
	c.Epoch = d.U64()
	if c.Whole = d.Bool(); c.Whole {
		c.Data = d.Bytes(SmallMax)
	}
}

// encClosing: |handle u64 |spilled u64 |dirty u8 |change |, the change only if dirty is set.
func encClosing(e *wire.Enc, c *Closing) {
	e.U64(c.Handle)
	e.U64(uint64(c.Spilled))
	e.Bool(c.Dirty)
	if c.Dirty {
		encChange(e, &c.Change)
	}
}

func decClosing(d *wire.Dec, c *Closing) {
	c.Handle = d.U64()
	c.Spilled = Spilled(d.U64())
	if c.Dirty = d.Bool(); c.Dirty {
		decChange(d, &c.Change)
	}
}

// encRecall: |ino u64 |serial u64 |move out u8 |.
func encRecall(e *wire.Enc, r *Recall) {
	e.U64(uint64(r.Ino))
	e.U64(r.Serial)
	e.Bool(r.MoveOut)
}

func decRecall(d *wire.Dec, r *Recall) {
	r.Ino = Ino(d.U64())
	r.Serial = d.U64()
	r.MoveOut = d.Bool()
}

// encClaimed: |handle u64 |ino u64 |flags u8 |uid u32 |write u8 |dataversion u64 |spilled u64 |
// |epoch u32 |.
func encClaimed(e *wire.Enc, c *Claimed) {
	e.U64(c.Handle)
	e.U64(uint64(c.Ino))
	e.U8(uint8(c.Flags))
	e.U32(c.UID)
	e.Bool(c.Write)
	e.U64(c.DataVersion)
	e.U64(uint64(c.Spilled))
	e.U32(c.Epoch)
}

func decClaimed(d *wire.Dec, c *Claimed) {
	c.Handle = d.U64()
	c.Ino = Ino(d.U64())
	c.Flags = OpenFlags(d.U8())
	c.UID = d.U32()
	c.Write = d.Bool()
	c.DataVersion = d.U64()
	c.Spilled = Spilled(d.U64())
	c.Epoch = d.U32()
}

// encSmall: |teller u64 |length u32 |bytes |.
func encSmall(e *wire.Enc, s *SmallData) {
	e.U64(s.Teller)
	e.Bytes(s.Bytes)
}

func decSmall(d *wire.Dec, s *SmallData) {
	s.Teller = d.U64()
	s.Bytes = bytes.Clone(d.Bytes(SmallMax))
}

// encRegained: |gone u8 |lease u8 |serial u64 |dataversion u64 |.
func encRegained(e *wire.Enc, r *Regained) {
	e.Bool(r.Gone)
	e.U8(uint8(r.Lease))
	e.U64(r.Serial)
	e.U64(r.DataVersion)
}

func decRegained(d *wire.Dec, r *Regained) {
	r.Gone = d.Bool()
	r.Lease = LeaseMode(d.U8())
	r.Serial = d.U64()
	r.DataVersion = d.U64()
}

// encVolume: |name |ino u64 |size i64 |created i64 |layout |writer |epoch u32 |shared u8 |asked u8
// |first u32 |.
func encVolume(e *wire.Enc, v *Volume) {
	e.String(v.Name)
	e.U64(uint64(v.Ino))
	e.I64(v.Size)
	e.I64(v.Created)
	v.Layout.Append(e)
	e.String(v.Writer)
	e.U32(v.Epoch)
	e.Bool(v.Shared)
	e.Bool(v.Asked)
	e.U32(v.First)
}

func decVolume(d *wire.Dec, v *Volume) {
	v.Name = d.String(NameMax)
	v.Ino = Ino(d.U64())
	v.Size = d.I64()
	v.Created = d.I64()
	v.Layout = layout.Decode(d)
	v.Writer = d.String(clientMax)
	v.Epoch = d.U32()
	v.Shared = d.Bool()
	v.Asked = d.Bool()
	v.First = d.U32()
}

// encVolumeState: |size i64 |epoch u32 |asked u8 |writer |.
func encVolumeState(e *wire.Enc, v *VolumeState) {
	e.I64(v.Size)
	e.U32(v.Epoch)
	e.Bool(v.Asked)
	e.String(v.Writer)
}

func decVolumeState(d *wire.Dec, v *VolumeState) {
	v.Size = d.I64()
	v.Epoch = d.U32()
	v.Asked = d.Bool()
	v.Writer = d.String(clientMax)
}

// encUsage: |bytes i64 |inodes i64 |.
func encUsage(e *wire.Enc, u *Usage) {
	e.I64(u.Bytes)
	e.I64(u.Inodes)
}

func decUsage(d *wire.Dec, u *Usage) { u.Bytes, u.Inodes = d.I64(), d.I64() }

// encQuota: |id u64 |dir u64 |path |limit |used |counting u8 |.
func encQuota(e *wire.Enc, q *Quota) {
	e.U64(q.ID)
	e.U64(uint64(q.Dir))
	e.String(q.Path)
	encUsage(e, &q.Limit)
	encUsage(e, &q.Used)
	e.Bool(q.Counting)
}

func decQuota(d *wire.Dec, q *Quota) {
	q.ID = d.U64()
	q.Dir = Ino(d.U64())
	q.Path = d.String(pathMax)
	decUsage(d, &q.Limit)
	decUsage(d, &q.Used)
	q.Counting = d.Bool()
}

// encServer: |id u32 |addr |store u64 |total i64 |free i64 |verifier u64 |life u32 |max file u64 |
// |incarnation u64 |start u64 |host |version |leaving u8 |.
// The service's own view of a server goes behind it in answers: |state u8 |since i64 |seen i64 |.
func encServer(e *wire.Enc, s *Server) {
	e.U32(s.ID)
	e.String(s.Addr)
	e.U64(s.StoreID)
	e.I64(s.Total)
	e.I64(s.Free)
	e.U64(s.Verifier)
	e.U32(s.Life)
	e.U64(s.MaxFile)
	e.U64(s.Incarnation)
	e.U64(s.Start)
	e.String(s.Host)
	e.String(s.Version)
	e.Bool(s.Leaving)
}

func decServer(d *wire.Dec, s *Server) {
	s.ID = d.U32()
	s.Addr = d.String(addrMax)
	s.StoreID = d.U64()
	s.Total = d.I64()
	s.Free = d.I64()
	s.Verifier = d.U64()
	s.Life = d.U32()
	s.MaxFile = d.U64()
	s.Incarnation = d.U64()
	s.Start = d.U64()
	s.Host = d.String(identity.NameMax)
	s.Version = d.String(VersionMax)
	s.Leaving = d.Bool()
}

// encEntry: |name |ino u64 |type u8 |cookie u64 |has attr u8 |attr |.
func encEntry(e *wire.Enc, n *Entry) {
	e.String(n.Name)
	e.U64(uint64(n.Ino))
	e.U8(uint8(n.Type))
	e.U64(n.Cookie)
	e.Bool(n.Attr != nil)
	if n.Attr != nil {
		encAttr(e, n.Attr)
	}
}

func decEntry(d *wire.Dec, n *Entry) {
	n.Name = d.String(NameMax)
	n.Ino = Ino(d.U64())
	n.Type = Type(d.U8())
	n.Cookie = d.U64()
	if d.Bool() {
		n.Attr = &Attr{}
		decAttr(d, n.Attr)
	}
}
