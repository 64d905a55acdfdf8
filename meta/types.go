// Package meta is the contract of the metadata service: names, attributes, layouts, sessions, open
// files, leases, and the capabilities that let clients talk to I/O servers without it. No data
// passes through the service but that of small files.
//
// meta/store implements Service on a kv.Store; meta/server puts a Service on the network;
// meta/remote is a Service that asks one over the network. metatest is the definition that all
// of them pass.
//
// Read service.go first, then types.go.
package meta

import (
	"encoding/binary"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta/acl"
)

// Ino is an inode number. A number is never used twice, not even after a crash.
type Ino uint64

// RootIno is the root directory.
const RootIno Ino = 1

// Limits.
const (
	NameMax    = 255
	SymlinkMax = 4095
	XattrName  = 255
	XattrValue = 64 << 10
	LinkMax    = 65000
	DirPageMax = 1024 // entries that one ReadDir returns at most

	VolumePageMax = 256 // volumes that one ListVolumes returns at most

	ScanBytes  = 2 << 20  // bytes of data that one Scan returns at most
	SmallMax   = 16 << 10 // bytes of a file whose data lies with its metadata
	CloseMax   = 1024     // handles that one CloseMany closes at most
	ClaimMax   = 1024     // handles that one Claim names at most
	RecallsMax = 1024     // recalls that one Listen carries at most, in either direction
	GroupsMax  = 64 << 10 // supplementary groups of a user, as in Linux
)

// Type is the kind of an inode.
type Type uint8

// The types. Values are stored: append, never renumber.
const (
	Regular Type = iota + 1
	Directory
	Symlink
	Fifo
	Socket
	CharDevice
	BlockDevice
)

// Attr is an inode as programs see it, plus what a client needs to reach its data.
type Attr struct {
	Ino   Ino
	Type  Type
	Mode  uint32 // permission bits, setuid, setgid, sticky: 07777
	UID   uint32
	GID   uint32
	Nlink uint32
	Rdev  uint32
	Size  int64
	Atime Time // told late: see Accesses
	Mtime Time
	Ctime Time
	Btime Time // when it was made; never changes

	Gen         uint32 // object generation: part of every data request
	TruncSeq    uint64 // how many truncations there were: part of every data request
	DataVersion uint64 // raised whenever data may have changed; equal numbers mean equal data
	Writers     bool   // somebody has the file open for writing: Size was measured just now
	Holes       bool   // parts of the file may never have been written
	Allocated   int64  // with Holes: the bytes of space that it takes; negative: nobody has asked
	Small       bool   // the data lies with the metadata: see Files.ReadSmall
	Xattrs      bool   // it may have extended attributes beside its hints and lists
	Layout      layout.Layout

	ACL     acl.List // who may do what, where Mode does not say it all: see package acl
	Default acl.List // of a directory: what is made in it begins with this list
	Parent  Ino      // of a directory: the one that it is in; the root is in itself

	// Scattered: not all of its names are known. It does not go over the wire: see Grounds.
	Scattered bool

	// Lease is what the caller's session may rely on from now on, Serial the number of the grant. See
	// Leases.
	Lease  LeaseMode
	Serial uint64
}

// LeaseMode is what a session may rely on without asking.
type LeaseMode uint8

// The modes. Each includes those before it.
const (
	// LeaseNone: the answer was true when it was given, and may be wrong by now.
	LeaseNone LeaseMode = iota

	// LeaseRead: attributes but the time of access, the target of a link, the names of a directory,
	// present and absent, the absence of extended attributes that Attr.Xattrs tells, a file's data
	// version and with it its data, stay as they are until the lease is recalled. Many sessions may
	// hold it.
	LeaseRead

	// LeaseWrite is given for a regular file that the session has open for writing, if no other has:
	// then size and times, and the data of a small file, are the session's to change, and the service
	// is told later (Commit, Close). Nobody else holds a lease on the file meanwhile.
	LeaseWrite

	// LeaseSole is given for a directory that the session has made, or asked for (Hold): what is made
	// and removed in it is the session's to say, and the service is told later (Deferrals). Nobody
	// else holds a lease on the directory meanwhile. A directory from which what is made in it would
	// inherit more than its owner is not given like that.
	LeaseSole
)

// Entry is one name in a directory.
type Entry struct {
	Name   string
	Ino    Ino
	Type   Type
	Cookie uint64 // pass it to ReadDir to go on behind this entry; never 0
	Attr   *Attr  // only when asked for
	Data   []byte // of a small file, from Scan; nil: not told
}

// Scan is a page of a directory that is asked for.
type Scan struct {
	// The page begins behind the cookie, or with ByName with the name, or the next one if there is no
	// such name (see NextName), and has entries in the order of cookies, or of names. 0 and "" stand
	// for the beginning.
	Cookie uint64
	Name   string
	ByName bool

	Max   int  // entries at most
	Attrs bool // with attributes, and leases on them
	Bytes int  // with Attrs: of data of small files at most; the page ends before what does not fit,
	// unless that is its first entry, which then comes without

	// Also are further directories, at most ScanAlso, that the caller expects to be asked for next:
	// their first pages come with the answer, with as much of attributes and data as this one's, as
	// far as there is room, and if nobody has to be waited for.
	Also []Ino
}

// Scanned is such a page. Dir.Lease covers the names.
type Scanned struct {
	Dir     Attr
	Entries []Entry
	End     bool // there is nothing behind it

	// Also are pages of other directories, in the order in which they were asked for, but not of all
	// of them: only those that came with leases. They have no such themselves.
	Also []Scanned
}

// Cred is on whose behalf an operation is done.
type Cred struct {
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary, at most GroupsMax
}

// Caller is who asks: a session of a client, and the user behind the call.
type Caller struct {
	Session uint64
	Cred    Cred
	// ReqID names the operation for ever: repeated after a lost answer it is not done twice.
	// Remote callers are given one by package remote; zero means that the caller never repeats.
	ReqID [16]byte

	// Leases: the caller keeps what it is told, and wants leases with the answer. It gets none unless
	// its session has listened (see Leases).
	Leases bool

	// Peer is the member that the request came from, as the transport has proved it. It does not go
	// over the wire: package server sets it. The zero Peer is somebody of the service's own host, who
	// knows the cluster's secret or has its owner's files: nothing is kept from it.
	Peer Peer

	// ReadOnly: the peer changes nothing. Package guard says so, and keeps it from what would;
	// capabilities that it gets let it write nowhere. It does not go over the wire either.
	ReadOnly bool
}

// Peer is a host or a client that is known by its certificate.
type Peer struct {
	Kind identity.Kind
	Name string
}

// SetMask says which fields of a SetAttr count.
type SetMask uint16

// The fields. SetAtimeNow and SetMtimeNow take the service's clock. SetSpilled, with SetSize, says
// that the caller may have left some of a small file at the I/O servers: it is cut there, too.
// SetCtimeNow changes nothing but the time of change, which all others change anyway.
const (
	SetMode SetMask = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow
	SetMtimeNow
	SetSpilled
	SetCtimeNow
)

// OpenFlags modify Open and Create.
type OpenFlags uint8

// The flags.
const (
	OpenRead OpenFlags = 1 << iota
	OpenWrite
	OpenTruncate
	OpenExclusive // Create only: fail with errs.Exists; of what is nameless: it gets no name later
	OpenNameless  // Create only: the file has no name
	OpenShared    // OpenVolume for writing only: others that say so too may write at the same time
)

// Handle is an open file. It keeps the inode alive, unlinked or not, until Close or the end of the
// session. Caps[i] is for the server of stripe i.
type Handle struct {
	ID    uint64 // unique within the session
	Attr  Attr
	Hints hint.Hints // of the file, as they are now

	// Bounded: the file belongs to a tree with a quota of bytes. Whoever writes may make it GrowTo
	// bytes long, as of Attr.TruncSeq, and asks Quotas.Grow before it becomes longer.
	Bounded bool
	GrowTo  int64

	// Epoch is the generation of writers that a handle which writes to a volume belongs to: what it
	// sends to the I/O servers says so, and is refused when there is a later one. Of a volume that is
	// shared Renew tells the present one. 0: not a volume.
	Epoch uint32

	Caps [][capability.Bytes]byte
	Data []byte // of a small file, where it fits the answer; nil: ask ReadSmall
}

// Found is what Find tells. Dir.Lease covers the name, whether there is one or not.
type Found struct {
	Dir     Attr
	Present bool
	Attr    Attr   // the rest is empty unless Present
	Cookie  uint64 // of the entry, as ReadDir tells it; 0 for dots
	Target  string // of a symbolic link
	Data    []byte // of a small file that the caller may read, where it fits; nil: ask ReadSmall
}

// Change is what a writer tells about a file. The file is at least Size bytes long as of TruncSeq,
// which is ignored when the file was truncated since; its data changed at Mtime, or did not if that
// is zero.
type Change struct {
	Ino      Ino
	Size     int64
	TruncSeq uint64
	Mtime    Time
	Holes    bool // parts of the file were not written

	// Age is how long ago the last write was when this was sent, by the writer's steady clock. A time
	// that somebody has set since stays. 0: that is not known.
	Age time.Duration

	// Epoch, if not 0, says that the change was made under LeaseWrite, in this epoch of the session's
	// leases. It is errs.Fenced if the session has lost the lease since: somebody else may have
	// changed the file.
	Epoch uint64

	// Whole: Data is all that is in the small file, whose size becomes its length. Only the holder of
	// LeaseWrite may say so, and TruncSeq must be the file's.
	Whole bool
	Data  []byte // at most SmallMax
}

// Closing is a handle to be closed, and with Dirty what its owner has written. The rest of Change
// is ignored without Dirty.
type Closing struct {
	Handle uint64
	Dirty  bool
	Change Change

	Spilled Spilled
}

// Recall asks for the lease on an inode back: what the session knows of the inode from answers with
// a lower serial number is not to be used any more. The holder of LeaseWrite tells first what it
// has changed (Commit), and with MoveOut moves a small file out (see Files.MoveOut), if that can be
// done soon. In an acknowledgement MoveOut says that this was begun, now or earlier, and did not
// come to an end: I/O servers may have, or get, some of the data.
type Recall struct {
	Ino     Ino
	Serial  uint64
	MoveOut bool
}

// Listening is what a client says when it listens.
type Listening struct {
	Session uint64
	Seen    uint64   // the highest serial number of the recalls that it has got
	Acks    []Recall // those that it has carried out since it last said so
	WaitMs  uint32   // for how long the service may keep the request when there is nothing to tell

	// Map is the version of the cluster's map that it knows: a later one is told at once. 0: it does
	// not want to know.
	Map uint64

	// About, if not nil, is what it says of itself: with its first request of a session, and of each
	// life of the service, which keeps it in memory.
	About *About
}

// Heard is the answer.
type Heard struct {
	Life     uint32 // another number, a higher one, with each start of the service
	Epoch    uint64 // leases of the session with serial numbers up to it are gone
	Extended bool   // all others are valid for LeaseTime from when the request was sent
	Map      uint64 // the version of the cluster's map
	Recalls  []Recall
}

// SmallData is what is in a small file. Teller is the session that has told it; 0: the file was cut
// since. So a client whose answer was lost knows its own words again.
type SmallData struct {
	Bytes  []byte
	Teller uint64
}

// Spilled says that a client began to move a small file out, and that this did not come to an end:
// I/O servers may have, or get, some of the data, and whoever writes next is kept from that. It is
// one more than the truncation that the client wrote under, and 0 where there is nothing to say. A
// later truncation has cut what was written: who has left something says so with its own
// (SetSpilled), and that of others, or one that keeps the client off, cuts at the servers anyway.
type Spilled uint64

// SpilledUnder is for who wrote under a truncation.
func SpilledUnder(truncSeq uint64) Spilled { return Spilled(truncSeq + 1) }

// Claimed is a handle that a client had open when the service ended.
type Claimed struct {
	Handle uint64
	Ino    Ino
	Flags  OpenFlags
	UID    uint32 // who opened it

	// Write: the session held LeaseWrite, when DataVersion was the file's, and has changed it since.
	// It may have told some of that without having got the answer. AnyVersion is for a file that was
	// not small: what its writer knows alone are a length and times, which go forward only.
	Write       bool
	DataVersion uint64

	Spilled Spilled

	Epoch uint32 // of the handle
}

// AnyVersion is the data version in a claim to which it does not matter.
const AnyVersion = ^uint64(0)

// Regained is what became of a handle that was claimed. Gone: the file is.
type Regained struct {
	Gone   bool
	Lease  LeaseMode // LeaseWrite where it was claimed and nobody else has had the file since
	Serial uint64

	DataVersion uint64 // with LeaseWrite
}

// HandleOf is the id of the handle that an opening with the request id makes; 0 for none.
func HandleOf(req [16]byte) uint64 { return binary.BigEndian.Uint64(req[:8]) }

// NewFile describes an inode to be made.
type NewFile struct {
	Type   Type
	Mode   uint32
	Umask  uint32 // bits that are taken from Mode, unless the directory has a default list
	Rdev   uint32
	Target string // symlinks

	// How it is striped, see Layouts: of a directory, what its policy begins with. Zero: as the
	// directory says that it is made in, or else units of layout.UnitDefault over the servers that are
	// up and have room, at most DefaultWidth. With Width of a regular file there are exactly so many.
	Unit  int64
	Width int
	Pool  string // by name

	// Checked: the caller's kernel has found that the user may make this in the directory, by what it
	// knows and the service does not: capabilities of processes, and all of their groups. What is
	// opened instead, because it is there already, is checked as always.
	Checked bool

	// Sole: of a directory, the caller wants LeaseSole with the answer to Make.
	Sole bool
}

// DefaultWidth is over how many servers a file is striped unless asked otherwise.
const DefaultWidth = 8

// RenameFlags modify Rename.
type RenameFlags uint8

// The flags. RenameExchange goes with no other. RenameWhiteout leaves a whiteout in the place of
// what is renamed: a character device 0:0, by which overlay file systems say that there is nothing.
const (
	RenameNoReplace RenameFlags = 1 << iota
	RenameExchange
	RenameWhiteout
)

// Server is an I/O server as the service knows it.
type Server struct {
	ID       uint32
	Addr     string // where its fabric listens
	StoreID  uint64
	Total    int64 // bytes
	Free     int64
	Verifier uint64

	// Life is another number with each start of a server whose objects are gone with its process,
	// and 0 for one whose objects are not.
	Life uint32

	// MaxFile is the highest inode number that it has an object of, or had since it was started.
	MaxFile uint64

	Incarnation uint64 // of this start: higher than that of all before; 0: it does not count them
	Start       uint64 // random: another process with the same incarnation has another one
	Version     string // of its program
	Leaving     bool   // it ends: nobody is to wait for it as for one that has crashed

	// Host is the host that it belongs to. In a Join it counts only where the service does not know
	// better: from its own host. Empty: nobody has said.
	Host string

	// Keys is the highest generation of its keys that it has said to know, since the service was
	// started; 0: it has said nothing.
	Keys uint32

	// The service's own view.
	State    State
	Up       bool  // State.Serves
	Since    int64 // when the state began, in Unix nanoseconds
	LastSeen int64 // Unix nanoseconds
}

// Volume is a named block device: a file outside the name space whose size does not follow from
// what is written to it.
type Volume struct {
	Name    string
	Ino     Ino
	Size    int64
	Created int64
	Layout  layout.Layout

	// Writer names the client that has it open for writing, as it named itself to NewSession; empty:
	// none. Only ListVolumes and the calls of VolumeChanges tell, and what is below.
	Writer string

	Epoch  uint32 // generation of its writers: the present ones, or the last
	First  uint32 // who has a generation from this one on is one of them
	Shared bool   // several clients may write to it at the same time, because all of them asked for it
	Asked  bool   // its writers were asked to hand it over
}

// VolumeState is what somebody knows of a volume who waits for a change of it.
type VolumeState struct {
	Size   int64
	Epoch  uint32
	Asked  bool
	Writer string
}

// State is what may change of a volume.
func (v *Volume) State() VolumeState {
	return VolumeState{Size: v.Size, Epoch: v.Epoch, Asked: v.Asked, Writer: v.Writer}
}

// VolumeAwaitMax is the longest time that AwaitVolume waits.
const VolumeAwaitMax = 30 * time.Second

// NextName is where the page of a Scan by names behind a name begins.
func NextName(name string) string { return name + "\x00" }

// NextVolume is where the page of ListVolumes behind a volume begins: no name lies between the two.
func NextVolume(name string) string { return name + "\x00" }

// FSStat is the room of the whole file system, or of a tree with a quota.
type FSStat struct {
	Total, Free int64
	Files       int64 // inodes
	FilesMax    int64 // how many there may be; 0: no limit
}

// SessionInfo is the answer to NewSession.
type SessionInfo struct {
	ID        uint64
	LeaseMs   uint32 // the session ends when it is not renewed for this long
	ClusterID uint64

	LeaseTimeMs uint32 // how long the leases on inodes last: see Leases
	Life        uint32 // as in Heard
	Epoch       uint64

	// Squashed: the client is not believed to be root, ReadOnly: it changes nothing. See package
	// guard.
	Squashed bool
	ReadOnly bool
}

// FileRef is what the service tells I/O servers about a file.
type FileRef struct {
	Ino      Ino
	Gen      uint32
	TruncSeq uint64
	Layout   layout.Layout
}

// ObjectRef names one stripe object of a server.
type ObjectRef struct {
	Ino    Ino
	Gen    uint32
	Stripe uint32
}
