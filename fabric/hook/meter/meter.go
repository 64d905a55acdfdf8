// Package meter counts what a fabric domain does: operations, bytes and errors by operation and
// kind, sizes and times as histograms, connections, grants, waits. Snapshot gives everything as
// plain numbers, for a collector or for the text that String makes of it.
//
// Each endpoint counts for itself, under a lock that it shares with nobody, and each queue with
// atomics, so that endpoints do not slow each other down; a closed endpoint's numbers are added to
// those of the domain. Counting a request takes two looks at the clock for its chain and none for
// itself, and no allocation.
//
// It does not remember single events; package trace does. How long a request took is known for
// those that complete; silent ones are counted when a later completion tells that they are over.
//
// Read meter.go first, then domain.go (where the numbers come from), hist.go and text.go.
package meter

import (
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// ops are the operations that are counted, fabric.OpSend to fabric.OpRecv.
const ops = int(fabric.OpRecv)

// kinds is more than there are kinds of errors.
const kinds = 64

// Errors counts by errs.Kind.
type Errors [kinds]uint64

func (e *Errors) add(err error) {
	if k := errs.KindOf(err); k != errs.OK {
		e[min(int(k), kinds-1)]++
	}
}

// Total is the number of errors of all kinds.
func (e *Errors) Total() uint64 {
	var n uint64
	for _, v := range e {
		n += v
	}
	return n
}

// Op is what is known of one operation.
type Op struct {
	Posted      uint64 // requests that were taken
	PostedBytes uint64 // in them; for receives their room
	Completed   uint64 // completions, of failures too
	Bytes       uint64 // moved, as told by successful completions
	Silent      uint64 // requests that are over without a completion, while their endpoint was open
	Outstanding uint64 // of open endpoints: posted and not known to be over
	Failed      Errors // completions with an error
	Refused     Errors // requests that Post or PostRecv did not take

	Sizes Sizes // of what was posted
	Times Times // from the post until the completion was handed out, while the endpoint was open
}

func (o *Op) add(p *Op) {
	o.Posted += p.Posted
	o.PostedBytes += p.PostedBytes
	o.Completed += p.Completed
	o.Bytes += p.Bytes
	o.Silent += p.Silent
	o.Outstanding += p.Outstanding
	for i := range o.Failed {
		o.Failed[i] += p.Failed[i]
		o.Refused[i] += p.Refused[i]
	}
	o.Sizes.add(&p.Sizes)
	o.Times.add(&p.Times)
}

// Queues is what is known of the completion queues of a domain.
type Queues struct {
	Open  uint64
	Polls uint64        // calls of Poll
	Empty uint64        // of those, without a completion
	Waits uint64        // calls of Wait that have returned
	Wakes uint64        // of those, without a completion
	Sleep time.Duration // in those, by all callers together
}

// Links is what is known of connections and memory.
type Links struct {
	Open       uint64 // endpoints
	Dialled    uint64
	Accepted   uint64
	DialErrors Errors
	AccErrors  Errors // of peers; not the end of a listener or of the caller's patience

	Regions     uint64 // registered now
	RegionBytes uint64
	Grants      uint64 // ever
	Revokes     uint64
}

// Endpoint is what is known of one open endpoint.
type Endpoint struct {
	Name string
	Ops  [ops]Op // by fabric.Op - 1
}

// Op is what is known of one operation.
func (e *Endpoint) Op(op fabric.Op) *Op { return &e.Ops[op-1] }

// Snapshot is a domain's numbers since it was opened, or their state where they are no counters.
// Those of one endpoint fit together; those of different ones may be some moments apart.
type Snapshot struct {
	Provider string
	Age      time.Duration // of the domain
	Ops      [ops]Op       // of all endpoints that there ever were, by fabric.Op - 1
	Queues   Queues
	Links    Links
}

// Op is what is known of one operation.
func (s *Snapshot) Op(op fabric.Op) *Op { return &s.Ops[op-1] }
