package mem

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
)

// errLimit is why an arena is refused although the host has the memory.
const errLimit = limitError("the limit of this program's arenas is reached")

type limitError string

func (e limitError) Error() string { return string(e) }

// Limit bounds the memory of several arenas together. It counts what is mapped, including the
// rounding up to whole or huge pages and gaps between buffers. A nil Limit bounds nothing. Safe for
// concurrent use.
type Limit struct{ bytes *gate.Gate }

// NewLimit makes a limit of bytes.
func NewLimit(bytes int64) (*Limit, error) {
	if bytes <= 0 {
		return nil, errs.Newf(errs.Invalid, "mem.NewLimit", "", "%d bytes", bytes)
	}
	return &Limit{gate.New(gate.Options{Bytes: bytes})}, nil
}

// Used tells how many bytes are mapped now, and how many were at most.
func (l *Limit) Used() (now, high int64) {
	u := l.bytes.Usage()
	return u.Bytes, u.High
}

func (l *Limit) charge(n int) bool { return l == nil || l.bytes.TryAcquire(int64(n)) }

func (l *Limit) release(n int) {
	if l != nil {
		l.bytes.Release(int64(n))
	}
}
