package meta

import (
	"github.com/sluice-storage/sluice/layout"
)

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
	OpAppended
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

// OpScan is the operation of Scans.
const OpScan Op = 54

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

// Operations of Deferrals.
const (
	OpNumbers Op = iota + 65
	OpTellMany
	OpHold
)

// Operations of Layouts and Pools.
const (
	OpGetLayout Op = iota + 70
	OpSetLayout
	OpCreatePool
	OpChangePool
	OpRemovePool
	OpListPools
)

// Operations of the registry: Tokens, Members and Denials.
const (
	OpCreateToken Op = iota + 80
	OpListTokens
	OpRemoveToken
	OpUseToken
	OpListMembers
	OpGetMember
	OpEnlistMember
	OpRenewMember
	OpRemoveMember
	OpListDenied
	OpRegistry
	OpSetGeneration
)

// Operations of ServerKeys.
const (
	OpReserveServers Op = iota + 92
	OpServerKeys
)

// Operations of Membership.
const (
	OpBeat Op = iota + 100
	OpHosts
	OpListClients
	OpRemoveServer
)

// Operations of VolumeChanges.
const (
	OpResizeVolume Op = iota + 112
	OpHandOver
	OpAwaitVolume
)

// OpEnd is one more than the highest number. Numbers below it that stand for nothing are free.
const OpEnd Op = 115

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
	Scan      Scan
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
	Epoch     uint32
	Shrink    bool
	Force     bool
	Seen      VolumeState
	Handle    uint64
	Change    Change  // Data, decoded, points into the message
	Closing   Closing // likewise
	Closings  []Closing
	Accesses  []Access
	Deferred  []Deferred // Change.Data, decoded, points into the message
	Files     []Ino
	Listen    Listening
	Claims    []Claimed
	Handles   []uint64
	Session   uint64
	Limit     Usage
	Policy    layout.Policy
	Add, Drop []uint32 // servers
	Server    Server   // without the service's own view
	Host      Host     // likewise
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
	Registry  *RegistryArgs
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
	Hosts   []Host
	Clients []Client
	Quota   Quota
	Quotas  []Quota
	Placed  Placed
	Pool    Pool
	Pools   []Pool
	FS      FSStat
	Time    int64
	Found   Found
	Scanned Scanned
	Heard   Heard
	Claims  []Regained
	Ended   []Ended
	Settled []Settled
	First   uint64 // of Off numbers
	State   LockState
	Lock    Lock
	Held    bool
	Locks   []Lock
	News    LockNews
	Check   CheckPage
	Dump    DumpPage

	Registry *RegistryResult
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
		args{argCaller, argName, argOpen, argEpoch}, result{resVolume, resHandle}},
	OpResizeVolume: {"resizevolume",
		args{argCaller, argName, argSize, argShrink}, result{resVolume}},
	OpHandOver: {"handover", args{argCaller, argName, argForce}, result{resVolume}},
	OpAwaitVolume: {"awaitvolume",
		args{argCaller, argName, argSeen, argWaitMs}, result{resVolume}},
	OpJoin:    {"join", args{argServer, argMac}, nil},
	OpServers: {"servers", nil, result{resServers}},
	OpStatFS:  {"statfs", args{argIno}, result{resFS}},
	OpTime:    {"time", nil, result{resTime}},
	OpAppend:  {"append", args{argCaller, argHandle, argSize}, result{resOff, resAttr}},

	OpAppended:  {"appended", args{argCaller, argHandle}, nil},
	OpEndClient: {"endclient", args{argClient}, nil},
	OpFind:      {"find", args{argCaller, argDir, argName}, result{resFound}},
	OpListen:    {"listen", args{argListen}, result{resHeard}},
	OpClaim:     {"claim", args{argSession, argLife, argClaims, argLast}, result{resClaims}},
	OpCloseMany: {"closemany", args{argCaller, argClosings}, result{resEnded}},
	OpReadSmall: {"readsmall", args{argCaller, argIno}, result{resAttr, resSmall}},
	OpMoveOut:   {"moveout", args{argCaller, argChange, argVersion}, result{resAttr}},

	OpLock:     {"lock", args{argCaller, argLock, argMode}, result{resState}},
	OpUnlock:   {"unlock", args{argCaller, argLock}, nil},
	OpTestLock: {"testlock", args{argCaller, argLock}, result{resHeld, resLock}},
	OpAwaitLocks: {"awaitlocks",
		args{argCaller, argLockLife, argLockAfter, argWaitMs}, result{resNews}},
	OpClaimLocks: {"claimlocks",
		args{argCaller, argSession, argMore, argLocks}, result{resLocks}},

	OpScan:      {"scan", args{argCaller, argDir, argScan}, result{resScanned}},
	OpAccessed:  {"accessed", args{argCaller, argAccesses}, nil},
	OpSucceed:   {"succeed", args{argCaller, argSession, argLast}, nil},
	OpHeldLocks: {"heldlocks", args{argCaller, argLock}, result{resLocks}},

	OpGrow:        {"grow", args{argCaller, argIno, argSize}, result{resOff}},
	OpSetQuota:    {"setquota", args{argCaller, argDir, argLimit}, result{resQuota}},
	OpGetQuota:    {"getquota", args{argCaller, argIno}, result{resQuota}},
	OpListQuotas:  {"listquotas", args{argCaller, argCookie, argMax}, result{resQuotas}},
	OpRemoveQuota: {"removequota", args{argCaller, argDir}, nil},

	OpNumbers:  {"numbers", args{argCaller, argMax}, result{resFirst, resOff}},
	OpHold:     {"hold", args{argCaller, argDir, argFiles}, result{resSettled}},
	OpTellMany: {"tellmany", args{argCaller, argVersion, argDeferred}, result{resSettled}},

	OpGetLayout:   {"getlayout", args{argCaller, argIno}, result{resPlaced}},
	OpSetLayout:   {"setlayout", args{argCaller, argIno, argPolicy}, nil},
	OpCreatePool:  {"createpool", args{argCaller, argName, argAdd}, result{resPool}},
	OpChangePool:  {"changepool", args{argCaller, argName, argAdd, argDrop}, result{resPool}},
	OpRemovePool:  {"removepool", args{argCaller, argName}, nil},
	OpListPools:   {"listpools", args{argCaller}, result{resPools}},
	OpCreateToken: {"createtoken", args{argCaller, argToken}, result{resToken}},
	OpListTokens:  {"listtokens", args{argCaller, argCookie, argMax}, result{resTokens}},
	OpRemoveToken: {"removetoken", args{argCaller, argCookie}, nil},
	OpUseToken:    {"usetoken", args{argCaller, argUse}, result{resMember}},
	OpListMembers: {"listmembers", args{argCaller, argKind, argName, argMax}, result{resMembers}},
	OpGetMember:   {"getmember", args{argCaller, argKind, argName}, result{resMember}},
	OpEnlistMember: {"enlistmember",
		args{argCaller, argMember}, result{resMember}},
	OpRenewMember: {"renewmember",
		args{argCaller, argKind, argName, argSerial, argCert}, result{resMember}},
	OpRemoveMember: {"removemember", args{argCaller, argKind, argName}, nil},
	OpListDenied:   {"listdenied", args{argCaller, argSerial, argMax}, result{resDenied}},
	OpRegistry:     {"registry", args{argCaller}, result{resRegistry}},
	OpSetGeneration: {"setgeneration",
		args{argCaller, argKey, argGeneration}, result{resRegistry}},
	OpReserveServers: {"reserveservers", args{argCaller, argName, argMax}, result{resIDs}},
	OpServerKeys:     {"serverkeys", args{argCaller, argServerID, argHave}, result{resRing}},

	OpBeat:         {"beat", args{argCaller, argHost}, nil},
	OpHosts:        {"hosts", nil, result{resHosts}},
	OpListClients:  {"listclients", args{argCaller, argCookie, argMax}, result{resClients}},
	OpRemoveServer: {"removeserver", args{argCaller, argServerID}, nil},

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
