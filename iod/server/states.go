package server

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/iod"
)

// state is a phase of a request, whose time is measured.
type state uint8

// The states of a request, in the order of a read's; a write sends (that is, its data is fetched)
// before it comes to the disk.
const (
	stateInit     state = iota // decoded, checked, admitted
	stateDisk                  // waits for the disk gate, and for the store
	stateSendInit              // the data is there, or room for it, and is made ready to move
	stateSend                  // the data moves
	stateFin                   // the rest: the reply, the return of loans
	statesEnd
)

var stateNames = [statesEnd]string{"init", "disk", "send_init", "send", "fin"}

// StateBuckets is the number of buckets of a histogram: bucket i counts times from 2^(i-1) to 2^i
// ns; the last one has all longer ones.
const StateBuckets = 40

// State tells how long requests of one kind were in one state.
type State struct {
	Op      string
	State   string
	Count   uint64        // requests that were in it
	Sum     time.Duration // all of them together
	Buckets [StateBuckets]uint64
}

// timeline is one request's way through the states.
type timeline struct {
	base  time.Time // times are since then: time.Since is quicker than time.Now
	now   state
	since time.Duration
	spent [statesEnd]time.Duration
	seen  [statesEnd]bool
	live  activity.Request // what onlookers see
}

// begin begins with stateInit.
func (t *timeline) begin(base time.Time) {
	*t = timeline{base: base, since: time.Since(base)}
	t.seen[stateInit] = true
}

// enter begins a state. A state may be entered again: its times are added.
func (t *timeline) enter(s state) {
	at := time.Since(t.base)
	t.spent[t.now] += at - t.since
	t.now, t.since, t.seen[s] = s, at, true
	t.live.Enter(uint8(s))
}

// newRecorder makes what takes note of requests for onlookers.
func newRecorder() *activity.Recorder {
	ops := make([]activity.Op, opEnd)
	for op := 1; op < opEnd; op++ {
		ops[op].Name = opNames[op]
	}
	return activity.New(activity.Options{Ops: ops, Phases: stateNames[:]})
}

// Activity is what the server takes note of: operations, sessions and files.
func (s *Server) Activity() *activity.Recorder { return s.seen }

// end takes note of a request that is over, after clocks.end.
func (t *timeline) end(w *work, err error) {
	done := activity.Done{Read: w.read, Written: w.written, Failed: err != nil}
	copy(done.Phases[:], t.spent[:])
	t.live.End(t.since, &done)
}

// clocks are the times of all finished requests.
type clocks [opEnd][statesEnd]clock

type clock struct {
	sum     atomic.Uint64
	buckets [StateBuckets]atomic.Uint64
}

// end adds the times of a finished request.
func (c *clocks) end(op iod.Op, t *timeline) {
	if int(op) >= opEnd {
		return
	}
	t.enter(t.now)
	for s, seen := range t.seen {
		if seen {
			k := &c[op][s]
			k.sum.Add(uint64(t.spent[s]))
			k.buckets[min(bits.Len64(uint64(t.spent[s])), StateBuckets-1)].Add(1)
		}
	}
}

func (k *clock) read(op, name string) State {
	s := State{Op: op, State: name, Sum: time.Duration(k.sum.Load())}
	for i := range k.buckets {
		s.Buckets[i] = k.buckets[i].Load()
		s.Count += s.Buckets[i]
	}
	return s
}

// States tells where requests spend their time, for each kind that there was and each state.
func (s *Server) States() []State {
	var out []State
	for op := range s.clocks {
		for st := range s.clocks[op] {
			if x := s.clocks[op][st].read(opNames[op], stateNames[st]); x.Count > 0 {
				out = append(out, x)
			}
		}
	}
	return out
}
