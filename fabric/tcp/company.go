package tcp

import (
	"runtime"
	"time"
)

// company lets requests that are posted at about the same time leave in one system call, which is
// most of what a small one costs. Whoever finds the socket free steps aside once, for as long as
// those who can run now take to run: when an answer, or a commit, has woken sixteen callers, each
// of them is about to post. That is tried only where posters have met at the socket lately: for one
// who is alone it would be a detour, on which others take over the reading of its answer.
type company struct {
	worth int // times to try before giving up
	skip  int // meetings to ignore, after it took too long
}

const (
	companyWorth = 4
	companyLong  = 4096                   // meetings to ignore
	companyWait  = 200 * time.Microsecond // what is too long: those who run have other work
	companyBytes = 16 << 10               // what is larger is worth a system call
)

// met says that a poster has found another one writing.
func (c *company) met() {
	if c.skip > 0 {
		c.skip--
		return
	}
	c.worth = companyWorth
}

// judge learns from a try.
func (c *company) judge(came bool, took time.Duration) {
	switch {
	case took > companyWait:
		c.worth, c.skip = 0, companyLong
	case came:
		c.worth = companyWorth
	default:
		c.worth--
	}
}

// awaitCompanyLocked steps aside, if that is worth it, before a single small request is written. It
// lets go of mu meanwhile; the socket counts as taken.
func (e *endpoint) awaitCompanyLocked() {
	queue := &e.reqs.Posted
	if queue.Len() != 1 || (*queue.At(0)).Length >= companyBytes || e.company.worth == 0 {
		return
	}
	e.busy = true
	e.mu.Unlock()
	began := time.Now()
	runtime.Gosched()
	took := time.Since(began)
	e.mu.Lock()
	e.busy = false
	e.company.judge(queue.Len() > 1, took)
}
