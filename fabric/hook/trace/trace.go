// Package trace remembers the last events of a fabric domain: what was posted, what completed, who
// connected, what was granted and revoked, and who died of what. It is for people who look for a
// fault, in a running program or after a test. Recording an event stores a few words under one lock
// of the domain; text is made when somebody asks for it: Dump writes one line for each event,
// DumpChrome what the trace viewers of browsers show, with each request as a bar from its post to
// its completion.
//
// It keeps no data that was moved and no event beyond the last Options.Events. It is not a meter:
// package meter counts.
//
// Read trace.go first, then domain.go (where events come from), text.go and chrome.go.
package trace

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// Kind is what happened.
type Kind uint8

// The kinds of events.
const (
	Post     Kind = iota + 1 // one request of a chain, or a receive; Err when it was refused
	Complete                 // a completion was handed out
	Dial                     // a connection was made, or not
	Accept
	Grant
	Revoke
	Death // an endpoint was found dead, not by its own Close
	Close // an endpoint was closed here
	Register
	kindEnd
)

var kindNames = [kindEnd]string{
	Post: "post", Complete: "complete", Dial: "dial", Accept: "accept", Grant: "grant",
	Revoke: "revoke", Death: "death", Close: "close", Register: "register",
}

func (k Kind) String() string {
	if k == 0 || k >= kindEnd {
		return "unknown"
	}
	return kindNames[k]
}

// Event is one event. Which fields mean something depends on the kind.
type Event struct {
	At      time.Duration // since the domain was opened, by the monotonic clock
	Kind    Kind
	Op      fabric.Op    // Post, Complete
	Flags   fabric.Flags // Post
	Err     errs.Kind
	Len     int64  // bytes
	Context uint64 // Post, Complete; the key of Grant and Revoke
	Name    string // of the endpoint; the address of Dial and Accept that failed
	serial  uint64 // tells endpoints apart, whose names may come again; 0: none
}

// Options of a traced domain.
type Options struct {
	// Events is how many are kept. Default 4096.
	Events int

	// Log, if set, is told of every event at level debug when it happens, if it listens to that
	// level. That costs what a log costs.
	Log *slog.Logger

	// Clock gives the time since some fixed moment. Default: the monotonic clock from New on.
	Clock func() time.Duration
}

func (o Options) withDefaults() Options {
	if o.Events == 0 {
		o.Events = 4096
	}
	if o.Clock == nil {
		start := time.Now()
		o.Clock = func() time.Duration { return time.Since(start) }
	}
	return o
}

func (o Options) validate() error {
	if o.Events < 1 {
		return errs.Newf(errs.Invalid, "trace.New", "", "%d events", o.Events)
	}
	return nil
}

// recorder is the ring of the last events.
type recorder struct {
	log   *slog.Logger
	clock func() time.Duration

	mu     sync.Mutex
	events []Event // its whole room
	total  uint64  // events ever; the next goes to total modulo the room
}

// record keeps an event, which happened now if it does not say otherwise.
func (r *recorder) record(ev Event) {
	if ev.At == 0 {
		ev.At = r.clock()
	}
	r.mu.Lock()
	r.events[r.total%uint64(len(r.events))] = ev
	r.total++
	r.mu.Unlock()
	if r.log != nil && r.log.Enabled(context.Background(), slog.LevelDebug) {
		r.tell(&ev)
	}
}

func (r *recorder) tell(ev *Event) {
	attrs := make([]slog.Attr, 0, 6)
	attrs = append(attrs, slog.String("name", ev.Name))
	if ev.Op != 0 {
		attrs = append(attrs, slog.String("op", opName(ev.Op)))
	}
	if ev.Kind != Death && ev.Kind != Close {
		attrs = append(attrs, slog.Int64("len", ev.Len), slog.Uint64("context", ev.Context))
	}
	if ev.Err != errs.OK {
		attrs = append(attrs, slog.String("err", ev.Err.String()))
	}
	r.log.LogAttrs(context.Background(), slog.LevelDebug, "fabric "+ev.Kind.String(), attrs...)
}

// last copies the events in the order in which they happened, which is not always that in which
// they were recorded, and tells how many were lost before them.
func (r *recorder) last() (events []Event, lost uint64) {
	r.mu.Lock()
	room, at := uint64(len(r.events)), uint64(0)
	if r.total > room {
		at, lost = r.total%room, r.total-room
	}
	events = append(events, r.events[at:min(r.total, room)]...)
	events = append(events, r.events[:at]...)
	r.mu.Unlock()
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events, lost
}

func opName(op fabric.Op) string {
	switch op {
	case fabric.OpSend:
		return "send"
	case fabric.OpWrite:
		return "write"
	case fabric.OpWriteImm:
		return "writeimm"
	case fabric.OpRead:
		return "read"
	case fabric.OpRecv:
		return "recv"
	}
	return "unknown"
}
