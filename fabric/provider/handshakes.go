package provider

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
)

// Handshakes are a listener's connections whose hello is under way, oldest first. Any process that
// reaches the listener can open many and send nothing until the time for the hello is over. So that
// these keep nobody else out, their number is bounded, and a newcomer takes the place of the
// oldest: an honest peer sends its hello before so many others have connected.
type Handshakes struct {
	mu  sync.Mutex
	all list.List[Handshake]
}

// Handshake is one of them.
type Handshake struct {
	cancel context.CancelFunc
	place  list.Link[Handshake] // in no list: a newcomer has taken its place
}

// Add notes a handshake. Its context ends with the time for the hello, or when a newcomer takes
// its place.
func (x *Handshakes) Add(ctx context.Context, limit time.Duration) (context.Context, *Handshake) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	s := &Handshake{cancel: cancel}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all.PushLast(&s.place, s)
	return ctx, s
}

// Remove ends a handshake, and tells whether a newcomer had taken its place.
func (x *Handshakes) Remove(s *Handshake) (displaced bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s.cancel()
	if !s.place.In() {
		return true
	}
	x.all.Remove(&s.place)
	return false
}

// Displace ends the oldest handshake, if there is one.
func (x *Handshakes) Displace() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.all.First(); s != nil {
		x.all.Remove(&s.place)
		s.cancel()
	}
}
