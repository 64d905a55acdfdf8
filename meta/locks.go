package meta

import (
	"context"
	"math"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Locks keeps advisory locks on files, between all clients: flock(2), and ranges of bytes as
// fcntl(2) has them, of processes (POSIX) and of open files (OFD). An owner is a number that the
// client chooses, within its session; locks of one owner never conflict with each other.
//
// Locks belong to the session and are not in the store. They are released when the session ends. If
// the session was found dead they are released when its last capability has run out: until then it
// may write to what it has locked. After a restart of the service clients claim what they held;
// until all of them have done so nothing else is granted.
//
// Requests that wait are granted in the order in which they came, as far as they conflict: nobody
// overtakes an earlier request that it conflicts with, unless that one waits for a lock of its
// own owner. A waiting request occupies neither a goroutine nor a place at the service: Lock
// answers LockQueued at once, and AwaitLocks tells all that has become of a session's requests.
//
// Nothing of this is checked against open handles: a client asks on behalf of a file that it has
// open.
type Locks interface {
	// Lock takes a lock, or changes the type of what its owner has locked in that range. With LockTry
	// a conflict is errs.Busy. With LockWait the answer may be LockQueued; the request is known
	// by c.ReqID, which must not be zero then. If the owner would wait for itself, in a circle of
	// owners that wait for each other, it is errs.Deadlock. A change of flock's type is not atomic:
	// the old lock is gone while the new one is waited for, and also where that is refused.
	//
	// LockCancel takes back the Lock with the request id c.ReqID, whether it was done, waits, or is
	// still on its way. If the answer is LockGranted it came too late, and the lock is held;
	// otherwise it is LockGone.
	//
	// errs.NoLocks: the session or all together have too many. errs.Again: the service has just been
	// started, and others may have claims. errs.Stale: the session has ended.
	Lock(ctx context.Context, c Caller, l Lock, mode LockMode) (LockState, error)

	// Unlock releases what the owner holds in the range; all, where it is from 0 to LockEndMax. It
	// succeeds if that is nothing. Waiting requests of the owner go on waiting.
	Unlock(ctx context.Context, c Caller, l Lock) error

	// TestLock tells the lock that l would have to wait for, of several the one that begins first in
	// the file; found is false if there is none. Its PID is 0 if it belongs to another session.
	TestLock(ctx context.Context, c Caller, l Lock) (holder Lock, found bool, err error)

	// AwaitLocks returns what has become of queued requests of the session: all events behind the
	// number after, which acknowledges those before. It waits until there is one, at most for wait,
	// and may return none. If life is not the number of the service's present life it returns at once
	// with the right one: all locks that are not claimed will be lost, all queued requests are.
	AwaitLocks(ctx context.Context, c Caller, life, after uint64, wait time.Duration) (
		LockNews, error)

	// ClaimLocks tells what a client holds: after a restart of the service, or on behalf of its new
	// session in place of old, a session of the same client. With more there are further claims to
	// come. It returns those locks that are lost: others may have had them in between. What old still
	// holds belongs to the new session from then on.
	ClaimLocks(ctx context.Context, c Caller, old uint64, locks []Lock, more bool) (
		lost []Lock, err error)
}

// LockKind tells apart locks that do not see each other.
type LockKind uint8

// The kinds.
const (
	LockFlock LockKind = iota + 1 // flock(2): Start is 0, End is LockEndMax
	LockRange                     // fcntl(2)
)

// LockType is how a lock is held.
type LockType uint8

// The types.
const (
	LockShared LockType = iota + 1
	LockExclusive
)

// LockEndMax is the End of a lock that reaches to the end of the file, however long it becomes.
const LockEndMax = math.MaxInt64

// Lock is a lock that is held or asked for.
type Lock struct {
	Ino        Ino
	Owner      uint64
	Kind       LockKind
	Type       LockType // not for Unlock
	Start, End int64    // the first and the last byte
	PID        uint32   // the process, to be shown to others of the same client
}

// Validate tells whether a lock makes sense; typed demands a type.
func (l *Lock) Validate(typed bool) error {
	ok := l.Start >= 0 && l.Start <= l.End && (l.Kind == LockRange ||
		l.Kind == LockFlock && l.Start == 0 && l.End == LockEndMax)
	if typed {
		ok = ok && (l.Type == LockShared || l.Type == LockExclusive)
	}
	if !ok {
		return errs.Newf(errs.Invalid, "meta.lock", "", "kind %d, type %d, bytes %d to %d", l.Kind,
			l.Type, l.Start, l.End)
	}
	return nil
}

// LockMode is what Lock does about a conflict.
type LockMode uint8

// The modes.
const (
	LockTry LockMode = iota + 1
	LockWait
	LockCancel
)

// LockState is what has become of a request.
type LockState uint8

// The states.
const (
	LockGranted LockState = iota + 1
	LockQueued
	LockGone // taken back
)

// LockEvent is the end of a queued request.
type LockEvent struct {
	ID   [16]byte  // the request's
	Kind errs.Kind // OK: it was granted
}

// LockNews is the answer to AwaitLocks.
type LockNews struct {
	Life   uint64 // of the service: another number after each start, never 0
	Next   uint64 // pass it as after, next time
	Events []LockEvent
}

// LockAwaitMax is the longest time that one AwaitLocks waits.
const LockAwaitMax = 10 * time.Second

// Bounds of one message.
const (
	LockClaimMax = 1024 // locks of one ClaimLocks
	LockEventMax = 256  // events of one AwaitLocks
)
