package meta

import "github.com/sluice-storage/sluice/errs"

// Op names an operation on the network.
type Op uint16

// The operations. Values are part of the wire format: append, never renumber.
const (
	OpLookup Op = iota + 1
	OpMake
	OpLink
	OpRemove
	OpRename
	OpReadDir
	OpReadLink
	OpGetAttr
	OpSetAttr
	OpGetXattr
	OpListXattr
	OpSetXattr
	OpRemoveXattr
	OpCreate
	OpOpen
	OpCommit
	OpRenew
	OpClose
	OpNewSession
	OpKeepAlive
	OpEndSession
	OpSync
	OpCreateVolume
	OpListVolumes
	OpRemoveVolume
	OpOpenVolume
	OpJoin
	OpServers
	OpStatFS
	OpTime
	OpAppend
	OpEndClient
	OpFind
	OpListen
	OpClaim
	OpCloseMany
	OpReadSmall
	OpMoveOut
)

// The operations of Locks.
const (
	OpLock Op = iota + 45
	OpUnlock
	OpTestLock
	OpAwaitLocks
	OpClaimLocks
)

// Operations on trees, and on the store as a whole.
const (
	OpCheck Op = 50 + iota
	OpDump
	OpRemoveTree
)

// OpAccessed is the operation of Accesses.
const OpAccessed Op = 56

// The operations of Successions.
const (
	OpSucceed Op = 58 + iota
	OpHeldLocks
)

// Operations of Quotas. Numbers in between are not used.
const (
	OpGrow Op = iota + 60
	OpSetQuota
	OpGetQuota
	OpListQuotas
	OpRemoveQuota
)

// OpEnd is one more than the highest number. Numbers below it that stand for nothing are free.
const OpEnd Op = 65

// Args are the arguments of any operation; ops says which of them travel with which. The names are
// those of Service's parameters.
type Args struct {
	Caller    Caller
	Ino       Ino
	Dir       Ino
	NewDir    Ino
	Name      string
	NewName   string
	Client    string
	File      NewFile
	Open      OpenFlags
	Rename    RenameFlags
	Mask      SetMask
	Attr      Attr // Mode, UID, GID, Size, Atime, Mtime
	Cookie    uint64
	Max       uint32
	WithAttr  bool
	IsDir     bool
	Create    bool
	Replace   bool
	Sync      bool
	Last      bool
	Value     []byte // decoded, it points into the message
	Size      int64
	Version   uint64
	Life      uint32
	Handle    uint64
	Change    Change  // Data, decoded, points into the message
	Closing   Closing // likewise
	Closings  []Closing
	Accesses  []Access
	Listen    Listening
	Claims    []Claimed
	Handles   []uint64
	Session   uint64
	Limit     Usage
	Server    Server // without Up and LastSeen
	Mac       [32]byte
	Lock      Lock
	Mode      LockMode
	Locks     []Lock
	More      bool
	LockLife  uint64
	LockAfter uint64
	WaitMs    uint32
	Step      CheckStep
	View      uint64
	After     []byte // decoded, it points into the message
}

// Result is the answer of any operation; ops says which part of it travels with which.
type Result struct {
	Attr    Attr
	Off     int64
	At      Time
	Entries []Entry
	Target  string
	Value   []byte
	Small   SmallData
	Names   []string
	Handle  Handle
	Handles []Handle
	Session SessionInfo
	Volume  Volume
	Volumes []Volume
	Servers []Server
	Quota   Quota
	Quotas  []Quota
	FS      FSStat
	Time    int64
	Found   Found
	Heard   Heard
	Claims  []Regained
	Kinds   []errs.Kind
	State   LockState
	Lock    Lock
	Held    bool
	Locks   []Lock
	News    LockNews
	Check   CheckPage
	Dump    DumpPage
}

// opRow is one operation: what it is called, what is sent and what comes back.
type opRow struct {
	name string
	args []field[Args]
	res  []field[Result]
}

// ops is the protocol. A row is the order of the fields on the wire; the fields themselves are
// drawn in fields.go.
var ops = [OpEnd]opRow{
	OpLookup: {"lookup", args{argCaller, argDir, argName}, result{resAttr}},
	OpMake:   {"make", args{argCaller, argDir, argName, argFile}, result{resAttr}},
	OpLink:   {"link", args{argCaller, argIno, argDir, argName}, result{resAttr}},
	OpRemove: {"remove", args{argCaller, argDir, argName, argIsDir}, result{resAt}},
	OpRename: {"rename",
		args{argCaller, argDir, argName, argNewDir, argNewName, argRename}, result{resAt}},
	OpReadDir: {"readdir",
		args{argCaller, argDir, argCookie, argMax, argWithAttr}, result{resEntries}},
	OpReadLink:  {"readlink", args{argCaller, argIno}, result{resTarget}},
	OpGetAttr:   {"getattr", args{argCaller, argIno}, result{resAttr}},
	OpSetAttr:   {"setattr", args{argCaller, argIno, argMask, argSet}, result{resAttr}},
	OpGetXattr:  {"getxattr", args{argCaller, argIno, argName}, result{resValue}},
	OpListXattr: {"listxattr", args{argCaller, argIno}, result{resNames}},
	OpSetXattr: {"setxattr",
		args{argCaller, argIno, argName, argCreate, argReplace, argValue}, nil},
	OpRemoveXattr: {"removexattr", args{argCaller, argIno, argName}, nil},
	OpCreate: {"create",
		args{argCaller, argDir, argName, argFile, argOpen}, result{resHandle}},
	OpOpen:         {"open", args{argCaller, argIno, argOpen}, result{resHandle}},
	OpCommit:       {"commit", args{argCaller, argChange, argSync}, result{resAttr}},
	OpRenew:        {"renew", args{argCaller, argHandles}, result{resHandles}},
	OpClose:        {"close", args{argCaller, argClosing}, nil},
	OpNewSession:   {"newsession", args{argClient}, result{resSession}},
	OpKeepAlive:    {"keepalive", args{argSession}, nil},
	OpEndSession:   {"endsession", args{argSession}, nil},
	OpSync:         {"sync", nil, nil},
	OpCreateVolume: {"createvolume", args{argCaller, argName, argSize, argFile}, result{resVolume}},
	OpListVolumes:  {"listvolumes", args{argCaller, argFrom, argMax}, result{resVolumes}},
	OpRemoveVolume: {"removevolume", args{argCaller, argName}, nil},
	OpOpenVolume: {"openvolume",
		args{argCaller, argName, argOpen}, result{resVolume, resHandle}},
	OpJoin:    {"join", args{argServer, argMac}, nil},
	OpServers: {"servers", nil, result{resServers}},
	OpStatFS:  {"statfs", args{argIno}, result{resFS}},
	OpTime:    {"time", nil, result{resTime}},
	OpAppend:  {"append", args{argCaller, argHandle, argSize}, result{resOff, resAttr}},

	OpEndClient: {"endclient", args{argClient}, nil},
	OpFind:      {"find", args{argCaller, argDir, argName}, result{resFound}},
	OpListen:    {"listen", args{argListen}, result{resHeard}},
	OpClaim:     {"claim", args{argSession, argLife, argClaims, argLast}, result{resClaims}},
	OpCloseMany: {"closemany", args{argCaller, argClosings}, result{resKinds}},
	OpReadSmall: {"readsmall", args{argCaller, argIno}, result{resAttr, resSmall}},
	OpMoveOut:   {"moveout", args{argCaller, argChange, argVersion}, result{resAttr}},

	OpLock:     {"lock", args{argCaller, argLock, argMode}, result{resState}},
	OpUnlock:   {"unlock", args{argCaller, argLock}, nil},
	OpTestLock: {"testlock", args{argCaller, argLock}, result{resHeld, resLock}},
	OpAwaitLocks: {"awaitlocks",
		args{argCaller, argLockLife, argLockAfter, argWaitMs}, result{resNews}},
	OpClaimLocks: {"claimlocks",
		args{argCaller, argSession, argMore, argLocks}, result{resLocks}},

	OpAccessed:  {"accessed", args{argCaller, argAccesses}, nil},
	OpSucceed:   {"succeed", args{argCaller, argSession, argLast}, nil},
	OpHeldLocks: {"heldlocks", args{argCaller, argLock}, result{resLocks}},

	OpGrow:        {"grow", args{argCaller, argIno, argSize}, result{resOff}},
	OpSetQuota:    {"setquota", args{argCaller, argDir, argLimit}, result{resQuota}},
	OpGetQuota:    {"getquota", args{argCaller, argIno}, result{resQuota}},
	OpListQuotas:  {"listquotas", args{argCaller, argCookie, argMax}, result{resQuotas}},
	OpRemoveQuota: {"removequota", args{argCaller, argDir}, nil},

	OpCheck:      {"check", args{argCaller, argStep}, result{resCheck}},
	OpDump:       {"dump", args{argCaller, argView, argAfter}, result{resDump}},
	OpRemoveTree: {"removetree", args{argCaller, argDir, argName}, nil},
}

// Valid tells whether this build knows the operation. Numbers between the groups are nobody's.
func (o Op) Valid() bool { return o > 0 && o < OpEnd && ops[o].name != "" }

// String is the operation's name.
func (o Op) String() string {
	if !o.Valid() {
		return "unknown"
	}
	return ops[o].name
}
