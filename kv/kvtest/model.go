package kvtest

import (
	"maps"

	"github.com/sluice-storage/sluice/kv"
)

// model is what a store should be, written for clearness alone: the whole state is copied at
// every commit, and every change is remembered for ever.
type model struct {
	state  map[string]cell
	last   kv.Version // the last commit
	given  kv.Version // the highest number ever given out
	opened kv.Version // last, when the store was opened
	burnt  kv.Version // given, when it was opened: a crash undid (opened, burnt]
	first  kv.Version // the first commit since; (burnt, first) was left out
	log    []touch
	done   map[kv.ReqID]kv.Result
	points []point // states that a crash may leave, the durable one first
}

type touch struct {
	v   kv.Version
	key string
}

type point struct {
	v     kv.Version
	state map[string]cell
}

func newModel() *model {
	m := &model{state: map[string]cell{}, done: map[kv.ReqID]kv.Result{}}
	m.synced()
	return m
}

// verdict is what a store may answer to a transaction.
type verdict int

const (
	mustCommit verdict = iota
	mustConflict
	mayConflict
)

// judge says what a store must answer to t, which is valid and not a repeat.
func (m *model) judge(t *kv.Txn) verdict {
	worst := mustCommit
	for _, c := range t.Checks {
		v := m.state[string(c.Key)].v
		if (c.Exists && v == 0) || (!c.Exists && v != c.Version) {
			return mustConflict
		}
	}
	for _, r := range t.Ranges {
		switch m.judgeRange(r) {
		case mustConflict:
			return mustConflict
		case mayConflict:
			worst = mayConflict
		}
	}
	return worst
}

func (m *model) judgeRange(r kv.RangeCheck) verdict {
	in := func(key string) bool {
		return key >= string(r.Start) && (len(r.End) == 0 || key < string(r.End))
	}
	if r.Since == 0 {
		for key := range m.state {
			if in(key) {
				return mustConflict
			}
		}
		return mustCommit
	}
	if r.Since > m.last || (r.Since > m.opened && r.Since <= m.burnt) {
		return mustConflict
	}
	for _, c := range m.log {
		if c.v > r.Since && in(c.key) {
			return mustConflict
		}
	}
	if r.Since < m.opened || (r.Since > m.burnt && r.Since < m.first) {
		return mayConflict // forgotten, or the version of no snapshot at all
	}
	return mustCommit
}

// apply makes t's effects as version v.
func (m *model) apply(t *kv.Txn, v kv.Version) {
	next := maps.Clone(m.state)
	for _, p := range t.Puts {
		next[string(p.Key)] = cell{string(p.Value), v}
	}
	for _, key := range t.Deletes {
		delete(next, string(key))
	}
	for _, a := range t.Adds {
		sum := a.Delta
		if old, ok := next[string(a.Key)]; ok {
			sum += decode(old.value)
		}
		next[string(a.Key)] = cell{counter(sum), v}
	}
	for i := range t.Effects() {
		m.log = append(m.log, touch{v, string(t.Effect(i))})
	}
	if t.ReqID != (kv.ReqID{}) {
		m.done[t.ReqID] = kv.Result{Version: v, Answer: t.Answer}
	}
	if m.last == m.opened {
		m.first = v
	}
	m.state, m.last, m.given = next, v, v
	m.points = append(m.points, point{v, next})
	if t.Sync {
		m.synced()
	}
}

// synced: only the present can come back.
func (m *model) synced() { m.points = []point{{m.last, m.state}} }

// reopened: the store was closed and opened.
func (m *model) reopened() {
	m.synced()
	m.opened, m.burnt, m.first = m.last, m.given, 0
}

// crashed tells whether a crash may leave the given state, and if so makes it the model's.
func (m *model) crashed(v kv.Version, state map[string]cell) bool {
	for _, p := range m.points {
		if p.v != v {
			continue
		}
		m.last, m.state = v, p.state
		m.log = keep(m.log, v)
		maps.DeleteFunc(m.done, func(_ kv.ReqID, done kv.Result) bool { return done.Version > v })
		m.reopened()
		return maps.Equal(state, p.state)
	}
	return false
}

func keep(log []touch, until kv.Version) []touch {
	for i := range log {
		if log[i].v > until {
			return log[:i]
		}
	}
	return log
}
