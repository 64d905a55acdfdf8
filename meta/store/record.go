package store

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
	"github.com/sluice-storage/sluice/wire"
)

// Format is the version of keys and records as a whole. A store with a higher one is refused.
// Format 2 added 'Y', losses of files, lives of servers. Format 3 marks sessions that may hold
// locks. Format 4 keeps no open files, adds small ones, and marks sessions that may hold leases.
// Format 5 has times of files with seconds of their own, and those of birth.
const Format = 5

// recordVersion opens every record, but versionHints those of inodes that have hints,
// versionQuota those that belong to a quota, and versionLists those with access control lists: a
// build that does not know these must not lose them. A reader that meets a higher version than it
// knows says so and gives up.
const (
	recordVersion = 1
	versionHints  = 2
	versionQuota  = 3
	versionLists  = 4
)

// Bits of an inode's flags.
const (
	flagWriters   = 1 << iota // somebody has it open for writing, or had when he died
	flagData                  // was open for writing or truncated: there may be stripe objects
	flagPending               // a truncation waits for the I/O servers; 'Z' ino exists
	flagVolume                // a volume: its size is fixed and it has no name
	flagWithXattr             // had an extended attribute at some time
	flagSmall                 // its data is in 'F' ino; none there: it is empty
	flagHoles                 // may have holes: its size does not tell the space that it takes
	flagNameless              // was made without a name, and may get one: see nameless.go
)

// inode is what 'I' keeps.
//
//	0    1     2      4     8    12   16     20    24   28    36     48     60     72
//	|ver |type |flags |mode |uid |gid |nlink |rdev |gen |size |atime |mtime |ctime |btime |
//	84        92           100
//	|truncseq |dataversion |tail
//
// The tail depends on the type:
//
//	directory  |parent u64|
//	regular    |size of the pending truncation i64|losses u64|layout|
//	symlink    |length u32|target|
//
// In version 2 hints stand between the version and the type, in version 3 hints and
// |quota u64|reserved i64|, in version 4 these and |access list |default list |, of which one may
// be empty.
//
// A directory's mtime, and its ctime where later, are in 'T'; its link count comes from 'N'.
type inode struct {
	Type        meta.Type
	Flags       uint16
	Mode        uint32
	UID, GID    uint32
	Nlink       uint32
	Rdev        uint32
	Gen         uint32
	Size        int64
	Atime       meta.Time
	Mtime       meta.Time
	Ctime       meta.Time
	Btime       meta.Time
	TruncSeq    uint64
	DataVersion uint64

	Parent  meta.Ino      // directories
	Pending int64         // regular: the size of the pending truncation
	Losses  uint64        // regular: how many there had been when it was last empty; see lost.go
	Layout  layout.Layout // regular
	Target  string        // symlinks
	Hints   hint.Hints    // regular, and directories: what is made in them begins with these

	ACL     acl.List // who may do what, where Mode does not say it all
	Default acl.List // directories: what is made in them begins with it

	Quota    uint64 // that it counts in; see quota.go
	Reserved int64  // regular: how long its writers may make it; 0 without writers. See grow.go

	was     charge // not stored: what it took when it was read
	bounded bool   // not stored: its quota has a limit of bytes
}

func (n *inode) encode() []byte {
	e := wire.Enc{B: make([]byte, 0, 168)}
	switch {
	case n.ACL != "" || n.Default != "":
		e.U8(versionLists)
		n.Hints.Append(&e)
		e.U64(n.Quota)
		e.I64(n.Reserved)
		e.String(string(n.ACL))
		e.String(string(n.Default))
	case n.Quota != 0:
		e.U8(versionQuota)
		n.Hints.Append(&e)
		e.U64(n.Quota)
		e.I64(n.Reserved)
	case n.Hints != (hint.Hints{}):
		e.U8(versionHints)
		n.Hints.Append(&e)
	default:
		e.U8(recordVersion)
	}
	e.U8(uint8(n.Type))
	e.U16(n.Flags)
	for _, v := range []uint32{n.Mode, n.UID, n.GID, n.Nlink, n.Rdev, n.Gen} {
		e.U32(v)
	}
	e.I64(n.Size)
	for _, v := range []*meta.Time{&n.Atime, &n.Mtime, &n.Ctime, &n.Btime} {
		v.Append(&e)
	}
	e.U64(n.TruncSeq)
	e.U64(n.DataVersion)
	switch n.Type {
	case meta.Directory:
		e.U64(uint64(n.Parent))
	case meta.Regular:
		e.I64(n.Pending)
		e.U64(n.Losses)
		n.Layout.Append(&e)
	case meta.Symlink:
		e.String(n.Target)
	}
	return e.B
}

func (n *inode) decode(d *wire.Dec) {
	n.Type = meta.Type(d.U8())
	n.Flags = d.U16()
	for _, v := range []*uint32{&n.Mode, &n.UID, &n.GID, &n.Nlink, &n.Rdev, &n.Gen} {
		*v = d.U32()
	}
	n.Size = d.I64()
	for _, v := range []*meta.Time{&n.Atime, &n.Mtime, &n.Ctime, &n.Btime} {
		v.Decode(d)
	}
	n.TruncSeq = d.U64()
	n.DataVersion = d.U64()
	switch n.Type {
	case meta.Directory:
		n.Parent = meta.Ino(d.U64())
	case meta.Regular:
		n.Pending = d.Size()
		n.Losses = d.U64()
		n.Layout = layout.Decode(d)
	case meta.Symlink:
		n.Target = d.String(meta.SymlinkMax)
	}
}

func (n *inode) isDir() bool          { return n.Type == meta.Directory }
func (n *inode) has(flag uint16) bool { return n.Flags&flag != 0 }

func (n *inode) ref(ino meta.Ino) meta.FileRef {
	return meta.FileRef{Ino: ino, Gen: n.Gen, TruncSeq: n.TruncSeq, Layout: n.Layout}
}

// entry is a name, in 'D' by name and in 'C' by cookie. Cookies come from the same numbers as
// inodes: none is given to two entries, and an entry takes its cookie along when it is renamed.
//
//	'D'  |ver |type |ino u64 |cookie u64 |
//	'C'  |ver |type |ino u64 |name       |
type entry struct {
	Type   meta.Type
	Ino    meta.Ino
	Cookie uint64
}

func (n *entry) encode() []byte {
	e := wire.Enc{B: make([]byte, 0, 18)}
	e.U8(recordVersion)
	e.U8(uint8(n.Type))
	e.U64(uint64(n.Ino))
	e.U64(n.Cookie)
	return e.B
}

func (n *entry) encodeNamed(name string) []byte {
	e := wire.Enc{B: make([]byte, 0, 10+len(name))}
	e.U8(recordVersion)
	e.U8(uint8(n.Type))
	e.U64(uint64(n.Ino))
	e.Raw([]byte(name))
	return e.B
}

func (n *entry) decode(d *wire.Dec) {
	n.Type = meta.Type(d.U8())
	n.Ino = meta.Ino(d.U64())
	n.Cookie = d.U64()
}

// times is what 'T' keeps of a directory: |ver |mtime |ctime |. Whoever changes the
// directory puts both.
type times struct{ Mtime, Ctime meta.Time }

func (n *times) encode() []byte {
	e := wire.Enc{B: make([]byte, 0, 1+2*meta.TimeBytes)}
	e.U8(recordVersion)
	n.Mtime.Append(&e)
	n.Ctime.Append(&e)
	return e.B
}

func (n *times) decode(d *wire.Dec) {
	n.Mtime.Decode(d)
	n.Ctime.Decode(d)
}

// States of a session.
const (
	sessionLive  = iota + 1
	sessionEnded // said so itself: nothing of it is on its way any more
	sessionDead  // was not heard of: it may write until its capabilities have run out
)

// session is what 'S' keeps: |ver |state u8 |listens u8 |locks u8 |created i64 |client |.
type session struct {
	State   uint8
	Listens bool // it may hold leases
	Locks   bool // it has asked for locks, which must be claimed after a restart
	Created int64
	Client  string
}

func (n *session) encode() []byte {
	e := wire.Enc{}
	e.U8(recordVersion)
	e.U8(n.State)
	e.Bool(n.Listens)
	e.Bool(n.Locks)
	e.I64(n.Created)
	e.String(n.Client)
	return e.B
}

func (n *session) decode(d *wire.Dec) {
	n.State = d.U8()
	n.Listens = d.Bool()
	n.Locks = d.Bool()
	n.Created = d.I64()
	n.Client = d.String(clientMax)
}

// removal is what 'Q' keeps: |ver |gen u32 |truncseq u64 |layout |. The layout has no servers when
// there are no stripe objects, only extended attributes.
type removal struct{ meta.FileRef }

func (n *removal) encode() []byte {
	e := wire.Enc{}
	e.U8(recordVersion)
	e.U32(n.Gen)
	e.U64(n.TruncSeq)
	n.Layout.Append(&e)
	return e.B
}

func (n *removal) decode(d *wire.Dec) {
	n.Gen = d.U32()
	n.TruncSeq = d.U64()
	n.Layout = layout.Decode(d)
}

// volume is what 'B' keeps: |ver |ino u64 |created i64 |.
type volume struct {
	Ino     meta.Ino
	Created int64
}

func (n *volume) encode() []byte {
	e := wire.Enc{}
	e.U8(recordVersion)
	e.U64(uint64(n.Ino))
	e.I64(n.Created)
	return e.B
}

func (n *volume) decode(d *wire.Dec) {
	n.Ino = meta.Ino(d.U64())
	n.Created = d.I64()
}

// server is what 'P' keeps:
//
//	|ver |store u64 |verifier u64 |seen i64 |total i64 |free i64 |life u32 |max file u64 |
//	|lost u64 |addr |
type server struct {
	meta.Server
	Lost uint64 // which of all losses was this server's last; 0: none. See lost.go
}

func (n *server) encode() []byte {
	e := wire.Enc{}
	e.U8(recordVersion)
	e.U64(n.StoreID)
	e.U64(n.Verifier)
	e.I64(n.LastSeen)
	e.I64(n.Total)
	e.I64(n.Free)
	e.U32(n.Life)
	e.U64(n.MaxFile)
	e.U64(n.Lost)
	e.String(n.Addr)
	return e.B
}

func (n *server) decode(d *wire.Dec) {
	n.StoreID = d.U64()
	n.Verifier = d.U64()
	n.LastSeen = d.I64()
	n.Total = d.Size()
	n.Free = d.Size()
	n.Life = d.U32()
	n.MaxFile = d.U64()
	n.Lost = d.U64()
	n.Addr = d.String(addrMax)
}

// xattr is what 'X' keeps: |ver |value |.
type xattr struct{ Value []byte }

func (n *xattr) encode() []byte { return append([]byte{recordVersion}, n.Value...) }

func (n *xattr) decode(d *wire.Dec) { n.Value = d.Raw(len(d.Rest())) }

// record is what all of them share.
type record interface{ decode(d *wire.Dec) }

// parse decodes a stored value. What it cannot read is errs.Corrupt, or errs.Version when a newer
// build wrote it.
func parse(key, value []byte, r record) error {
	d := wire.NewDec(value)
	if v := d.U8(); v > recordVersion {
		n, ok := r.(*inode)
		if !ok || v > versionLists {
			return errs.Newf(errs.Version, "meta.record", "", "key %q was written by a newer build", key)
		}
		n.Hints = hint.Decode(&d)
		if v >= versionQuota {
			n.Quota, n.Reserved = d.U64(), d.Size()
		}
		if v >= versionLists {
			n.ACL, n.Default = decodeList(&d), decodeList(&d)
		}
	}
	r.decode(&d)
	if err := d.Done(); err != nil {
		return errs.Newf(errs.Corrupt, "meta.record", "", "key %q: %w", key, err)
	}
	return nil
}

// decodeList takes an access control list, which may be empty.
func decodeList(d *wire.Dec) acl.List {
	l, err := acl.Parse(d.Bytes(acl.BytesMax))
	if err != nil {
		d.Fail("an access control list that is none")
	}
	return l
}

// mark is the value of keys whose existence is all they say.
func mark() []byte { return []byte{recordVersion} }

// counter reads what kv.Add has added up.
func counter(value []byte) int64 {
	if len(value) != kv.CounterBytes {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value))
}
