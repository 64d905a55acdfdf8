package msg

import (
	"io"
	"log/slog"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// Options of a Node.
type Options struct {
	// Domain is the provider that everything runs on. It stays the caller's: the node closes its
	// connections but not the domain. Required.
	Domain fabric.Domain

	// InlineMax is how many bytes of data ride inside a message instead of being moved
	// one-sidedly, per direction. Default 4096.
	InlineMax int

	// BodyMax is the largest body of a request together with its segment descriptions, or of
	// a reply, in bytes. A receive takes wire.HeaderBytes + BodyMax + InlineMax, and each
	// connection keeps about Credits of them. Default 12216, which makes a receive 16 KiB;
	// larger control data travels as an Out or In segment.
	BodyMax int

	// Credits is how many requests one connection may have outstanding. Default 64. The smaller
	// value of the two sides counts.
	Credits int

	// CallTimeout ends a Call whose context has no deadline. Default 30 s.
	CallTimeout time.Duration

	// PeerTimeout fails a connection on which data is outstanding and nothing has moved for
	// so long. Default 10 s.
	PeerTimeout time.Duration

	// Identity is what this node says it is in its hello. Default 0, nobody in particular.
	Identity uint64

	// Logger gets what concerns people: refused peers, panics of handlers, stuck connections.
	// Default: discard.
	Logger *slog.Logger
}

// The defaults and limits of Options.
const (
	defaultInline      = 4096
	defaultReceive     = 16 << 10
	defaultCredits     = 64
	defaultCallTimeout = 30 * time.Second
	defaultPeerTimeout = 10 * time.Second

	minBody    = 512     // descriptions of a few windows, and room for an error's text
	maxReceive = 1 << 20 // a receive is held per credit: more is data, not control
	maxCredits = 1024
)

func (o Options) withDefaults() Options {
	if o.InlineMax == 0 {
		o.InlineMax = defaultInline
	}
	if o.BodyMax == 0 {
		o.BodyMax = defaultReceive - wire.HeaderBytes - defaultInline
	}
	if o.Credits == 0 {
		o.Credits = defaultCredits
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.PeerTimeout == 0 {
		o.PeerTimeout = defaultPeerTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return o
}

func (o *Options) validate() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "msg.Options", "", format, args...)
	}
	if o.Domain == nil {
		return bad("no Domain")
	}
	caps := o.Domain.Caps()
	switch {
	case o.InlineMax < 0 || o.BodyMax < minBody:
		return bad("InlineMax %d is negative or BodyMax %d is below %d", o.InlineMax, o.BodyMax, minBody)
	case o.receiveBytes() > min(maxReceive, caps.MaxMessage):
		return bad("InlineMax and BodyMax make receives of %d bytes, at most %d", o.receiveBytes(),
			min(maxReceive, caps.MaxMessage))
	case o.Credits < 1 || o.Credits > maxCredits:
		return bad("Credits %d is not within 1 to %d", o.Credits, maxCredits)
	case sendDepth(o.Credits) > caps.QueueDepth:
		return bad("Credits %d needs a queue of %d, %s has %d", o.Credits, sendDepth(o.Credits),
			caps.Provider, caps.QueueDepth)
	case o.CallTimeout < 0 || o.PeerTimeout < 0:
		return bad("a timeout is negative")
	}
	return nil
}

// receiveBytes is the size of one posted receive.
func (o *Options) receiveBytes() int { return wire.HeaderBytes + o.BodyMax + o.InlineMax }

// ServeOptions of a Server.
type ServeOptions struct {
	// MaxConns is how many connections are served at once; more are refused with errs.Again.
	// Default 1024.
	MaxConns int

	// MaxCalls is how many calls run at once over all connections; more wait in the order of
	// their arrival, holding no more than the receive that they came in. Default 256.
	MaxCalls int

	// IdleWorkers is how many goroutines are kept for the next calls. Default 64.
	IdleWorkers int
}

func (o ServeOptions) withDefaults() ServeOptions {
	if o.MaxConns == 0 {
		o.MaxConns = 1024
	}
	if o.MaxCalls == 0 {
		o.MaxCalls = 256
	}
	if o.IdleWorkers == 0 {
		o.IdleWorkers = 64
	}
	return o
}

func (o *ServeOptions) validate() error {
	if o.MaxConns < 1 || o.MaxCalls < 1 || o.IdleWorkers < 0 {
		return errs.Newf(errs.Invalid, "msg.ServeOptions", "", "a limit is negative: %+v", *o)
	}
	return nil
}
