package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
)

// strangers are the peers of a listener that are in the hello, oldest first. Any process that
// reaches the port can be one for as long as the hello may take, without a word, and many times. So
// that they keep nobody else out there is a bound on them, and a newcomer takes the place of the
// oldest: a peer that has something to say has said it before so many others have connected.
type strangers struct {
	mu  sync.Mutex
	all list.List[stranger]
}

type stranger struct {
	cancel context.CancelFunc
	place  list.Link[stranger] // in none: it had to give way
}

// add notes a peer. The context ends with the time for the hello, or when it must give way.
func (x *strangers) add(ctx context.Context, limit time.Duration) (context.Context, *stranger) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	s := &stranger{cancel: cancel}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all.PushLast(&s.place, s)
	return ctx, s
}

// remove ends it, and tells whether it had to give way.
func (x *strangers) remove(s *stranger) (gaveWay bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s.cancel()
	if !s.place.In() {
		return true
	}
	x.all.Remove(&s.place)
	return false
}

// displace makes the oldest give way, if there is one.
func (x *strangers) displace() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.all.First(); s != nil {
		x.all.Remove(&s.place)
		s.cancel()
	}
}
