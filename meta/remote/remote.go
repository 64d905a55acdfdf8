// Package remote is a meta.Service that asks one over the network. It names every operation that
// changes something by a request id, so that it can repeat it, under the same id, when the
// connection breaks or the service restarts: callers see a delay.
//
// It caches nothing and keeps no session alive: package client does. A session that has ended is
// reported (errs.Stale) and not replaced, because the files that it had open are closed.
//
// Read remote.go first; calls.go is the list of operations.
package remote

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/internal/bulk"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// pageBytes is the room that is offered for a page of a directory and for other answers that are
// often large: some 700 entries with attributes.
const pageBytes = 128 << 10

// entryBytes is the room for an entry of a directory with attributes: most need less.
const entryBytes = 256

// smallBytes is the room for a small file and its attributes.
const smallBytes = meta.SmallMax + 4<<10

// peerName is what the service is called in errors.
const peerName = "metadata service"

// Options of a Service.
type Options struct {
	// Pool has the connection to the service. It stays the caller's. Required.
	Pool *peer.Pool

	// Peer is the pool's name for the service. Default: 0.
	Peer uint32

	// Node is the pool's. Required.
	Node *msg.Node

	// WaitMax is how long an operation waits for a service that cannot be reached, does not answer,
	// or cannot do it for the moment; then it fails with errs.TimedOut. A service that works at one
	// operation for long is waited for on the same connection: that it is there at all is what
	// msg.Options.KeepAlive finds out. A context that ends earlier ends it earlier. peer.Forever: no
	// limit. Default: 60 s.
	WaitMax time.Duration

	// Backoff is the pause between attempts. Default: that of package peer.
	Backoff peer.Backoff

	// OnMap, if not nil, is called when an answer tells a later version of the cluster's map than all
	// before. It must not block.
	OnMap func(version uint64)
}

func (o Options) withDefaults() Options {
	if o.WaitMax == 0 {
		o.WaitMax = 60 * time.Second
	}
	return o
}

func (o *Options) validate() error {
	if o.Pool == nil || o.Node == nil {
		return errs.Newf(errs.Invalid, "remote.New", "", "Pool and Node are required")
	}
	return nil
}

// How many requests may be under way that may have to wait for another client, which may in turn
// wait for this one to give a lease back. Before that goes back handles may have to be opened
// (ForUpkeep): they have places of their own. A connection has 64 credits: what is left is for what
// else the other one waits for, which is Listen, and what is told before.
const (
	waitersMax = 40
	upkeepMax  = 16
)

// Service implements meta.Service. Safe for concurrent use.
type Service struct {
	opt     Options
	waiters *gate.Gate
	upkeep  *gate.Gate
	seenMap atomic.Uint64 // the latest version of the map that was told
}

var _ meta.Service = (*Service)(nil)

// New makes a service that is reached through a pool. It does not connect yet.
func New(opt Options) (*Service, error) {
	opt = opt.withDefaults()
	if err := opt.validate(); err != nil {
		return nil, err
	}
	return &Service{opt: opt, waiters: gate.New(gate.Options{Name: "requests", Count: waitersMax}),
		upkeep: gate.New(gate.Options{Name: "openings", Count: upkeepMax})}, nil
}

// gateOf is what bounds an operation; nil for those that wait for no other client.
func (s *Service) gateOf(ctx context.Context, op meta.Op) *gate.Gate {
	switch op {
	case meta.OpListen, meta.OpClaim, meta.OpKeepAlive, meta.OpRenew, meta.OpCommit, meta.OpClose,
		meta.OpCloseMany, meta.OpMoveOut, meta.OpNewSession, meta.OpEndSession, meta.OpEndClient,
		meta.OpSync, meta.OpJoin, meta.OpServerKeys, meta.OpServers, meta.OpStatFS, meta.OpTime,
		meta.OpLock, meta.OpUnlock, meta.OpTestLock, meta.OpAwaitLocks, meta.OpClaimLocks, meta.OpGrow,
		meta.OpAwaitVolume,
		meta.OpAccessed, meta.OpSucceed, meta.OpHeldLocks, meta.OpBeat, meta.OpHosts, meta.OpNumbers,
		meta.OpTellMany:
		return nil
	case meta.OpOpen:
		if IsUpkeep(ctx) {
			return s.upkeep
		}
	}
	return s.waiters
}

// exchanges are used again: arguments and results are large, and most of them empty.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// keepBytes is how large a buffer may be that is kept for the next exchange.
const keepBytes = 256 << 10

// release gives an exchange back. A result may point into the reply.
func (x *exchange) release() {
	x.args, x.result = meta.Args{}, meta.Result{}
	if pointsIntoReply(x.op) || cap(x.reply.Body) > keepBytes {
		x.reply.Body = nil
	}
	if cap(x.content) > keepBytes {
		x.content = nil
	}
	exchanges.Put(x)
}

// pointsIntoReply tells whether something in the result of an operation may lie in its reply.
func pointsIntoReply(op meta.Op) bool {
	switch op {
	case meta.OpLookup, meta.OpMake, meta.OpLink, meta.OpRemove, meta.OpRename, meta.OpGetAttr,
		meta.OpSetAttr, meta.OpCommit, meta.OpClose, meta.OpCloseMany, meta.OpListen,
		meta.OpKeepAlive, meta.OpNumbers, meta.OpTellMany, meta.OpHold:
		return false
	}
	return true
}

// call does one operation, repeating it as long as that may help.
func (s *Service) call(ctx context.Context, op meta.Op, a meta.Args) (r meta.Result, err error) {
	x := exchanges.Get().(*exchange)
	x.op, x.args = op, a
	err = s.do(ctx, x)
	r = x.result
	x.release()
	return r, err
}

func (s *Service) do(ctx context.Context, x *exchange) error {
	op, a := x.op, &x.args
	if err := fits(op, a); err != nil {
		return errs.Wrap("meta."+op.String(), a.Name, err)
	}
	if a.Caller.ReqID == (meta.Caller{}).ReqID && changes(op) {
		rand.Read(a.Caller.ReqID[:])
	}
	x.content = a.Append(op, append(x.content[:0], bulk.InBody))
	if len(x.content) > bulk.Max {
		return errs.Newf(errs.TooBig, "meta."+op.String(), "", "a request of %d bytes",
			len(x.content))
	}
	x.room = roomOf(op, a)
	if g := s.gateOf(ctx, op); g != nil {
		if err := g.Take(ctx, int(levelOf(op)), 1, 0); err != nil {
			return errs.Wrap("meta."+op.String(), "", err)
		}
		defer g.Give(1, 0)
	}
	p := peer.Patience{Peer: peerName, Max: s.opt.WaitMax, Backoff: s.opt.Backoff}
	err := p.Do(ctx, time.Now(), func(ctx context.Context) error { return s.attempt(ctx, x) })
	if err != nil {
		return errs.Wrap("meta."+op.String(), "", err)
	}
	return nil
}

// roomOf is the room that is offered for an answer in the first place; 0: that of a message's body.
func roomOf(op meta.Op, a *meta.Args) int {
	switch op {
	case meta.OpScan:
		if len(a.Scan.Also) > 0 {
			return pageBytes + a.Scan.Bytes
		}
		return min(pageBytes, entryBytes*a.Scan.Max) + a.Scan.Bytes
	case meta.OpReadDir, meta.OpListXattr, meta.OpListVolumes, meta.OpCheck, meta.OpHeldLocks,
		meta.OpListTokens, meta.OpListMembers, meta.OpListDenied, meta.OpHosts, meta.OpListClients:
		return pageBytes
	case meta.OpDump:
		return meta.DumpPageMax + pageBytes
	case meta.OpReadSmall:
		return smallBytes
	}
	return 0
}

// changes tells whether an operation must not be done twice. All others may be repeated freely.
func changes(op meta.Op) bool {
	switch op {
	case meta.OpLookup, meta.OpReadDir, meta.OpReadLink, meta.OpGetAttr, meta.OpGetXattr,
		meta.OpListXattr, meta.OpRenew, meta.OpListVolumes, meta.OpTime, meta.OpFind, meta.OpListen,
		meta.OpAwaitVolume, meta.OpClaim, meta.OpReadSmall, meta.OpTestLock, meta.OpAwaitLocks,
		meta.OpClaimLocks, meta.OpSucceed, meta.OpHeldLocks, meta.OpScan,
		meta.OpGrow, meta.OpGetQuota, meta.OpListQuotas, meta.OpCheck, meta.OpDump, meta.OpAccessed,
		meta.OpGetLayout, meta.OpListPools, meta.OpNumbers, meta.OpHold,
		meta.OpListTokens, meta.OpListMembers, meta.OpGetMember, meta.OpListDenied, meta.OpRegistry,
		meta.OpServerKeys, meta.OpBeat, meta.OpHosts, meta.OpListClients, meta.OpRemoveServer:
		return false
	}
	return true
}

// levelOf is the service level of an operation: signs of life before names, names before lists.
func levelOf(op meta.Op) msg.Level {
	switch op {
	case meta.OpKeepAlive, meta.OpRenew, meta.OpJoin, meta.OpServerKeys, meta.OpTime, meta.OpBeat,
		meta.OpListen, meta.OpClaim, meta.OpUnlock, meta.OpAwaitLocks, meta.OpClaimLocks, meta.OpSucceed:
		return 2 // who releases comes before who wants
	case meta.OpReadDir, meta.OpListXattr, meta.OpListVolumes, meta.OpListQuotas, meta.OpCheck,
		meta.OpDump, meta.OpRemoveTree, meta.OpListPools, meta.OpListTokens, meta.OpListMembers,
		meta.OpListDenied, meta.OpListClients:
		return 0
	}
	return 1
}

// fits refuses, as the service would, what no request can carry.
func fits(op meta.Op, a *meta.Args) error {
	nameMax, tooLong := meta.NameMax, errs.NameTooLong
	switch op {
	case meta.OpGetXattr, meta.OpSetXattr, meta.OpRemoveXattr:
		nameMax, tooLong = meta.XattrName, errs.OutOfRange
	case meta.OpListVolumes:
		nameMax++ // meta.NextVolume
	}
	switch {
	case len(a.Name) > nameMax || len(a.NewName) > nameMax || len(a.Scan.Name) > nameMax+1:
		return tooLong
	case len(a.File.Target) > meta.SymlinkMax || len(a.Client) > 255:
		return errs.NameTooLong
	case len(a.Value) > meta.XattrValue:
		return errs.TooBig
	case len(a.Change.Data) > meta.SmallMax || len(a.Closing.Change.Data) > meta.SmallMax:
		return errs.TooBig
	case slices.ContainsFunc(a.Closings, func(c meta.Closing) bool {
		return len(c.Change.Data) > meta.SmallMax
	}):
		return errs.TooBig
	case slices.ContainsFunc(a.Deferred, func(w meta.Deferred) bool {
		return len(w.Change.Data) > meta.SmallMax || len(w.Name) > meta.NameMax ||
			len(w.File.Target) > meta.SymlinkMax
	}):
		return errs.TooBig
	case len(a.Deferred) > meta.TellMax:
		return errs.Invalid
	case len(a.Closings) > meta.CloseMax || len(a.Claims) > meta.ClaimMax ||
		len(a.Listen.Acks) > meta.RecallsMax:
		return errs.Invalid
	case len(a.Caller.Cred.Groups) > meta.GroupsMax || len(a.Server.Addr) > 255 ||
		len(a.Server.Host) > identity.NameMax:
		return errs.Invalid
	case len(a.Server.Host) > identity.NameMax || len(a.Server.Version) > meta.VersionMax ||
		len(a.Host.Name) > identity.NameMax || len(a.Host.Version) > meta.VersionMax:
		return errs.Invalid
	case a.Listen.About != nil && (len(a.Listen.About.Version) > meta.VersionMax ||
		len(a.Listen.About.Mount) > meta.MountMax):
		return errs.Invalid
	case len(a.File.Pool) > layout.PoolNameMax || len(a.Policy.Pool) > layout.PoolNameMax ||
		len(a.Add) > meta.PoolServersMax || len(a.Drop) > meta.PoolServersMax:
		return errs.Invalid
	case a.Registry != nil:
		return a.Registry.Check()
	}
	return nil
}

// exchange is an operation on its way: what is sent, how much room there is for the answer, and
// the answer.
type exchange struct {
	op      meta.Op
	args    meta.Args
	content []byte // begins with the byte that says where it is
	room    int    // of the In segment; 0: none
	reply   msg.Reply
	result  meta.Result
}

// attempt sends the request once, or twice if the answer needs more room than was offered.
func (s *Service) attempt(ctx context.Context, x *exchange) error {
	conn, err := s.opt.Pool.Get(ctx, s.opt.Peer)
	if err != nil {
		return err
	}
	for range 3 {
		more, err := s.once(ctx, conn, x)
		if err != nil || !more {
			return err
		}
	}
	// A list that grows faster than it can be fetched.
	return errs.Newf(errs.Again, "meta.call", x.op.String(), "the answer grows all the time")
}

// once sends the request. more means that x.room was raised and the request must be repeated.
func (s *Service) once(ctx context.Context, conn *msg.Conn, x *exchange) (more bool, err error) {
	req := msg.Request{Op: uint16(x.op), Level: levelOf(x.op), Body: x.content,
		Patient: patient(ctx, x.op)}
	var out, in *bulk.Memory
	defer func() { out.Free(); in.Free() }()
	if x.room > 0 {
		if in, err = bulk.New(s.opt.Node, conn, x.room); err != nil {
			return false, err
		}
		req.In = in.Segment()
	}
	if len(x.content)+req.In.DescriptionBytes() > conn.MaxDescription() {
		if out, err = bulk.New(s.opt.Node, conn, len(x.content)-1); err != nil {
			return false, err
		}
		copy(out.Bytes(), x.content[1:])
		req.Out, req.Body = out.Segment(), []byte{bulk.InSegment}
	}
	x.reply.Map = 0
	err = conn.Call(ctx, &req, &x.reply)
	s.heardMap(x.reply.Map) // errors tell it, too
	if err != nil {
		return false, err
	}
	return x.answer(in)
}

// heardMap takes note of a version of the map.
func (s *Service) heardMap(v uint64) {
	for {
		known := s.seenMap.Load()
		if v <= known {
			return
		}
		if s.seenMap.CompareAndSwap(known, v) {
			break
		}
	}
	if s.opt.OnMap != nil {
		s.opt.OnMap(v)
	}
}

// MapVersion is the latest version of the cluster's map that an answer has told; 0: there was none.
func (s *Service) MapVersion() uint64 { return s.seenMap.Load() }

// InBackground returns a context for operations that nobody waits for: those that somebody waits
// for meanwhile are not slowed down by them, and their own answers are heard of a moment later.
func InBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, background{}, true)
}

type background struct{}

// ForUpkeep returns a context for openings of what a client has open already: because it gives a
// lease back, or has lost its session. Openings that programs ask for, and that wait for other
// clients, do not keep them waiting: those may wait for them.
func ForUpkeep(ctx context.Context) context.Context {
	return context.WithValue(ctx, upkeep{}, true)
}

// IsUpkeep tells whether a context comes from ForUpkeep.
func IsUpkeep(ctx context.Context) bool { return ctx.Value(upkeep{}) != nil }

type upkeep struct{}

// patient tells whether nobody is in a hurry for the answer, or it is long in coming.
func patient(ctx context.Context, op meta.Op) bool {
	return op == meta.OpListen || op == meta.OpAwaitLocks || op == meta.OpAwaitVolume ||
		ctx.Value(background{}) != nil
}

// answer reads the reply.
func (x *exchange) answer(in *bulk.Memory) (more bool, err error) {
	body := x.reply.Body
	x.result = meta.Result{}
	switch {
	case len(body) > 0 && body[0] == bulk.InBody:
		return false, x.result.Decode(x.op, body[1:])
	case len(body) == 1 && body[0] == bulk.InSegment && in != nil && x.reply.InLen <= int64(x.room):
		return false, x.result.Decode(x.op, in.Bytes()[:x.reply.InLen])
	case len(body) > 1 && body[0] == bulk.TooLarge:
		n, err := bulk.Needed(body[1:])
		if err == nil && n <= x.room {
			err = errs.Newf(errs.Protocol, "meta.call", x.op.String(), "asks for room that it has")
		}
		x.room = n
		return true, err
	}
	return false, errs.Newf(errs.Protocol, "meta.call", x.op.String(), "the answer has no content")
}
