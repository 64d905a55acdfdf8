package connlimit

import (
	"sync"
	"time"
)

// Pace bounds the requests of each address: a bucket that fills by PerSecond up to Burst, and out
// of which each request takes one. It remembers as many addresses as fit; when there are more it
// begins anew, which lets each of them come once more.
type Pace struct {
	PerSecond float64          // in the long run
	Burst     float64          // at once
	Now       func() time.Time // default time.Now

	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

const addressesMax = 8192

// Allow tells whether an address may send a request now.
func (p *Pace) Allow(addr string) bool {
	now := time.Now()
	if p.Now != nil {
		now = p.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, known := p.buckets[addr]
	if !known {
		if p.buckets == nil || len(p.buckets) >= addressesMax {
			p.buckets = map[string]bucket{}
		}
		b = bucket{left: p.Burst, at: now}
	}
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.left, b.at = min(b.left+passed*p.PerSecond, p.Burst), now
	}
	ok := b.left >= 1
	if ok {
		b.left--
	}
	p.buckets[addr] = b
	return ok
}
