package store

import (
	"log/slog"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
)

// Bounds on what a peer can make the service keep.
const (
	clientMax = 255 // bytes of a client's name

	// sessions of one client: the one that it uses, and lost ones that have not ended yet
	ofClientMax = 256

	addrMax   = 1024    // bytes of a server's address
	valuesMax = 4 << 20 // bytes of all attribute values of one inode: listing the names reads them

	// xattrsMax is, in bytes, for the names of all attributes of one inode but its hints and lists.
	// Together they fit listxattr(2).
	xattrsMax = 64<<10 - hint.NamesBytes - acl.NamesBytes - layout.NamesBytes
)

// Options of a Store.
type Options struct {
	// Objects is how the service reaches stripe objects. Required.
	Objects meta.Objects

	// Key is the cluster's key, or keys: capabilities are signed with keys derived from the one that
	// signs, and servers prove to know one of theirs. They may change at any time. Required for
	// anything but tests.
	Key capability.Keys

	// Host tells the name of the host that the service runs on, to which I/O servers belong that
	// nobody has reserved. Default: none, and then they belong to who of this host names himself.
	Host func() string

	// Clock is what times are taken from. Default: time.Now. Leases and capabilities are measured
	// by it too, but not by its steps where its times carry a monotonic reading.
	Clock func() time.Time

	// Pulse is the clock by which the service notices that it did not run. Default: time.Now.
	Pulse func() time.Time

	// Lease is how long a session lives without KeepAlive. Default: 30 s.
	Lease time.Duration

	// LeaseTime is how long leases on inodes last, and so how long an operation waits for a client
	// that does not answer. At most half of Lease. Default: 5 s, or less where Lease demands it.
	LeaseTime time.Duration

	// Calm is for how long a directory that was recalled from somebody is not given to anybody alone
	// (Hold). Default: a fifth of LeaseTime.
	Calm time.Duration

	// SessionLeases bounds the leases of one session: where it wants more its oldest ones are asked
	// back. Default: 65,536.
	SessionLeases int

	// CapTTL is how long capabilities are valid; at most capability.TTLMax, the default.
	CapTTL time.Duration

	// HeartbeatMax is how long a server is up after its last Join. Default:
	// meta.HeartbeatMax.
	HeartbeatMax time.Duration

	// SlowAfter is how long a server is not even slow after its last Join. Default: meta.SlowAfter, or
	// three tenths of HeartbeatMax where that is not the default.
	SlowAfter time.Duration

	// OnMove, if not nil, is called when an I/O server has another address than it had. It must not
	// block.
	OnMove func(id uint32, addr string)

	// MeasureMax bounds how long an answer waits for I/O servers to tell a file's size. Default:
	// 5 s.
	MeasureMax time.Duration

	// Tick is how often leases are looked at and failed background work is tried again. Default:
	// 1 s.
	Tick time.Duration

	// CollectEvery is how often the objects of all servers are compared with the inodes, and
	// CollectPause how long to wait between two pages of them. Defaults: 10 min, 1 s.
	CollectEvery time.Duration
	CollectPause time.Duration

	// TreeRate is how many entries of removed trees go in a second, at most. Default: 10000.
	TreeRate int

	// SessionsMax bounds the sessions, HandlesMax the open handles of one, HandlesAllMax those of
	// all together, which a start has to count. Defaults: 65536, 1048576, 4194304.
	SessionsMax   int
	HandlesMax    int
	HandlesAllMax int

	// LocksMax bounds the locks that one session holds and waits for, LocksAllMax those of all
	// together. Defaults: 65536, 1048576.
	LocksMax    int
	LocksAllMax int

	// LockGrace is how long after a start the claims of a session that is heard of are waited for.
	// Default: Lease.
	LockGrace time.Duration

	// Dead tells whether the process of a client has ended, by the client's name, if that can be
	// known here. Default: nothing is known of anybody.
	Dead func(client string) (dead, known bool)

	// RootMode, RootUID and RootGID are given to the root directory when the store is made, and
	// have no meaning later. Defaults: 0755, 0, 0.
	RootMode         uint32
	RootUID, RootGID uint32

	// Log is told what nobody waits for: sessions that die, work that must be tried again.
	// Default: nobody.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Key == nil {
		o.Key = capability.Key{}
	}
	if o.Host == nil {
		o.Host = func() string { return "" }
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Pulse == nil {
		o.Pulse = time.Now
	}
	for _, d := range []struct {
		v    *time.Duration
		size time.Duration
	}{
		{&o.Lease, 30 * time.Second},
		{&o.CapTTL, capability.TTLMax},
		{&o.HeartbeatMax, meta.HeartbeatMax},
		{&o.MeasureMax, 5 * time.Second},
		{&o.Tick, time.Second},
		{&o.CollectEvery, 10 * time.Minute},
		{&o.CollectPause, time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.size
		}
	}
	if o.SlowAfter == 0 {
		o.SlowAfter = meta.SlowAfter
		if o.HeartbeatMax != meta.HeartbeatMax {
			o.SlowAfter = o.HeartbeatMax * 3 / 10
		}
	}
	if o.LeaseTime == 0 {
		o.LeaseTime = min(5*time.Second, o.Lease/2)
	}
	if o.TreeRate == 0 {
		o.TreeRate = 10000
	}
	if o.SessionsMax == 0 {
		o.SessionsMax = 1 << 16
	}
	if o.HandlesMax == 0 {
		o.HandlesMax = 1 << 20
	}
	if o.HandlesAllMax == 0 {
		o.HandlesAllMax = 1 << 22
	}
	if o.LockGrace == 0 {
		o.LockGrace = o.Lease
	}
	if o.Dead == nil {
		o.Dead = func(string) (dead, known bool) { return false, false }
	}
	if o.RootMode == 0 {
		o.RootMode = 0o755
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o *Options) validate() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "store.New", "", format, args...)
	}
	switch {
	case o.Objects == nil:
		return bad("Objects is required")
	case o.CapTTL > capability.TTLMax:
		return bad("CapTTL %v is longer than %v", o.CapTTL, capability.TTLMax)
	case o.LeaseTime > o.Lease/2:
		return bad("LeaseTime %v is longer than half of Lease %v", o.LeaseTime, o.Lease)
	case min(o.Lease, o.LeaseTime, o.CapTTL, o.HeartbeatMax, o.MeasureMax, o.Tick,
		o.SlowAfter, o.LockGrace) < 0:
		return bad("durations must be positive")
	case o.TreeRate < 0:
		return bad("TreeRate must be positive")
	case o.SessionsMax < 0 || o.HandlesMax < 0 || o.HandlesAllMax < 0 || o.LocksMax < 0 ||
		o.LocksAllMax < 0 || o.SessionLeases < 0:
		return bad("limits must be positive")
	case o.RootMode&^modeMask != 0:
		return bad("RootMode %#o has other bits than %#o", o.RootMode, modeMask)
	}
	return nil
}
