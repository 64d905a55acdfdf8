package join

import (
	"cmp"
	"time"

	"github.com/sluice-storage/sluice/internal/connlimit"
)

// Limits bound what strangers can make the service do. The zero value has all defaults.
type Limits struct {
	Conns        int           // connections at once. Default 512
	ConnsPerAddr int           // of one address. Default 32
	Handshakes   int           // that have not sent a request: a newcomer ends the oldest. Default 64
	PerSecond    float64       // requests of one address, in the long run. Default 10
	Burst        float64       // of one address, at once. Default 40
	Time         time.Duration // for a handshake, and for a request. Default 5 s
	Idle         time.Duration // between requests. Default 30 s
}

func (l Limits) withDefaults() Limits {
	l.PerSecond = cmp.Or(l.PerSecond, 10)
	l.Burst = cmp.Or(l.Burst, 40)
	l.Time = cmp.Or(l.Time, 5*time.Second)
	l.Idle = cmp.Or(l.Idle, 30*time.Second)
	return l
}

// conns are the limits of the listener.
func (l Limits) conns() connlimit.Limits {
	return connlimit.Limits{Conns: l.Conns, ConnsPerAddr: l.ConnsPerAddr, Handshakes: l.Handshakes}
}
