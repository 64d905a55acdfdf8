package msg

import (
	"bytes"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/wire"
)

// ReplayOptions bound what a server remembers of the requests of Sessions. The window is one
// request per slot: a request is answered from the record until the next one with the same slot
// comes, over whatever connection, or until the session has been silent for Idle and its place is
// needed. The record is memory of the server's process: another process has another verifier,
// which a Session sees when it opens itself there.
type ReplayOptions struct {
	// Sessions is how many are remembered. When they are as many, the one that has been silent
	// longest goes, if that is longer than Idle; else new ones are refused with errs.Again.
	// Default 1024.
	Sessions int

	// PerConn is how many of them one connection may open. Default 16.
	PerConn int

	// Slots is how many requests of one session may be under way at once. Default 64.
	Slots int

	// RecordMax is the largest reply, body and data together, to a request of a session, in bytes.
	// Default 4096.
	RecordMax int

	// Idle is how long a silent session is remembered in any case. Default 10 min.
	Idle time.Duration
}

func (o ReplayOptions) withDefaults() ReplayOptions {
	o.Sessions, o.PerConn = or(o.Sessions, 1024), or(o.PerConn, 16)
	o.Slots, o.RecordMax = or(o.Slots, 64), or(o.RecordMax, 4096)
	o.Idle = or(o.Idle, 10*time.Minute)
	return o
}

func (o *ReplayOptions) validate() error {
	if min(o.Sessions, o.PerConn, o.Slots, o.RecordMax) < 1 || o.Slots > 1<<16 || o.Idle < 0 {
		return errs.Newf(errs.Invalid, "msg.ReplayOptions", "", "%+v", *o)
	}
	return nil
}

// replay is the server's memory of sessions. Its lock is a leaf.
type replay struct {
	opts     ReplayOptions
	verifier uint64 // of this server; never 0

	mu       sync.Mutex
	sessions map[sessionKey]*records
}

// sessionKey keeps peers that are known by name out of each other's sessions.
type sessionKey struct {
	peer string
	id   uint64
}

// records are what is known of a session's slots.
type records struct {
	used  time.Time
	slots []record
}

// record is the last request of a slot.
type record struct {
	seq    uint32
	state  recordState
	parked *Call // came while the last one was running; the newest of them

	status errs.Kind // of the answer
	stamp  wire.Stamp
	body   []byte
	data   []byte
}

type recordState uint8

const (
	recordNone recordState = iota // nothing is known of seq or anything before it
	recordRunning
	recordDone
)

func (t *replay) keyOf(c *Call) sessionKey {
	return sessionKey{peer: c.s.peerName, id: c.header.Stamp.Session}
}

// open makes a session known, or finds it, and returns whether there was room.
func (t *replay) open(c *Call) error {
	key, now := t.keyOf(c), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.sessions[key]; r != nil {
		r.used = now
		return nil
	}
	if c.s.opened >= t.opts.PerConn || len(t.sessions) >= t.opts.Sessions && !t.evictLocked(now) {
		return errs.Newf(errs.Again, "msg.Session", "", "too many sessions")
	}
	c.s.opened++
	t.sessions[key] = &records{used: now}
	return nil
}

// evictLocked forgets the session that has been silent longest, if that is long enough.
func (t *replay) evictLocked(now time.Time) bool {
	var oldest sessionKey
	var at time.Time
	for key, r := range t.sessions {
		if (at.IsZero() || r.used.Before(at)) && !r.running() {
			oldest, at = key, r.used
		}
	}
	if at.IsZero() || now.Sub(at) < t.opts.Idle {
		return false
	}
	delete(t.sessions, oldest)
	return true
}

func (r *records) running() bool {
	for i := range r.slots {
		if r.slots[i].state == recordRunning {
			return true
		}
	}
	return false
}

// slotLocked is the record of a call's slot; nil if the session is not known.
func (t *replay) slotLocked(c *Call) *record {
	r := t.sessions[t.keyOf(c)]
	if r == nil {
		return nil
	}
	slot := int(c.header.Stamp.Slot)
	for len(r.slots) <= slot {
		r.slots = append(r.slots, record{})
	}
	r.used = time.Now()
	return &r.slots[slot]
}

// verdict is what becomes of a request of a session.
type verdict uint8

const (
	verdictRun    verdict = iota // it is new: execute it
	verdictWait                  // another one of its slot runs: it is called again afterwards
	verdictAnswer                // it is in the record
	verdictLost                  // nothing is known of its session
	verdictOld                   // a later one of its slot has been executed
)

// begin decides about a request. replaced is a request that waited and need not any more, because
// c came later.
func (t *replay) begin(c *Call) (v verdict, replaced *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec, seq := t.slotLocked(c), c.header.Stamp.Seq
	switch {
	case rec == nil:
		return verdictLost, nil
	case rec.state == recordRunning && seq >= rec.seq:
		replaced, rec.parked = rec.parked, c
		return verdictWait, replaced
	case rec.state == recordDone && seq == rec.seq:
		return verdictAnswer, nil
	case rec.state != recordNone && seq < rec.seq:
		return verdictOld, nil
	}
	*rec = record{seq: seq, state: recordRunning, body: rec.body[:0], data: rec.data[:0]}
	return verdictRun, nil
}

// finish writes the answer of a request into the record and returns the one that waited for it. An
// answer that says that nothing was done is not kept: the request may be executed when it is
// repeated.
func (t *replay) finish(c *Call, status errs.Kind, body, data []byte) (parked *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := t.slotLocked(c)
	if rec == nil || rec.state != recordRunning || rec.seq != c.header.Stamp.Seq {
		return nil
	}
	parked, rec.parked = rec.parked, nil
	if undone(status) {
		rec.state = recordNone
		return parked
	}
	rec.state, rec.status, rec.stamp = recordDone, status, c.stamp
	rec.body, rec.data = append(rec.body[:0], body...), append(rec.data[:0], data...)
	return parked
}

// undone tells whether a handler says by an error that it has changed nothing.
func undone(k errs.Kind) bool {
	switch k {
	case errs.Canceled, errs.TimedOut, errs.Disconnected, errs.Shutdown, errs.Again, errs.Closed:
		return true
	}
	return false
}

// answer is a copy of the record of a request that was done.
func (t *replay) answer(c *Call) (rec record, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.slotLocked(c)
	if found == nil || found.state != recordDone || found.seq != c.header.Stamp.Seq {
		return record{}, false
	}
	rec = *found
	rec.body, rec.data = bytes.Clone(found.body), bytes.Clone(found.data)
	return rec, true
}

// once decides about a request of a session and tells whether it is to be executed now. If it is
// not, it was answered or will be.
func (s *Server) once(c *Call) bool {
	if c.in.present && !c.in.inline || int(c.header.Stamp.Slot) >= s.opts.Replay.Slots {
		c.once = false
		c.refuse(errs.Newf(errs.Invalid, "msg.Session", "", "a slot or data beyond what is recorded"))
		return false
	}
	v, replaced := s.replay.begin(c)
	if replaced != nil {
		replaced.once = false
		replaced.refuse(errs.Newf(errs.Again, "msg.Session", "", "repeated once more meanwhile"))
	}
	switch v {
	case verdictRun:
		return true
	case verdictWait:
		return false
	}
	c.once = false
	switch v {
	case verdictAnswer:
		s.repeat(c)
	case verdictLost:
		c.lost = true
		c.refuse(errs.Newf(errs.Stale, "msg.Session", "", "the session is not known here"))
	default:
		c.refuse(errs.Newf(errs.Stale, "msg.Session", "", "a later request has had the slot"))
	}
	return false
}

// repeat answers from the record.
func (s *Server) repeat(c *Call) {
	s.counts.repeated.Add(1)
	rec, ok := s.replay.answer(c)
	switch {
	case !ok:
		c.refuse(errs.Newf(errs.Again, "msg.Session", "", "the record is gone"))
		return
	case int64(len(rec.data)) > c.in.length || len(rec.body) > c.MaxReply():
		c.refuse(errs.Newf(errs.Protocol, "msg.Session", "", "repeated with less room"))
		return
	}
	c.stamp = rec.stamp
	if len(rec.data) > 0 {
		c.high = int64(mem.Copy(c.inlineRoom(), rec.data))
	}
	_ = c.answer(rec.status, rec.body, int64(len(rec.data))) // nothing was pushed: it does not wait
	c.over()
}

// appendSession is the answer to askSession:
//
//	0          8     10          12
//	|verifier  |slots|record max |
func (t *replay) appendSession(e *wire.Enc) {
	e.U64(t.verifier)
	e.U16(uint16(min(t.opts.Slots, 1<<16-1)))
	e.U16(uint16(min(t.opts.RecordMax, 1<<16-1)))
}
