// Package verbs is the fabric provider for RDMA devices: InfiniBand, RoCE, and Soft-RoCE in the
// kernel. Endpoints are reliable-connected queue pairs that librdmacm connects; regions are memory
// registrations; grants are memory windows of type 2, which the device binds to one queue pair.
//
// libibverbs and librdmacm are not linked but loaded at run time, so that one binary runs with and
// without them. Available tells whether they can be used, and if not why. A build without cgo has
// the same functions, which fail with errs.Unsupported.
//
// Access that a key does not allow ends the connection (Caps.RefusalEnds). The device holds on to
// the pages of registered memory: a user that registers Go heap keeps it reachable until the region
// is closed. It encrypts nothing: use it on trusted networks.
//
// Messages before the peer's first PostRecv wait here and not on the wire, since receivers that are
// not ready end a connection (RNR retry is 0): each end has a word that the peer sets when it posts
// its first receives (see gate.go).
//
// Devices may be removed and added while a domain is open (see plug.go). A port that goes down ends
// its connections at once; a silent peer is detected by Options.KeepAlive and PeerTimeout.
//
// Goroutines: one for the connection manager's events of a domain, one that probes silent peers,
// one for each device's asynchronous events, one for each completion queue on each device (it wakes
// the poller), one for the end of each endpoint and of each device. Lock order: domain.plug,
// region.mu, grants.mu, cq.mu, endpoint.sendMu, endpoint.recvMu; conn.mu, domain.mu, refs.mu;
// gate.mu and connTable.mu are taken alone.
//
// Read domain.go first, then ep.go and msg.go (posting), cq.go (completions), death.go (the end),
// region.go and rma.go (grants), cm.go and event.go (connecting), device.go, plug.go, alive.go,
// shim.h (what crosses into C).
package verbs

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Options of a domain. The zero value takes every device with an active port.
type Options struct {
	// Devices are the names of the devices to use, such as "mlx5_0" or "rxe0". Default: every
	// device that has an active port when the domain is opened.
	Devices []string

	// MaxMessage, in bytes, is the largest Send. Default 1 MiB; the device may lower it.
	MaxMessage int

	// QueueDepth, in requests, is the largest SendDepth and RecvDepth. Default 4096; the device
	// may lower it.
	QueueDepth int

	// PeerTimeout bounds how long a device retries while a peer does not answer; devices round it.
	// Default 4 s, at least 100 ms.
	PeerTimeout time.Duration

	// DialTimeout bounds Dial where its context does not. Default 10 s.
	DialTimeout time.Duration

	// KeepAlive is how often an endpoint that receives nothing probes the peer's device, so that a
	// dead machine is detected although nothing is sent. Default 5 s, at least 100 ms.
	KeepAlive time.Duration

	// NoWindows grants by short-lived registrations even where the device has memory windows.
	// Such keys are not bound to one endpoint. Default false.
	NoWindows bool

	// Tokens, if set, binds every peer that dials to one that was authenticated elsewhere: it is
	// refused without a token of these. Default nil: every peer is admitted.
	Tokens *fabric.Tokens

	// Log is told of peers that are refused, once a minute each. Default slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxMessage = cmp.Or(o.MaxMessage, 1<<20)
	o.QueueDepth = cmp.Or(o.QueueDepth, 4096)
	o.PeerTimeout = cmp.Or(o.PeerTimeout, 4*time.Second)
	o.DialTimeout = cmp.Or(o.DialTimeout, 10*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 5*time.Second)
	return o
}

func (o Options) validate() error {
	why := ""
	switch {
	case o.MaxMessage < 1 || o.MaxMessage > maxTransfer:
		why = "MaxMessage is out of range"
	case o.QueueDepth < 1 || o.QueueDepth > 16384:
		why = "QueueDepth is out of range"
	case o.PeerTimeout < 100*time.Millisecond || o.PeerTimeout > time.Minute:
		why = "PeerTimeout is out of range"
	case o.DialTimeout < 0:
		why = "DialTimeout is negative"
	case o.KeepAlive < 100*time.Millisecond:
		why = "KeepAlive is out of range"
	}
	if why != "" {
		return errs.Newf(errs.Invalid, "verbs.Open", "", "%s", why)
	}
	return nil
}

// maxTransfer is the largest Write or Read that any device may do here.
const maxTransfer = 1 << 30

// packBelow was not measured. It is small, because a card gathers at no cost to the host.
const packBelow = 512

// ackTimeout turns the time for a silent peer into the device's exponent: the device waits 4.096 µs
// * 2^exponent for an acknowledgement, and retries ackRetries times.
func ackTimeout(peer time.Duration) int {
	exponent := 0
	for exponent < 31 && 4096*time.Nanosecond<<(exponent+1)*(ackRetries+1) <= peer {
		exponent++
	}
	return exponent
}

// ackRetries is below 7, which means "forever" to Soft-RoCE.
const ackRetries = 6
