package store

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
	"github.com/sluice-storage/sluice/wire"
)

// Format is the version of keys and records as a whole. A store with a higher one is refused.
// Format 2 added 'Y', losses of files, lives of servers. Format 3 marks sessions that may hold
// locks. Format 4 keeps no open files, adds small ones, and marks sessions that may hold leases.
// Format 5 has times of files with seconds of their own, and those of birth. Format 6 knows in
// which directories files have names, and keeps the states of servers and hosts, and the version of
// the cluster's map.
const Format = 6

// recordVersion opens every record, but versionHints those of inodes that have hints,
// versionQuota those that belong to a quota, versionLists those with access control lists, and
// versionPolicy those with a policy for layouts: a build that does not know these must not lose
// them. A reader that meets a higher version than it knows says so and gives up.
const (
	recordVersion = 1
	versionHints  = 2
	versionQuota  = 3
	versionLists  = 4
	versionPolicy = 5
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
	flagShared                // a volume: the writers of this generation share it
	flagSole                  // a directory that its maker has held alone: see tellmany.go
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
//	regular    |size of the pending truncation i64|losses u64|layout|homes|, a volume whose
//	           writers have had a generation |epoch u32| too, and one that is shared, by several
//	           generations, |first epoch u32|
//	symlink    |length u32|target|homes|
//	others     |homes|
//
// In version 2 hints stand between the version and the type, in version 3 hints and
// |quota u64|reserved i64|, in version 4 these and |access list |default list |, of which one may
// be empty, in version 5 all of these, each of which may be empty, and
// |stripe unit u32|width u16|pool u64|.
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
	homes   homes         // all others
	Pending int64         // regular: the size of the pending truncation
	Losses  uint64        // regular: how many there had been when it was last empty; see lost.go
	Epoch   uint32        // volumes: generation of the writers; see writers.go
	First   uint32        // volumes that are shared: the generation that the group began with
	Layout  layout.Layout // regular
	Target  string        // symlinks
	Hints   hint.Hints    // regular, and directories: what is made in them begins with these
	Policy  policy        // likewise; see layouts.go

	ACL     acl.List // who may do what, where Mode does not say it all
	Default acl.List // directories: what is made in them begins with it

	Quota    uint64 // that it counts in; see quota.go
	Reserved int64  // regular: how long its writers may make it; 0 without writers. See grow.go

	was     charge // not stored: what it took when it was read
	bounded bool   // not stored: its quota has a limit of bytes
}

func (n *inode) encode() []byte {
	e := wire.Enc{B: make([]byte, 0, 192)}
	switch {
	case n.Policy != (policy{}) || n.ACL != "" || n.Default != "":
		n.encodeAll(&e)
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
	if !n.isDir() {
		n.homes.append(&e)
	}
	if n.has(flagVolume) && n.Epoch != 0 {
		e.U32(n.Epoch)
		if n.first() != n.Epoch {
			e.U32(n.First)
		}
	}
	return e.B
}

// encodeAll is the beginning of a record that has lists or a policy.
func (n *inode) encodeAll(e *wire.Enc) {
	version := uint8(versionLists)
	if n.Policy != (policy{}) {
		version = versionPolicy
	}
	e.U8(version)
	n.Hints.Append(e)
	e.U64(n.Quota)
	e.I64(n.Reserved)
	e.String(string(n.ACL))
	e.String(string(n.Default))
	if version == versionPolicy {
		n.Policy.append(e)
	}
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
	if !n.isDir() {
		n.homes.decode(d)
	}
	if n.has(flagVolume) && len(d.Rest()) > 0 {
		if n.Epoch = d.U32(); n.Epoch == 0 {
			d.Fail("a generation of 0")
		}
		if n.has(flagShared) {
			n.decodeFirst(d)
		}
	}
}

func (n *inode) decodeFirst(d *wire.Dec) {
	if n.First = n.Epoch; len(d.Rest()) == 0 {
		return
	}
	if n.First = d.U32(); n.First == 0 || n.First >= n.Epoch {
		d.Fail("a group that begins with a generation that is not one of its own")
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

// sessionOfPeer, in the state, says that a member has opened the session.
const sessionOfPeer = 0x80

// session is what 'S' keeps: |ver |state u8 |listens u8 |locks u8 |created i64 |client |, and with
// sessionOfPeer |kind u8 |name |.
type session struct {
	State   uint8
	Listens bool // it may hold leases
	Locks   bool // it has asked for locks, which must be claimed after a restart
	Created int64
	Client  string
	Peer    meta.Peer
}

func (n *session) encode() []byte {
	e := wire.Enc{}
	e.U8(recordVersion)
	ofPeer := n.Peer != (meta.Peer{})
	if ofPeer {
		e.U8(n.State | sessionOfPeer)
	} else {
		e.U8(n.State)
	}
	e.Bool(n.Listens)
	e.Bool(n.Locks)
	e.I64(n.Created)
	e.String(n.Client)
	if ofPeer {
		e.U8(uint8(n.Peer.Kind))
		e.String(n.Peer.Name)
	}
	return e.B
}

func (n *session) decode(d *wire.Dec) {
	state := d.U8()
	n.State = state &^ sessionOfPeer
	n.Listens = d.Bool()
	n.Locks = d.Bool()
	n.Created = d.I64()
	n.Client = d.String(clientMax)
	n.Peer = meta.Peer{}
	if state&sessionOfPeer != 0 {
		n.Peer = meta.Peer{Kind: identity.Kind(d.U8()), Name: d.String(identity.NameMax)}
		if n.Peer == (meta.Peer{}) {
			d.Fail("a session of nobody")
		}
	}
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
//	|lost u64 |addr |state u8 |since i64 |incarnation u64 |start u64 |host |version |
//
// It is written when something of it changes that is part of the cluster's map: what was seen when,
// and what is free, is as of then.
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
	e.U8(uint8(n.State))
	e.I64(n.Since)
	e.U64(n.Incarnation)
	e.U64(n.Start)
	e.String(n.Host)
	e.String(n.Version)
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
	if n.State = meta.State(d.U8()); d.Err() == nil && !n.State.Valid() {
		d.Fail("an unknown state")
	}
	n.Since = d.I64()
	n.Incarnation = d.U64()
	n.Start = d.U64()
	n.Host = d.String(identity.NameMax)
	n.Version = d.String(meta.VersionMax)
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
		if !ok || v > versionPolicy {
			return errs.Newf(errs.Version, "meta.record", "", "key %q was written by a newer build", key)
		}
		n.Hints = hint.Decode(&d)
		if v >= versionQuota {
			n.Quota, n.Reserved = d.U64(), d.Size()
		}
		if v >= versionLists {
			n.ACL, n.Default = decodeList(&d), decodeList(&d)
		}
		if v >= versionPolicy {
			n.Policy = decodePolicy(&d)
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
