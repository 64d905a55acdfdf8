package errs

import "syscall"

// Kind says why an operation failed. Values are part of the wire format: append, never renumber.
type Kind uint16

// The kinds. The comment says what a caller may conclude.
const (
	OK           Kind = iota // no error
	NotFound                 // no such name or object
	Exists                   // the name is taken
	NotDir                   // a path component is not a directory
	IsDir                    // the object is a directory
	NotEmpty                 // the directory has entries
	Access                   // permission bits refuse it
	Perm                     // not permitted for this caller whatever the bits say
	Invalid                  // the arguments make no sense
	NameTooLong              // a name or path is longer than the limit
	NoSpace                  // the disk, log or table is full
	Quota                    // the owner's share is full
	TooBig                   // larger than a stated limit
	IO                       // the device failed, or nobody knows what failed
	Corrupt                  // stored bytes fail their checksum or format
	Stale                    // handle, generation or truncate sequence is out of date: refresh, retry
	Fenced                   // a newer writer or epoch has taken over: do not retry
	Expired                  // the capability has run out: renew, retry
	Forged                   // a capability or token does not verify
	Conflict                 // a transaction's checks failed: read again, retry
	MaybeDone                // the outcome is unknown: ask by request id
	Busy                     // in use by somebody else
	Again                    // a limit was reached for the moment: retry later
	TimedOut                 // no answer within the bound
	Canceled                 // the caller gave up
	Disconnected             // the peer is gone: reconnect, retry if idempotent
	Closed                   // this side closed the object already
	Shutdown                 // the peer is shutting down: reconnect elsewhere or later
	Protocol                 // the peer sent what the protocol forbids
	Version                  // format or protocol version is not understood
	Unsupported              // the operation does not exist here
	NoData                   // no such attribute
	OutOfRange               // a buffer or range is too small or past the end
	Loop                     // too many symbolic links, or a directory into itself
	TooManyLinks             // link count limit
	ReadOnly                 // the store or export is read-only
	CrossDevice              // the two names live in different file systems
	NoMemory                 // the memory bound is reached
	TooManyOpen              // a bound on open files is reached
	Deadlock                 // whoever waited for this lock would wait for itself
	NoLocks                  // a bound on locks is reached
	kindCount
)

type kindRow struct {
	text  string
	errno syscall.Errno
}

var kinds = [kindCount]kindRow{
	OK:           {"ok", 0},
	NotFound:     {"not found", syscall.ENOENT},
	Exists:       {"exists", syscall.EEXIST},
	NotDir:       {"not a directory", syscall.ENOTDIR},
	IsDir:        {"is a directory", syscall.EISDIR},
	NotEmpty:     {"directory not empty", syscall.ENOTEMPTY},
	Access:       {"permission denied", syscall.EACCES},
	Perm:         {"not permitted", syscall.EPERM},
	Invalid:      {"invalid argument", syscall.EINVAL},
	NameTooLong:  {"name too long", syscall.ENAMETOOLONG},
	NoSpace:      {"no space left", syscall.ENOSPC},
	Quota:        {"quota exceeded", syscall.EDQUOT},
	TooBig:       {"too big", syscall.EFBIG},
	IO:           {"input/output error", syscall.EIO},
	Corrupt:      {"corrupt", syscall.EBADMSG},
	Stale:        {"stale", syscall.ESTALE},
	Fenced:       {"fenced off", syscall.EOWNERDEAD},
	Expired:      {"expired", syscall.EKEYEXPIRED},
	Forged:       {"capability refused", syscall.EKEYREJECTED},
	Conflict:     {"conflict", syscall.ERESTART},
	MaybeDone:    {"outcome unknown", syscall.EINPROGRESS},
	Busy:         {"busy", syscall.EBUSY},
	Again:        {"try again", syscall.EAGAIN},
	TimedOut:     {"timed out", syscall.ETIMEDOUT},
	Canceled:     {"canceled", syscall.ECANCELED},
	Disconnected: {"disconnected", syscall.ECONNRESET},
	Closed:       {"closed", syscall.EBADF},
	Shutdown:     {"shutting down", syscall.ESHUTDOWN},
	Protocol:     {"protocol error", syscall.EPROTO},
	Version:      {"version not supported", syscall.EPROTONOSUPPORT},
	Unsupported:  {"not supported", syscall.EOPNOTSUPP},
	NoData:       {"no such attribute", syscall.ENODATA},
	OutOfRange:   {"out of range", syscall.ERANGE},
	Loop:         {"too many links in path", syscall.ELOOP},
	TooManyLinks: {"too many links", syscall.EMLINK},
	ReadOnly:     {"read-only", syscall.EROFS},
	CrossDevice:  {"cross-device link", syscall.EXDEV},
	NoMemory:     {"out of memory bound", syscall.ENOMEM},
	TooManyOpen:  {"too many open files", syscall.ENFILE},
	Deadlock:     {"deadlock", syscall.EDEADLK},
	NoLocks:      {"too many locks", syscall.ENOLCK},
}

// String is the kind's text for people.
func (k Kind) String() string {
	if k < kindCount {
		return kinds[k].text
	}
	return "unknown kind"
}

// Error lets a Kind be returned and compared as an error by itself.
func (k Kind) Error() string { return k.String() }

// Errno is the one errno that stands for the kind; EIO for kinds from a newer peer.
func (k Kind) Errno() syscall.Errno {
	if k < kindCount {
		return kinds[k].errno
	}
	return syscall.EIO
}

// Valid tells whether this build knows the kind.
func (k Kind) Valid() bool { return k < kindCount }

// FromErrno finds the kind for an errno of the local kernel; IO for those that have no kind.
func FromErrno(no syscall.Errno) Kind {
	for k := Kind(0); k < kindCount; k++ {
		if kinds[k].errno == no {
			return k
		}
	}
	switch no {
	case syscall.EPIPE, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.ENOTCONN,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN,
		syscall.ENETRESET, syscall.ENONET: // the way to a peer comes back
		return Disconnected
	case syscall.EINTR:
		return Again
	}
	return IO
}
