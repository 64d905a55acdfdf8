package engine

import (
	"bytes"

	"github.com/sluice-storage/sluice/kv"
)

// entryBytes is what one remembered change costs beside its key: the entry and its share of
// slack.
const entryBytes = 64

// Changes remembers which keys the recent commits touched, deletions included, so that a range
// check with Since is answered from memory at the cost of what happened after Since, however big
// the range.
//
// It is bounded: the oldest changes are forgotten beyond the budget (but never the latest
// kv.SinceWindow), and everything before the opening is unknown. A Since from there counts as
// touched: the caller reads again, which is always right, and only costs time.
type Changes struct {
	budget int // bytes
	used   int

	opened kv.Version // the last commit found at opening
	burnt  kv.Version // numbers in (opened, burnt] were perhaps given to commits that a crash undid
	floor  kv.Version // all changes after floor are in log
	latest kv.Version

	log  []change // ascending by version; log[head:] is live
	head int
}

type change struct {
	v   kv.Version
	key []byte
}

// NewChanges starts an empty memory for a store that was opened at version opened. Commits are
// numbered from burnt+1 on; see the field.
func NewChanges(budget int, opened, burnt kv.Version) *Changes {
	return &Changes{budget: budget, opened: opened, burnt: burnt, floor: opened, latest: opened}
}

// Record notes the effects of t, committed as version v. The keys are copied.
func (c *Changes) Record(v kv.Version, t *kv.Txn) {
	n, size := t.Effects(), 0
	for i := range n {
		size += len(t.Effect(i))
	}
	keys := make([]byte, 0, size) // one allocation for the whole transaction
	for i := range n {
		at := len(keys)
		keys = append(keys, t.Effect(i)...)
		c.log = append(c.log, change{v, keys[at:len(keys):len(keys)]})
	}
	c.used += size + n*entryBytes
	c.latest = v
	c.forget()
}

// Touched tells whether a key in [start, end) changed after version since, or might have. An
// empty end means no upper bound.
func (c *Changes) Touched(start, end []byte, since kv.Version) bool {
	if since < c.floor || since > c.latest || (since > c.opened && since <= c.burnt) {
		return true
	}
	for i := len(c.log) - 1; i >= c.head && c.log[i].v > since; i-- {
		key := c.log[i].key
		if bytes.Compare(key, start) >= 0 && (len(end) == 0 || bytes.Compare(key, end) < 0) {
			return true
		}
	}
	return false
}

// forget drops the oldest changes while there are more than the budget and the promise ask for,
// and moves the rest down once half of the slice is dead, so that a change is moved at most once
// on average.
func (c *Changes) forget() {
	for c.used > c.budget && len(c.log)-c.head > kv.SinceWindow {
		e := &c.log[c.head]
		c.floor = e.v
		c.used -= len(e.key) + entryBytes
		*e = change{}
		c.head++
	}
	if c.head > len(c.log)/2 {
		n := copy(c.log, c.log[c.head:])
		clear(c.log[n:])
		c.log, c.head = c.log[:n], 0
	}
}
