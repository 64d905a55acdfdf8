package tcp

import (
	"runtime"
	"time"
)

// company lets requests that are posted at about the same time leave in one system call, which is
// most of what a small one costs. Whoever finds the socket free steps aside once, for as long as
// those who can run now take to run: when an answer, or a commit, has woken sixteen callers, each
// of them is about to post. Where nobody comes, or where those who run have long work to do, it is
// tried now and then only.
type company struct {
	worth int // times to try before giving up: somebody came lately
	skip  int // posts until the next try, when it is not worth it
}

const (
	companyWorth = 4
	companyAgain = 64                     // after nobody came
	companyLong  = 4096                   // after it took too long
	companyWait  = 200 * time.Microsecond // which is this
	companyBytes = 16 << 10               // what is larger is worth a system call
)

// try tells whether to step aside.
func (c *company) try() bool {
	if c.worth > 0 {
		return true
	}
	c.skip--
	return c.skip < 0
}

// judge learns from a try.
func (c *company) judge(came bool, took time.Duration) {
	switch {
	case took > companyWait:
		c.worth, c.skip = 0, companyLong
	case came:
		c.worth = companyWorth
	case c.worth > 1:
		c.worth--
	default:
		c.worth, c.skip = 0, companyAgain
	}
}

// awaitCompanyLocked steps aside, if that is worth it, before a single small request is written. It
// lets go of mu meanwhile; the socket counts as taken.
func (e *endpoint) awaitCompanyLocked() {
	if e.queue.Len() != 1 || (*e.queue.At(0)).length >= companyBytes || !e.company.try() {
		return
	}
	e.busy = true
	e.mu.Unlock()
	began := time.Now()
	runtime.Gosched()
	took := time.Since(began)
	e.mu.Lock()
	e.busy = false
	e.company.judge(e.queue.Len() > 1, took)
}
