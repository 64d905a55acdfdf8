package msg

import (
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg/internal/eager"
	"github.com/sluice-storage/sluice/wire"
)

// Limits are the sizes at which one protocol replaces another, for one provider. Package tune
// measures them; they can be stored as JSON and put into Options.
type Limits struct {
	// InlineMax is how many bytes of data ride inside a message, per direction.
	InlineMax int `json:"inline_max"`

	// EagerMax is how many bytes of request data go through an eager slot, if there is one; 0: none.
	EagerMax int `json:"eager_max"`

	// Unit is the largest part, in bytes, in which data is read or written one-sidedly.
	Unit int `json:"unit"`
}

// Options of a Node.
type Options struct {
	// Domain is the provider that everything runs on. Domains are others that it can use too, best
	// first; without Domain the last of them takes its place. They stay the caller's: the node closes
	// its connections but not the domains. At least one is required.
	Domain  fabric.Domain
	Domains []fabric.Domain

	// InlineMax, EagerMax and Unit are the Limits of providers that Limits does not name. Defaults
	// 4096 bytes, 64 KiB (negative: no eager slots) and 2 MiB.
	InlineMax int
	EagerMax  int
	Unit      int

	// Limits are those of single providers, by Caps.Provider; zero fields are as above.
	Limits map[string]Limits

	// BodyMax is the largest body of a request together with its segment descriptions, or of
	// a reply, in bytes. A receive takes wire.HeaderBytes + BodyMax + InlineMax, and each
	// connection keeps about Credits of them. Default 12216, which makes a receive 16 KiB;
	// larger control data travels as an Out or In segment.
	BodyMax int

	// Credits is how many requests one connection may have outstanding. Default 64. The smaller
	// value of the two sides counts.
	Credits int

	// Queues is how many levels there are; higher ones count as the highest. Default 3.
	Queues int

	// Age is how long a waiting request can be overtaken by those of higher levels. Default 50 ms.
	Age time.Duration

	// Window, in bytes, bounds what the requests of one connection have outstanding of data that does
	// not ride inline. A larger request goes alone. Default 64 MiB: a credit is for 1 MiB.
	Window int

	// Memory, in bytes, bounds the eager slots that this node lends to its clients. It is mapped when
	// first needed. Default 8 MiB; negative: none.
	Memory int

	// Source is where Memory comes from. Default nil: anonymous memory.
	Source mem.Source

	// EagerSlots is how many slots one connection may hold. Default 8, at most 64.
	EagerSlots int

	// EagerIdle is how long a connection keeps slots that it does not use. Default 2 s.
	EagerIdle time.Duration

	// CallTimeout ends a Call whose context has no deadline. Default 30 s.
	CallTimeout time.Duration

	// CancelGrace is how long a canceled request waits for the server to stop using its memory, where
	// a refused access ends the connection (Caps.RefusalEnds). Default 250 ms.
	CancelGrace time.Duration

	// PeerTimeout fails a connection on which data is outstanding and nothing completes for this time,
	// or whose peer does not answer a ping for this time. Default 10 s.
	PeerTimeout time.Duration

	// KeepAlive is how long a peer may be silent before it is pinged. Default half of PeerTimeout.
	KeepAlive time.Duration

	// Progress says which goroutines poll. Default ProgressAny.
	Progress Progress

	// Identity is what this node says it is in its hello. Default 0: none.
	Identity uint64

	// Logger gets what operators should know: refused peers, panics of handlers, stuck connections.
	// Default: discard.
	Logger *slog.Logger
}

// The defaults and limits of Options.
const (
	defaultInline      = 4096
	defaultEager       = 64 << 10
	defaultUnit        = 2 << 20
	defaultReceive     = 16 << 10
	defaultCredits     = 64
	defaultWindow      = 64 << 20
	defaultMemory      = 8 << 20
	defaultCallTimeout = 30 * time.Second
	defaultPeerTimeout = 10 * time.Second

	minBody    = 512     // descriptions of a few windows, and room for an error's text
	minUnit    = 4 << 10 // below it there are more requests than data
	maxReceive = 1 << 20 // a receive is held per credit: more is data, not control
	maxCredits = 1024
)

func (o Options) withDefaults() Options {
	o.InlineMax = or(o.InlineMax, defaultInline)
	o.EagerMax = max(or(o.EagerMax, defaultEager), 0)
	o.Unit = or(o.Unit, defaultUnit)
	o.BodyMax = or(o.BodyMax, defaultReceive-wire.HeaderBytes-defaultInline)
	o.Credits = or(o.Credits, defaultCredits)
	o.Queues = or(o.Queues, 3)
	o.Age = or(o.Age, 50*time.Millisecond)
	o.Window = or(o.Window, defaultWindow)
	o.Memory = max(or(o.Memory, defaultMemory), 0)
	o.EagerSlots = or(o.EagerSlots, 8)
	o.EagerIdle = or(o.EagerIdle, 2*time.Second)
	o.CallTimeout = or(o.CallTimeout, defaultCallTimeout)
	o.CancelGrace = or(o.CancelGrace, 250*time.Millisecond)
	o.PeerTimeout = or(o.PeerTimeout, defaultPeerTimeout)
	o.KeepAlive = or(o.KeepAlive, o.PeerTimeout/2)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Domain != nil && !slices.Contains(o.Domains, o.Domain) {
		o.Domains = append(slices.Clone(o.Domains), o.Domain)
	}
	return o
}

// or is v, or the default where v is zero.
func or[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

func (o *Options) validate() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "msg.Options", "", format, args...)
	}
	switch {
	case len(o.Domains) == 0:
		return bad("no Domain")
	case o.BodyMax < minBody:
		return bad("BodyMax %d is below %d", o.BodyMax, minBody)
	case o.Credits < 1 || o.Credits > maxCredits:
		return bad("Credits %d is not within 1 to %d", o.Credits, maxCredits)
	case o.Queues < 1 || o.Queues > MaxLevels:
		return bad("Queues %d is not within 1 to %d", o.Queues, MaxLevels)
	case o.Window < 1:
		return bad("the window is negative")
	case o.EagerSlots < 1 || o.EagerSlots > eager.MaxSlots:
		return bad("EagerSlots %d is not within 1 to %d", o.EagerSlots, eager.MaxSlots)
	case min(o.CallTimeout, o.CancelGrace, o.PeerTimeout, o.KeepAlive, o.EagerIdle, o.Age) < 0:
		return bad("a timeout is negative")
	case o.Progress > ProgressThread:
		return bad("no such way of progress")
	}
	for _, d := range o.Domains {
		caps := d.Caps()
		if err := o.validateFor(&caps); err != nil {
			return err
		}
	}
	return nil
}

// validateFor checks what depends on a provider.
func (o *Options) validateFor(caps *fabric.Caps) error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "msg.Options", caps.Provider, format, args...)
	}
	l := o.limits(caps.Provider)
	size := o.receiveBytes(l)
	switch {
	case caps.MaxSge < 2:
		return bad("a reply has two pieces, a work request only %d", caps.MaxSge)
	case l.InlineMax < 0 || l.EagerMax < 0 || l.EagerMax > mem.ClassMax || l.Unit < minUnit:
		return bad("limits %+v are out of range", l)
	case size > min(maxReceive, caps.MaxMessage):
		return bad("InlineMax and BodyMax make receives of %d bytes, at most %d", size,
			min(maxReceive, caps.MaxMessage))
	case sendDepth(o.Credits) > caps.QueueDepth:
		return bad("Credits %d needs a queue of %d, there are %d", o.Credits, sendDepth(o.Credits),
			caps.QueueDepth)
	}
	return nil
}

// limits are those of one provider.
func (o *Options) limits(provider string) Limits {
	l := o.Limits[provider]
	return Limits{
		InlineMax: or(l.InlineMax, o.InlineMax),
		EagerMax:  max(or(l.EagerMax, o.EagerMax), 0),
		Unit:      or(l.Unit, o.Unit),
	}
}

// receiveBytes is the size of one posted receive.
func (o *Options) receiveBytes(l Limits) int {
	return wire.HeaderBytes + o.BodyMax + l.InlineMax
}
