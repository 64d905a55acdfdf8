package nbd

import (
	"log/slog"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

const (
	payloadDefault = 32 << 20 // what the protocol says every client may assume
	payloadFloor   = 64 << 10 // reads of this size must be served unfragmented
	payloadCeiling = 1 << 30  // a chunk's length field and an int must hold twice this
	memoryDefault  = 256 << 20
)

// Config bounds a server. The zero value is a good default.
type Config struct {
	// MemoryBytes bounds the payload buffers of all connections together. Default 256 MiB, at
	// least 2*MaxPayload. When it is used up, connections stop reading requests until replies
	// have left. Idle buffers (at most a quarter of it) and 40 KiB per connection come on top.
	MemoryBytes int64

	// ConnMemoryBytes bounds the payload buffers of one connection, so that a stalled one cannot
	// hold all memory. Default a quarter of MemoryBytes. At least 2*MaxPayload.
	ConnMemoryBytes int64

	// MaxPayload is the largest payload in bytes that is stated to clients, a power of two of at
	// least 64 KiB. Default 32 MiB, less where MemoryBytes is small. Requests of twice this are
	// served all the same.
	MaxPayload int

	// ConnRequests bounds the requests of one connection that are under way. Default 32.
	ConnRequests int

	// ExportRequests bounds the calls under way in one export, and with it the threads that wait
	// for its device. Default 128.
	ExportRequests int

	// MaxConns bounds the connections; more are closed on arrival. Default 4096.
	MaxConns int

	// HandshakeTimeout is how long a client may take to choose an export. Default 1 minute.
	HandshakeTimeout time.Duration

	// StallTimeout is how long a connection may hold payload memory without taking or sending a
	// byte while others wait for memory; then it is closed. Default 20 seconds.
	StallTimeout time.Duration

	// DrainGrace is how long Shutdown answers requests of connected clients with ESHUTDOWN, giving
	// them time to disconnect by themselves. Default 200 milliseconds.
	DrainGrace time.Duration

	// Buffers, if not nil, lends payload buffers of at least so many bytes that suit the exports
	// better than the server's own; nil is no. It must not wait. They count as the others do.
	Buffers func(bytes int) Buffer

	// TLS lets clients start TLS, or demands it. Default nil: it is refused.
	TLS *TLS

	// Logger gets connections, failures of exports and panics. Default: discarded.
	Logger *slog.Logger
}

// Buffer is memory that somebody else lends.
type Buffer interface {
	Bytes() []byte
	Return() // it is not used any more
}

func (c Config) withDefaults() Config {
	if c.MemoryBytes == 0 {
		c.MemoryBytes = memoryDefault
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = payloadDefault
		// Eight of the largest stated payloads fit, unless memory is tiny.
		for c.MaxPayload > payloadFloor && int64(c.MaxPayload)*8 > c.MemoryBytes {
			c.MaxPayload /= 2
		}
	}
	if c.ConnMemoryBytes == 0 {
		c.ConnMemoryBytes = max(c.MemoryBytes/4, 2*int64(c.MaxPayload))
	}
	c.ConnRequests = orDefault(c.ConnRequests, 32)
	c.ExportRequests = orDefault(c.ExportRequests, 128)
	c.MaxConns = orDefault(c.MaxConns, 4096)
	c.HandshakeTimeout = orDefault(c.HandshakeTimeout, time.Minute)
	c.StallTimeout = orDefault(c.StallTimeout, 20*time.Second)
	c.DrainGrace = orDefault(c.DrainGrace, 200*time.Millisecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T ~int | ~int64](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

func (c Config) validate() error {
	const op = "nbd.Config"
	p := c.MaxPayload
	if p < payloadFloor || p > payloadCeiling || p&(p-1) != 0 {
		return errs.Newf(errs.Invalid, op, "MaxPayload", "%d is no power of two in %d..%d",
			p, payloadFloor, payloadCeiling)
	}
	if c.MemoryBytes < 2*int64(p) || c.ConnMemoryBytes < 2*int64(p) {
		return errs.Newf(errs.Invalid, op, "MemoryBytes",
			"%d in all and %d per connection do not hold a request of twice MaxPayload (%d)",
			c.MemoryBytes, c.ConnMemoryBytes, p)
	}
	if c.ConnRequests < 1 || c.ExportRequests < 1 || c.MaxConns < 1 {
		return errs.Newf(errs.Invalid, op, "limits",
			"requests per connection %d, per export %d, connections %d: all must be positive",
			c.ConnRequests, c.ExportRequests, c.MaxConns)
	}
	if c.TLS != nil && c.TLS.Config == nil {
		return errs.Newf(errs.Invalid, op, "TLS", "without Config")
	}
	if c.HandshakeTimeout < 0 || c.StallTimeout < 0 || c.DrainGrace < 0 {
		return errs.Newf(errs.Invalid, op, "timeouts", "must not be negative")
	}
	return nil
}

// acceptMax is the largest request with payload that is served.
func (c Config) acceptMax() uint64 { return uint64(2 * c.MaxPayload) }
