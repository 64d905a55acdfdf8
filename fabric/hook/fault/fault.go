// Package fault makes a fabric fail on demand: connections break, Dial and Accept are refused,
// memory cannot be registered, queues are full. It is for testing whoever stands on a fabric.
//
// Faults are those that the contract allows, never silent ones: a fabric is reliable until it dies.
// A connection that breaks completes everything that is pending, once, with errs.Disconnected at
// both ends, and has still to be closed. A queue is said to be full only while something is pending
// whose completion will make room. What happens depends on the rules, the seed and the order of the
// calls, and on nothing else. Without rules nothing changes.
//
// Read fault.go first (rules), then domain.go (where they are asked) and endpoint.go (how a
// connection breaks).
package fault

import (
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Op is a set of operations.
type Op uint16

// The operations.
const (
	Send Op = 1 << iota
	Write
	WriteImm
	Read
	Recv // posting a receive
	Dial
	Accept
	Register
	Grant
	opEnd

	Post = Send | Write | WriteImm | Read // what Endpoint.Post takes
	All  = opEnd - 1
)

// opOf is the set of one fabric operation.
func opOf(op fabric.Op) Op {
	switch op {
	case fabric.OpSend:
		return Send
	case fabric.OpWrite:
		return Write
	case fabric.OpWriteImm:
		return WriteImm
	case fabric.OpRead:
		return Read
	}
	return 0 // no such operation: the provider says so
}

// Rule says what happens to which operations. Rules are asked in the order in which they were
// injected; the first one that fires decides.
type Rule struct {
	Ops Op // which operations; 0: all that the fault fits

	// Name must be a part of the endpoint's name, for Dial of the address dialled, for Accept of
	// the address listened on. Empty: any. A Register has no name.
	Name string

	// Skip lets that many matching operations pass first. After lets operations pass until that
	// many bytes have been posted by them. OneIn makes one in so many of the remaining fire, by the
	// seed. Count ends the rule when it has fired that often. 0: not used; Count 0: for ever.
	Skip  int
	After int64
	OneIn int
	Count int

	// The fault: exactly one of these. Break cuts the connection when the chain with the operation
	// has been posted, or, with Early, instead of posting it. Kind is the error of a refusal:
	// errs.Again for posts and receives; errs.Again or errs.NoMemory for Grant; errs.NoMemory,
	// errs.Again or errs.Perm for Register; errs.Disconnected, Perm, Again, Version, TimedOut or
	// NoMemory for Dial and Accept.
	Break bool
	Early bool
	Kind  errs.Kind
}

// fits is the set of operations that a kind may refuse.
func fits(kind errs.Kind) Op {
	var ops Op
	switch kind {
	case errs.Again:
		ops = All
	case errs.NoMemory:
		ops = Dial | Accept | Register | Grant
	case errs.Perm:
		ops = Dial | Accept | Register
	case errs.Disconnected, errs.Version, errs.TimedOut:
		ops = Dial | Accept
	}
	return ops
}

func (r Rule) withDefaults() Rule {
	if r.Ops != 0 {
		return r
	}
	r.Ops = fits(r.Kind)
	if r.Break {
		r.Ops = Post | Recv
	}
	return r
}

// validate panics: a rule that the contract forbids is a mistake of the test.
func (r Rule) validate() {
	may := fits(r.Kind)
	if r.Break {
		may = Post | Recv
	}
	invariant.Check(r.Break != (r.Kind != errs.OK), "fault: a rule breaks or refuses, not both")
	invariant.Check(r.Ops != 0 && r.Ops&^may == 0,
		"fault: the contract does not allow %v for operations %#x", r.Kind, r.Ops&^may)
	invariant.Check(r.Skip >= 0 && r.After >= 0 && r.OneIn >= 0 && r.Count >= 0,
		"fault: a negative number in a rule")
	invariant.Check(r.Break || !r.Early, "fault: Early is for breaks")
}

// event is an operation that rules are asked about.
type event struct {
	op    Op
	name  string
	bytes int64
	busy  bool // something is pending whose completion makes room, so that Again is true
}

// asks tells whether a rule fires, and counts.
func (r *Rule) asks(ev *event, oneIn func(int) bool) bool {
	if r.Ops&ev.op == 0 || !strings.Contains(ev.name, r.Name) {
		return false
	}
	if r.Kind == errs.Again && ev.op&(Post|Recv) != 0 && !ev.busy {
		return false
	}
	if r.Skip > 0 {
		r.Skip--
		return false
	}
	if r.After > 0 {
		r.After -= ev.bytes
		if r.After > 0 {
			return false
		}
		r.After = 0 // from now on
	}
	return r.OneIn == 0 || oneIn(r.OneIn)
}
