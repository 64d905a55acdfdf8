// Package fault wraps a stripe engine with faults and delays on demand, so that whoever stands on a
// store can be tested against one that fails. Without rules it changes nothing; it never damages
// data that the engine below has acknowledged.
//
// Read fault.go first; engine.go is the wrapping itself.
package fault

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// Op is a set of operations.
type Op uint16

// The operations.
const (
	Read Op = 1 << iota
	Write
	Truncate
	Sync
	Remove
	Punch
	Stat
	Map
	List
	Fence
	Zero
	Admit
	Reserve
	Release
	Blank
	opEnd

	All = opEnd - 1
)

// Rule says what happens to which requests. The first rule that matches a request applies.
type Rule struct {
	Ops Op // which operations; 0: all

	// Object narrows the rule to one object; the zero id means all.
	Object stripe.ObjectID

	// Skip lets that many matching requests pass first; Count then ends the rule after that many
	// (0: it goes on for ever).
	Skip, Count int

	// Delay holds the request back. Gate does so until it is closed. Both end with the request's
	// context, whose error is then returned.
	Delay time.Duration
	Gate  <-chan struct{}

	// Err is returned, e.g. errs.IO or errs.NoSpace. nil: the request goes on. With Late the engine
	// carries the request out first: the caller is told of a failure that did not happen.
	Err  error
	Late bool
}

// Engine is an engine with rules. Safe for concurrent use.
type Engine struct {
	below stripe.Engine

	mu    sync.Mutex
	rules []*Rule
	calls map[Op]int64
}

var _ stripe.Engine = (*Engine)(nil)

// New wraps an engine.
func New(below stripe.Engine) *Engine {
	return &Engine{below: below, calls: map[Op]int64{}}
}

// Inject adds a rule behind the others. The function that it returns takes it away again.
func (e *Engine) Inject(r Rule) (remove func()) {
	if r.Ops == 0 {
		r.Ops = All
	}
	rule := &r
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rules = append(e.rules, rule)
	return func() { e.remove(rule) }
}

func (e *Engine) remove(rule *Rule) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, r := range e.rules {
		if r == rule {
			e.rules = append(e.rules[:i:i], e.rules[i+1:]...)
			return
		}
	}
}

// Calls tells how many requests of the operations there were, refused ones included.
func (e *Engine) Calls(ops Op) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	var n int64
	for op, calls := range e.calls {
		if op&ops != 0 {
			n += calls
		}
	}
	return n
}

// match counts the request and finds the rule for it; the zero Rule when there is none.
func (e *Engine) match(op Op, id stripe.ObjectID) Rule {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls[op]++
	for i, r := range e.rules {
		if r.Ops&op == 0 || r.Object != (stripe.ObjectID{}) && r.Object != id {
			continue
		}
		if r.Skip > 0 {
			r.Skip--
			continue
		}
		if r.Count > 0 {
			if r.Count--; r.Count == 0 {
				e.rules = append(e.rules[:i:i], e.rules[i+1:]...)
			}
		}
		return *r
	}
	return Rule{}
}

// do carries a request out under the rules.
func (e *Engine) do(ctx context.Context, op Op, id stripe.ObjectID, call func() error) error {
	r := e.match(op, id)
	if err := r.wait(ctx); err != nil {
		return errs.Wrap("fault", "object "+id.String(), err)
	}
	if r.Err == nil {
		return call()
	}
	if r.Late {
		if err := call(); err != nil {
			return err
		}
	}
	return errs.Wrap("fault", "object "+id.String(), r.Err)
}

func (r *Rule) wait(ctx context.Context) error {
	if r.Delay > 0 {
		t := time.NewTimer(r.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.Gate != nil {
		select {
		case <-r.Gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
