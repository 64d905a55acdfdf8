package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
)

// handshakes are a listener's connections whose hello is under way, oldest first. Any process that
// reaches the port can open many and send nothing until the time for the hello is over. So that
// these keep nobody else out, their number is bounded, and a newcomer takes the place of the
// oldest: an honest peer sends its hello before so many others have connected.
type handshakes struct {
	mu  sync.Mutex
	all list.List[handshake]
}

type handshake struct {
	cancel context.CancelFunc
	place  list.Link[handshake] // in no list: a newcomer has taken its place
}

// add notes a handshake. Its context ends with the time for the hello, or when a newcomer takes
// its place.
func (x *handshakes) add(ctx context.Context, limit time.Duration) (context.Context, *handshake) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	s := &handshake{cancel: cancel}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all.PushLast(&s.place, s)
	return ctx, s
}

// remove ends a handshake, and tells whether a newcomer had taken its place.
func (x *handshakes) remove(s *handshake) (displaced bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s.cancel()
	if !s.place.In() {
		return true
	}
	x.all.Remove(&s.place)
	return false
}

// displace ends the oldest handshake, if there is one.
func (x *handshakes) displace() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.all.First(); s != nil {
		x.all.Remove(&s.place)
		s.cancel()
	}
}
