package guard

import (
	"context"

	"github.com/sluice-storage/sluice/meta"
)

// what an operation is.
type what uint8

const (
	unsaid    what = iota // nobody has said it yet: refused
	free                  // tells nothing of files, or is about the client's own sessions and handles
	reads                 // looks at files or volumes
	changes               // changes them: not for who is read-only
	adminOnly             // not for clients
)

// uses are the arguments by which a request names inodes and sessions.
type uses uint8

const (
	useIno     uses = 1 << iota // Args.Ino is inside
	useDir                      // Args.Dir is
	useNewDir                   // Args.NewDir is
	useChange                   // Args.Change.Ino is, or is open
	useLock                     // Args.Lock.Ino is
	useSession                  // Args.Session is the client's
)

// rule is what an operation means for who has rights.
type rule struct {
	what  what
	uses  uses
	begin func(p *Pass, a *meta.Args) error                        // what else is to be done before it
	end   func(ctx context.Context, p *Pass, r *meta.Result) error // and behind it
}

// rules has a row for every operation. Rows that only check have neither begin nor end.
var rules = [meta.OpEnd]rule{
	// Names.
	meta.OpLookup:     {reads, useDir, beginDots, nil},
	meta.OpFind:       {reads, useDir, beginDots, nil},
	meta.OpScan:       {reads, useDir, beginScan, nil},
	meta.OpReadDir:    {reads, useDir, nil, nil},
	meta.OpMake:       {changes, useDir, beginMake, nil},
	meta.OpLink:       {changes, useIno | useDir, nil, nil},
	meta.OpRemove:     {changes, useDir, nil, nil},
	meta.OpRemoveTree: {changes, useDir, nil, nil},
	meta.OpRename:     {changes, useDir | useNewDir, nil, nil},

	// Inodes.
	meta.OpReadLink:    {reads, useIno, nil, nil},
	meta.OpGetAttr:     {reads, useIno, nil, nil},
	meta.OpSetAttr:     {changes, useIno, nil, nil},
	meta.OpGetXattr:    {reads, useIno, nil, nil},
	meta.OpListXattr:   {reads, useIno, nil, nil},
	meta.OpSetXattr:    {changes, useIno, nil, nil},
	meta.OpRemoveXattr: {changes, useIno, nil, nil},
	meta.OpGetLayout:   {reads, useIno, nil, nil},
	meta.OpSetLayout:   {changes, useIno, nil, nil},
	meta.OpReadSmall:   {reads, useIno, nil, nil},
	meta.OpAccessed:    {reads, 0, beginAccessed, nil},

	// Open files. The service demands that the caller's session has them open.
	meta.OpCreate:    {changes, useDir, beginMake, nil},
	meta.OpOpen:      {reads, useIno, beginOpen, nil},
	meta.OpCommit:    {changes, useChange, nil, nil},
	meta.OpMoveOut:   {changes, useChange, nil, nil},
	meta.OpGrow:      {changes, useIno, nil, nil},
	meta.OpAppend:    {changes, 0, nil, nil},
	meta.OpAppended:  {free, 0, nil, nil},
	meta.OpRenew:     {free, 0, nil, nil},
	meta.OpClose:     {free, 0, beginClose, endClose},
	meta.OpCloseMany: {free, 0, beginCloseMany, endCloseMany},
	meta.OpNumbers:   {changes, 0, nil, nil},
	meta.OpTellMany:  {changes, 0, beginTellMany, nil},
	meta.OpHold:      {changes, useDir, beginHold, nil}, // files: only those that it has leases on

	// Locks are advice: who may look at a file may lock it, read-only or not.
	meta.OpLock:       {reads, useLock, nil, nil},
	meta.OpTestLock:   {reads, useLock, nil, nil},
	meta.OpUnlock:     {free, 0, beginUnlock, nil},
	meta.OpAwaitLocks: {free, 0, nil, nil},
	meta.OpHeldLocks:  {free, 0, beginUnlock, nil},
	meta.OpClaimLocks: {free, 0, beginClaimLocks, endClaimLocks},

	// Sessions. Succeed and ClaimLocks name an earlier one, and the service itself demands that it
	// has the same name as the caller's.
	meta.OpNewSession: {free, 0, beginSession, endSession},
	meta.OpKeepAlive:  {free, useSession, nil, nil},
	meta.OpEndSession: {free, useSession, nil, nil},
	meta.OpEndClient:  {free, 0, beginEndClient, nil},
	meta.OpListen:     {free, 0, beginListen, nil},
	meta.OpClaim:      {free, useSession, beginClaim, endClaim},
	meta.OpSucceed:    {free, 0, nil, nil},
	meta.OpSync:       {free, 0, nil, nil},

	meta.OpCreateVolume: {changes, 0, beginVolume, nil},
	meta.OpRemoveVolume: {changes, 0, beginVolume, nil},
	meta.OpOpenVolume:   {reads, 0, beginVolume, nil},
	meta.OpResizeVolume: {changes, 0, beginVolume, endVolume},
	meta.OpHandOver:     {changes, 0, beginVolume, endVolume},
	meta.OpAwaitVolume:  {reads, 0, beginAwaitVolume, endVolume},
	meta.OpListVolumes:  {reads, 0, beginListVolumes, endListVolumes},

	// The cluster as a whole: what a client needs to reach data and to choose where new data goes.
	meta.OpServers:   {free, 0, nil, endServers},
	meta.OpStatFS:    {free, 0, beginStatFS, nil},
	meta.OpTime:      {free, 0, nil, nil},
	meta.OpListPools: {free, 0, nil, nil},
	meta.OpGetQuota:  {reads, useIno, nil, endQuota},

	// Who there is: the hosts, as status shows them, and of the clients itself.
	meta.OpHosts:       {free, 0, nil, endHosts},
	meta.OpListClients: {free, 0, nil, endListClients},

	meta.OpJoin:          {what: adminOnly},
	meta.OpBeat:          {what: adminOnly},
	meta.OpRemoveServer:  {what: adminOnly},
	meta.OpSetQuota:      {what: adminOnly},
	meta.OpListQuotas:    {what: adminOnly},
	meta.OpRemoveQuota:   {what: adminOnly},
	meta.OpCreatePool:    {what: adminOnly},
	meta.OpChangePool:    {what: adminOnly},
	meta.OpRemovePool:    {what: adminOnly},
	meta.OpCheck:         {what: adminOnly},
	meta.OpDump:          {what: adminOnly},
	meta.OpCreateToken:   {what: adminOnly},
	meta.OpListTokens:    {what: adminOnly},
	meta.OpRemoveToken:   {what: adminOnly},
	meta.OpUseToken:      {what: adminOnly},
	meta.OpListMembers:   {what: adminOnly},
	meta.OpGetMember:     {what: adminOnly},
	meta.OpEnlistMember:  {what: adminOnly},
	meta.OpRenewMember:   {what: adminOnly},
	meta.OpRemoveMember:  {what: adminOnly},
	meta.OpListDenied:    {what: adminOnly},
	meta.OpRegistry:      {what: adminOnly},
	meta.OpSetGeneration: {what: adminOnly},

	meta.OpReserveServers: {what: adminOnly},
	meta.OpServerKeys:     {what: adminOnly},
}
