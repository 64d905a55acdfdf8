// Package tcp is the fabric provider that runs everywhere: it frames the operations of the
// contract on one TCP connection per endpoint. Payloads are placed directly: the data
// of a Write is read from the socket into the granted memory that its header names, the data of a
// Send into the posted receive, the answer of a Read into the local pieces; what leaves is gathered
// by writev. Reads are served here without the application. The first
// bytes behind a header may pass through a small carry buffer, so that a small frame costs one
// system call and not two.
//
// Peers prove who they are by mutual TLS 1.3 (Options.Security), which encrypts everything, or, for
// networks that are trusted so far, authenticates everything without encrypting it (gmac.go).
// Without Security it listens on loopback addresses only, where a Secret keeps other users out
// (prove.go). It has no flow control: package msg does.
//
// What completions mean: a Send is complete when the kernel has its bytes, that is when its
// memory is free, not when it was received. A Write is complete when the peer has placed it
// (acknowledgements are cumulative and ride on every frame; one of their own is sent only where a
// signalled request waits for it), because only then its failure could still be told. Completions
// come in the order posted, so a Send behind a Write waits for the Write's acknowledgement.
//
// Goroutines of an endpoint: one reads while nobody waits (read.go), one writes what a poster could
// not write without blocking. Lock order: endpoint.rxMu, endpoint.mu, then that of the receive
// queue, of the reader or of a grant, then the queue's (package progress).
//
// Read domain.go first, then frame.go (what is on the wire), ep.go (life and death), msg.go and
// rma.go (what frames do), stream.go, read.go and rx.go (how bytes come, and who reads them),
// batch.go and tx.go (how they leave), secure.go and prove.go (who the peer is).
package tcp

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/progress"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/logonce"
)

// Options of a domain. The zero value is good for loopback.
type Options struct {
	// Security is how peers prove who they are. Default nil: they do not, and Listen takes
	// loopback addresses only.
	Security *Security

	// Secret is how peers of this host prove that they belong together, where there is no Security.
	// Default nil: they do not, and whoever can reach a listener is connected.
	Secret *Secret

	// Tokens, if not nil, are what peers of this domain's listeners must have.
	Tokens *fabric.Tokens

	// Log is told of peers that are refused, once per peer and minute. Default slog.Default().
	Log *slog.Logger

	// MaxMessage, in bytes, is the largest Send. Default 1 MiB, at most 1 GiB.
	MaxMessage int

	// MaxTransfer, in bytes, is the largest Write or Read. Default and at most 1 GiB.
	MaxTransfer int

	// QueueDepth, in requests, is the largest SendDepth and RecvDepth. Default 4096, at most 16384.
	QueueDepth int

	// SocketBuffer, in bytes, fixes the kernel's buffers. Default 0: the kernel sizes them.
	SocketBuffer int

	// PaceBytes, a second, is how fast each socket sends at most; the kernel keeps that pace. A
	// server that must leave some of a network to others, or a bench of a slower network, sets it.
	// Default 0: as fast as it can.
	PaceBytes int64

	// HelloTimeout bounds how long a listener waits for a peer's hello. Default 5 s.
	HelloTimeout time.Duration

	// PeerTimeout bounds how long a peer that does not answer at all (its host died, or the network
	// between) keeps an endpoint alive, whether or not something is being sent. Default 15 s, at
	// least 1 s.
	PeerTimeout time.Duration

	// StallTimeout bounds how long Revoke waits for a peer that stalls in the middle of a frame;
	// then that connection is closed. Default 10 s.
	StallTimeout time.Duration

	// Linger bounds how long a closed endpoint, unseen by its user, reads on so that its last words
	// reach the peer. Default 500 ms.
	Linger time.Duration
}

// Fixed limits. Both ends of every connection have the same ones, because frames rely on them.
const (
	maxSge        = 32
	maxInline     = 512
	maxQueueDepth = 16384

	// packBelow was measured (mover.Tune) between two ends on one host of two cores.
	packBelow = 8 << 10
)

func (o Options) withDefaults() Options {
	o.MaxMessage = cmp.Or(o.MaxMessage, 1<<20)
	o.MaxTransfer = cmp.Or(o.MaxTransfer, maxTransfer)
	o.QueueDepth = cmp.Or(o.QueueDepth, 4096)
	o.HelloTimeout = cmp.Or(o.HelloTimeout, 5*time.Second)
	o.PeerTimeout = cmp.Or(o.PeerTimeout, 15*time.Second)
	o.StallTimeout = cmp.Or(o.StallTimeout, 10*time.Second)
	o.Linger = cmp.Or(o.Linger, 500*time.Millisecond)
	return o
}

func (o Options) validate() error {
	why := ""
	switch {
	case o.MaxMessage < 1 || o.MaxMessage > maxTransfer:
		why = "MaxMessage is out of range"
	case o.MaxTransfer < 1 || o.MaxTransfer > maxTransfer:
		why = "MaxTransfer is out of range"
	case o.QueueDepth < 1 || o.QueueDepth > maxQueueDepth:
		why = "QueueDepth is out of range"
	case o.PaceBytes < 0:
		why = "PaceBytes is negative"
	case o.PeerTimeout < time.Second:
		why = "PeerTimeout is below a second"
	case o.SocketBuffer < 0 || o.HelloTimeout < 0 || o.StallTimeout < 0 || o.Linger < 0:
		why = "negative buffer or time"
	}
	if why != "" {
		return errs.Newf(errs.Invalid, "tcp.Open", "", "%s", why)
	}
	if o.Security != nil && o.Secret != nil {
		return errs.Newf(errs.Invalid, "tcp.Open", "", "Security proves more than a Secret: take one")
	}
	return o.Security.validate()
}

// domain owns the endpoints, listeners and grants of one Open.
type domain struct {
	provider.Domain
	opts     Options
	grants   provider.Grants[*endpoint]
	watchdog *progress.Watchdog[*progress.Queue]

	tlsServer *tls.Config    // of the listeners; nil without Security
	secret    *secret        // nil: none, or one that the listeners name
	refused   logonce.Logger // peers
	leaving   atomic.Int32   // refused peers that are being told

	spinners progress.Spinners
}

// region is registered memory. The kernel needs no registration, so it only bounds grants.
type region = provider.Region[*endpoint]

// Open makes a domain.
func Open(opts Options) (fabric.Domain, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	known, err := opts.Secret.open()
	if err != nil {
		return nil, err
	}
	d := &domain{opts: opts, secret: known}
	d.Domain.Open(fabric.Caps{
		Provider: "tcp", AnyMemory: true, RegistersAny: true, PackBelow: packBelow,
		MaxSge: maxSge, MaxMessage: opts.MaxMessage,
		MaxTransfer: opts.MaxTransfer, MaxInline: maxInline, QueueDepth: opts.QueueDepth,
		ReadDepth: provider.ReadDepth, AsksToken: opts.Tokens != nil,
	})
	if opts.Security != nil {
		d.tlsServer = opts.Security.serverConfig()
	}
	d.refused.Log = opts.Log
	d.grants.Stall = opts.StallTimeout
	d.grants.Stalled = func(e *endpoint) {
		e.Die(errs.Disconnected, "the peer stalled inside a frame while a grant was revoked")
	}
	d.grants.Open()
	d.watchdog = progress.NewWatchdog[*progress.Queue]()
	d.Go(func() { d.watchdog.Run(d.Context()) })
	return d, nil
}

func (d *domain) Connector() fabric.Connector { return connector{d} }

func (d *domain) Register(mem []byte) (fabric.Region, error) {
	if err := d.Check("Register"); err != nil {
		return nil, err
	}
	r := &region{}
	d.grants.Register(r, &d.Domain, mem)
	return r, nil
}

func (d *domain) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	if err := d.CheckQueue(opts); err != nil {
		return nil, err
	}
	return newCQ(d, opts), nil
}
