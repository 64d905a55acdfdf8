package nbd

import (
	"sync/atomic"
	"time"
)

// Where the time of a request goes, from its header to the last byte of its reply. One read or
// write of sampleEach is watched, so that looking at the clock costs next to nothing.

const sampleEach = 16

// state is where a request is.
type state uint8

const (
	stateWait state = iota // for its payload, for memory, for its turn at the export
	stateRun               // the export works on it; a streamed read is sent meanwhile
	stateSend              // its reply waits for the socket, and leaves
	stateCount
)

// Times are what requests that were watched spent in each state.
type Times struct {
	Sampled         int64 // requests
	Wait, Run, Send time.Duration
}

// watch is a request's own share, while it is sampled.
type watch struct {
	on    bool
	since time.Duration // of the server's life: when the present state began
	spent [stateCount]time.Duration
}

// sample decides whether a request is watched.
func (c *conn) sample(req *request) {
	if req.cmd != cmdRead && req.cmd != cmdWrite {
		return
	}
	if c.seen++; c.seen%sampleEach == 0 {
		req.watch = watch{on: true, since: time.Since(c.srv.began)}
	}
}

// passed ends a state, which may come in several parts.
func (c *conn) passed(req *request, s state) {
	if req.watch.on {
		now := time.Since(c.srv.began)
		req.watch.spent[s] += now - req.watch.since
		req.watch.since = now
	}
}

// watched adds up a request whose reply has left.
func (c *conn) watched(req *request) {
	if !req.watch.on || req.part {
		return
	}
	c.passed(req, stateSend)
	t := &c.count.reads
	if req.cmd == cmdWrite {
		t = &c.count.writes
	}
	t.sampled.Add(1)
	for s, d := range req.watch.spent {
		t.spent[s].Add(int64(d))
	}
}

// times are the sums of a connection, or of all that have ended.
type times struct {
	sampled atomic.Int64
	spent   [stateCount]atomic.Int64
}

func (t *times) addTo(total *times) {
	total.sampled.Add(t.sampled.Load())
	for s := range t.spent {
		total.spent[s].Add(t.spent[s].Load())
	}
}

func (t *times) load() Times {
	at := func(s state) time.Duration { return time.Duration(t.spent[s].Load()) }
	return Times{Sampled: t.sampled.Load(), Wait: at(stateWait), Run: at(stateRun),
		Send: at(stateSend)}
}
