// Package kv is the contract of the ordered, transactional key-value store under the metadata
// service. Transactions are data, not closures: checks and effects are listed, and the engine
// commits all of them or none. Because of that the same transaction can be sent to an embedded
// engine or, later, to etcd, repeated after a lost answer, and recorded by a test.
//
// It knows nothing of files. Engines live below it (memkv, pebblekv, with shared parts in
// engine); kvtest is the definition of what an engine must do, phantoms and replays included.
//
// Read kv.go first, then kvtest.
package kv

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
)

// Limits of one transaction, so that every engine, etcd included, can commit it whole.
const (
	MaxOps       = 64        // checks + ranges + puts + deletes + adds
	MaxTxnBytes  = 256 << 10 // keys and values of all of them together
	MaxKeyBytes  = 1 << 10
	ReqIDBytes   = 16
	CounterBytes = 8       // the value of a key that is added to
	ReplayWindow = 1 << 16 // how many recent request ids an engine remembers at least
	SinceWindow  = 1 << 12 // how many recent changes of keys an engine remembers at least
)

// Errors of Commit, by kind: errs.Conflict (a check failed: read again and retry), errs.TooBig
// (over a limit above) and errs.Invalid (an empty key, two effects on a key, a range that holds
// nothing, an add to what is no counter): a programmer's mistake; errs.MaybeDone (the outcome is
// unknown: commit the same Txn again; its ReqID makes that safe); errs.NoSpace and errs.IO (a
// write failed, or there is too little room to try; the engine is read-only until there is room, or
// for good. Whether the transaction survives is known only when the engine takes commits again).
var (
	ErrConflict = errs.Conflict
	ErrTooLarge = errs.TooBig
	ErrMaybe    = errs.MaybeDone
)

// Version is the number of the commit that wrote a key. Commits are numbered 1, 2, 3 ... in the
// order in which they take effect, those without effects included; 0 means "the key does not
// exist". Numbers are never reused, not even after a crash: then some are left out.
type Version uint64

// ReqID names a transaction for ever. The zero id means: do not record, do not recognise.
type ReqID [ReqIDBytes]byte

// Check demands that Key's version is Version when the transaction commits; 0 demands absence.
// With Exists set, Version is ignored and the key must merely exist: that is how two creates in
// one directory avoid conflicting with each other over their parent.
type Check struct {
	Key     []byte
	Version Version
	Exists  bool
}

// RangeCheck demands something of every key in [Start, End): with Since == 0, that there is none;
// otherwise that none was put, added to or deleted after version Since. It is what keeps phantoms
// out. An empty End means no upper bound.
//
// Since is the version of a snapshot. A delete counts as a change whether or not the key was
// there. An engine remembers the latest SinceWindow changes at least, and need not remember any
// from before it was opened: an older Since is answered with errs.Conflict, and so is one that a
// crash undid.
type RangeCheck struct {
	Start, End []byte
	Since      Version
}

// Put stores a value. A nil Value is stored as the empty value.
type Put struct{ Key, Value []byte }

// Add adds Delta to a key that holds a 64-bit counter (8 bytes, big-endian, two's complement); an
// absent key counts as 0. Adds commute: two transactions that add to one key never conflict over
// it, unless one of them checks it. Reading it is reading 8 bytes.
type Add struct {
	Key   []byte
	Delta int64
}

// Result is what a commit gave.
type Result struct {
	Version Version // of the keys that it wrote
	Answer  uint64  // Txn.Answer; for a repeat, that of the first time
}

// Txn is one transaction. A key may appear in at most one of Puts, Deletes and Adds. The engine
// does not keep references to the slices after Commit returns, and does not change them.
type Txn struct {
	ReqID   ReqID
	Checks  []Check
	Ranges  []RangeCheck
	Puts    []Put
	Deletes [][]byte
	Adds    []Add

	// Answer is kept with ReqID, for as long, and comes back when the id is committed again: what a
	// caller chose the first time (a number that it gave out) is the same the second time. The zero
	// id keeps none.
	Answer uint64

	// MakesRoom: the transaction removes something, or helps to, and may use room that an engine
	// keeps for that when its disk is nearly full. Others are refused early then, with errs.NoSpace.
	MakesRoom bool

	// Sync: Commit returns only after the transaction, and so all before it, is on disk. Without it
	// the transaction is visible at once and has left the process when Commit returns, so that it
	// survives kill -9 (of an engine that outlives its process at all); it survives a power cut with
	// the next Sync or synced commit. What a power cut leaves is a prefix of the commit order.
	Sync bool
}

// Store is an engine. All methods are safe for concurrent use. Close waits for running commits,
// makes everything durable and fails what comes later with errs.Closed. Snapshots must be closed
// before.
type Store interface {
	// Commit applies t as a whole or returns an error and applies nothing (but see ErrMaybe). A
	// ReqID that was committed within the replay window (kept across restarts for what was durable)
	// is not applied again: version and answer of the first time are returned, whatever the checks
	// would say now.
	Commit(ctx context.Context, t *Txn) (Result, error)

	// Snapshot is the state after the latest commit that returned, or a later one. It never
	// changes.
	Snapshot() Snapshot

	// Sync returns when every commit that returned before the call is on disk.
	Sync(ctx context.Context) error

	Close() error
}

// Snapshot is a consistent view for reading. Safe for concurrent use until Close, which must be
// called.
type Snapshot interface {
	// Version is the number of the last commit that is part of the view.
	Version() Version

	// Get returns the value and version of a key; an absent key gives nil, 0, nil. The value is
	// the caller's to keep and must not be changed.
	Get(key []byte) ([]byte, Version, error)

	// Scan calls fn for the keys in [start, end) in order until fn returns false. A nil end means
	// no upper bound. key and value are valid only during the call.
	Scan(start, end []byte, fn func(key, value []byte, v Version) bool) error

	Close() error
}

// PrefixEnd returns the end of the range that holds exactly the keys starting with prefix; nil
// when there is no such bound.
func PrefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
