package capability

import (
	"sync/atomic"
	"time"
)

// Steady turns a clock into one that is not set: it begins with the clock's time and goes on as its
// monotonic reading does. (Times without such a reading go on as they are: those of tests.) Whoever
// signs capabilities takes their times from one, so that a step of the host's clock neither
// lengthens nor shortens their lives.
func Steady(clock func() time.Time) func() time.Time {
	start := clock()
	return func() time.Time { return start.Add(clock().Sub(start)) }
}

// Clock is an I/O server's knowledge of what time it is at the metadata service, whose clock
// capabilities are measured by. The server asks the service again and again; in between its own
// clock's monotonic reading counts. So the clocks of both hosts may differ and may be set, and
// neither revokes a capability nor revives one. Until the service has answered for the first time
// the server's own time has to do. Safe for concurrent use.
type Clock struct {
	local func() time.Time
	last  atomic.Pointer[reading]
}

// reading is one answer: it was service's time when it was local's, or a little later.
type reading struct{ local, service time.Time }

// readingMax is the longest time that an answer may have taken to be of use.
const readingMax = TTLMax / 4

// NewClock makes a clock on a host's own one.
func NewClock(local func() time.Time) *Clock { return &Clock{local: Steady(local)} }

// Local is the host's own clock, for the argument of Heard.
func (c *Clock) Local() time.Time { return c.local() }

// Now is the service's time, or a little later than that: by as much as its last answer needed for
// its way. Therefore nothing is valid here that has run out there; what is refused too early is
// renewed.
func (c *Clock) Now() time.Time {
	now := c.local()
	if r := c.last.Load(); r != nil {
		return r.service.Add(now.Sub(r.local))
	}
	return now
}

// Heard takes the service's answer to a question that was asked when Local was asked. One that took
// long says little: an earlier one stays.
func (c *Clock) Heard(asked, service time.Time) {
	if c.local().Sub(asked) > readingMax && c.last.Load() != nil {
		return
	}
	c.last.Store(&reading{local: asked, service: service})
}
