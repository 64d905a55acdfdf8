package meta

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/identity"
)

// Membership. I/O servers and hosts say every second that they are there. What the service makes of
// that is their state: a heartbeat that is late makes them slow, then down. Each start of a server
// or host is an incarnation of it, a number that is higher than that of all starts before, so that
// a message of an earlier one that comes late is refused.
//
// States, addresses, incarnations and versions of programs are the cluster's map. A change of it is
// one transaction, which raises the map's version; a heartbeat that changes nothing is not written
// down. Every answer of the service tells the version, and a client that listens is told at once
// (Heard.Map): then it asks for the map, once.

// State is what is thought of an I/O server or a host.
type State uint8

// The states. Values are stored: append, never renumber.
const (
	StateUp      State = iota + 1 // heard of a moment ago
	StateSlow                     // not heard of for SlowAfter
	StateDown                     // not heard of for HeartbeatMax, or it has left before
	StateLeaving                  // said that it ends, and is not silent for HeartbeatMax yet
	StateGone                     // was removed
	stateEnd
)

// Valid tells whether there is such a state.
func (s State) Valid() bool { return s > 0 && s < stateEnd }

// Serves tells whether requests should be answered soon.
func (s State) Serves() bool { return s == StateUp || s == StateSlow }

func (s State) String() string {
	switch s {
	case StateUp:
		return "up"
	case StateSlow:
		return "slow"
	case StateDown:
		return "down"
	case StateLeaving:
		return "leaving"
	case StateGone:
		return "gone"
	}
	return "unknown"
}

// MarshalText is for reports.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the reverse of MarshalText; what is unknown is 0.
func (s *State) UnmarshalText(b []byte) error {
	*s = 0
	for v := range stateEnd {
		if v.Valid() && v.String() == string(b) {
			*s = v
		}
	}
	return nil
}

// HeartbeatMax is for how long a server counts as up after a Join, SlowAfter for how long nobody
// wonders. It should join at least three times as often as that.
const (
	HeartbeatMax = 10 * time.Second
	SlowAfter    = 3 * time.Second
)

// Limits of what members say of themselves.
const (
	VersionMax    = 64  // bytes of a program's version
	MountMax      = 255 // bytes that say where a client is mounted
	ClientPageMax = 256 // clients that one ListClients returns at most
	HostsMax      = 4096
)

// Membership keeps hosts, and shows clients.
type Membership interface {
	// Beat announces a host and is repeated as its heartbeat, as Cluster.Join is for I/O servers. The
	// caller must be that host, or somebody of the service's own. errs.Stale: a later start of the
	// host was heard of. errs.NotFound: it was removed, and has not been started since.
	Beat(ctx context.Context, c Caller, h Host) error

	// Hosts lists the hosts that were heard of, by their names.
	Hosts(ctx context.Context) ([]Host, error)

	// ListClients returns up to max clients (ClientPageMax at the most) with sessions above after, in
	// order. An empty page is the end. Clients that are known by a certificate see their own, and so
	// do hosts on behalf of users who are neither root nor the owner of the root directory; such a
	// user of the service's own host is errs.Perm.
	ListClients(ctx context.Context, c Caller, after uint64, max int) ([]Client, error)

	// RemoveServer says that an I/O server will not come back: its state is StateGone, until it is
	// started anew and joins. errs.Busy: it serves. Files keep their layouts, and stripes that it has
	// cannot be read any more. For root and the owner of the root directory; on stable storage when it
	// returns.
	RemoveServer(ctx context.Context, c Caller, id uint32) error
}

// Host is a machine of the cluster, as it says itself and as the service knows it.
type Host struct {
	Name        string
	Incarnation uint64 // of this start; 0: it does not count them
	Start       uint64 // random: another process with the same incarnation has another one
	Version     string // of its program
	Roles       identity.Roles
	Leaving     bool // it ends, and what it runs does

	// The service's own view.
	State    State
	Since    int64 // when the state began, in Unix nanoseconds
	LastSeen int64
}

// About is what a client says of itself beside its name.
type About struct {
	Version string // of its program
	Mount   string // where its files are seen; empty: by the library only
}

// Client is a session as it is shown to people.
type Client struct {
	Session  uint64
	Name     string // that it gave itself
	Peer     Peer   // whose certificate it has; zero: of the service's own host, without one
	About    About
	Open     int   // files
	Since    int64 // when the session began, in Unix nanoseconds
	LastSeen int64
}
