package pebblekv

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/kv"
)

// Transactions that come at the same time are committed together. Whoever finds nobody in the
// ordered section leads: it takes all that wait, in the order of their coming, checks and numbers
// them one by one, and hands them to pebble as one batch. Then it passes the lead on to the first
// of those who have come meanwhile, waits for the log, and tells the others. So they share the cost
// of pebble's own queue, of waking goroutines and of writing the log, the more so the more there
// are. Those who asked for the disk then wait for that, together (logsync.go).
//
// A batch is in the log whole or not at all: what a crash leaves is still a prefix of the order.

const (
	groupMax = 64 // transactions of one group

	// groupBytes bounds a group's batch as one transaction is bounded, and so far below the half of
	// a memtable, see minMemtableBytes.
	groupBytes = kv.MaxTxnBytes
)

// pending is a transaction on its way.
type pending struct {
	wait.Waiter
	t    *kv.Txn
	lead bool // it was woken to lead
	disk bool // it is on disk
	r    kv.Result
	err  error
}

var pendings = sync.Pool{New: func() any { return new(pending) }}

func takePending(t *kv.Txn) *pending {
	p := pendings.Get().(*pending)
	p.t = t
	return p
}

func (p *pending) free() {
	*p = pending{Waiter: p.Waiter}
	pendings.Put(p)
}

// turn is the queue before the ordered section.
type turn struct {
	mu      sync.Mutex
	taken   bool // somebody leads
	waiting []*pending
}

// join returns true when p is to lead, and false when it was committed or refused by another one:
// then p has the outcome. It fails when ctx has ended before anybody took it.
func (q *turn) join(ctx context.Context, p *pending) (lead bool, err error) {
	q.mu.Lock()
	if !q.taken {
		q.taken = true
		q.mu.Unlock()
		return true, nil
	}
	p.Arm()
	q.waiting = append(q.waiting, p)
	q.mu.Unlock()
	if woken, _ := p.Wait(ctx); woken {
		return p.lead, nil
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, p)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i >= 0 {
		return false, ctx.Err()
	}
	_ = p.Woken() // it is taken: the outcome will come, and waits for no network
	return p.lead, nil
}

// take adds those who wait to a group, in order, within its bounds.
func (q *turn) take(g *group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, g.members[0].t.Bytes()
	for _, p := range q.waiting {
		if bytes += p.t.Bytes(); len(g.members) == groupMax || bytes > groupBytes {
			break
		}
		g.members = append(g.members, p)
		n++
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
}

// pass gives the lead to whoever has waited longest.
func (q *turn) pass() {
	q.mu.Lock()
	var next *pending
	if q.taken = len(q.waiting) > 0; q.taken {
		next = q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	q.mu.Unlock()
	if next != nil {
		next.lead = true
		next.Wake(nil)
	}
}

// group is what one leader commits.
type group struct {
	s       *Store
	members []*pending

	batch   *pebble.Batch // what is listed; nil: nothing
	applied kv.Version    // pebble has everything up to here
	written []*pebble.Batch
	sums    []int64 // see Store.sums
}

var groups = sync.Pool{New: func() any { return new(group) }}

// lead commits p and those who wait.
func (s *Store) lead(p *pending) {
	g := groups.Get().(*group)
	g.s, g.applied = s, s.version
	g.members = append(g.members[:0], p)
	s.turn.take(g)
	err := g.apply()
	s.turn.pass()
	g.wakeBut(func(m *pending) bool { return m.err == nil }) // refusals need no log
	for _, b := range g.written {
		if e := s.finish(b); err == nil {
			err = e
		}
	}
	for _, m := range g.members {
		if m.err == nil {
			m.err = err
		}
	}
	g.tell(p.err == nil && p.t.Sync)
	clear(g.members)
	clear(g.written)
	g.s, g.written = nil, g.written[:0]
	groups.Put(g)
}

// tell wakes the members. Where the leader waits for the disk it does so for all who asked for it:
// they are woken once. Others never wait for that.
func (g *group) tell(sync bool) {
	g.wakeBut(func(m *pending) bool { return sync && m.t.Sync })
	if !sync {
		return
	}
	err := g.s.flush()
	for i, m := range g.members {
		if m.disk = true; m.err == nil {
			m.err = err
		}
		if i > 0 {
			m.Wake(nil)
		}
	}
}

// wakeBut wakes all followers but those that stay. Who is woken is not a member any more: it may be
// gone at once.
func (g *group) wakeBut(stays func(m *pending) bool) {
	kept := g.members[:1]
	for _, m := range g.members[1:] {
		if stays(m) {
			kept = append(kept, m)
		} else {
			m.Wake(nil)
		}
	}
	clear(g.members[len(kept):])
	g.members = kept
}

// apply is the ordered section. It returns why the whole group fails, and leaves in each member
// what became of it otherwise.
func (g *group) apply() error {
	if err := g.s.guard.err(); err != nil {
		return err
	}
	passed := false
	for _, m := range g.members {
		m.r, m.err = g.s.admit(g, m.t)
		passed = passed || m.err == nil
	}
	if passed && g.batch == nil && len(g.written) == 0 {
		// Only repeats: what they repeat may still be on its way to the log.
		if err := g.open().LogData(nil, nil); err != nil {
			return err
		}
	}
	return g.write()
}

// open is the batch that is being listed.
func (g *group) open() *pebble.Batch {
	if g.batch == nil {
		g.batch = g.s.db.NewBatch()
	}
	return g.batch
}

// write makes what is listed visible.
func (g *group) write() error {
	b, s := g.batch, g.s
	if b == nil {
		return nil
	}
	g.batch = nil
	if s.version != g.applied {
		setVersion(b, keyLast, s.version)
	}
	s.shown.begin()
	if err := s.latest.drop(); err != nil {
		s.opt.Log.Warn("closing a view", "err", err) // it only keeps old data for longer
	}
	if err := s.write(b); err != nil {
		return err // what is visible is not known: the store is frozen
	}
	s.shown.set(s.version)
	g.applied = s.version
	g.written = append(g.written, b)
	return nil
}

// writeFor is write if one of the group's own transactions may have touched the key.
func (g *group) writeFor(key []byte) error {
	if g.batch == nil || g.s.recent.Latest(key) <= g.applied {
		return nil
	}
	return g.write()
}

// shown tells which version a new snapshot has without reading it: while the count is odd a commit
// is being made visible, and nobody knows.
type shown struct {
	count   atomic.Uint64
	version atomic.Uint64
}

func (s *shown) begin() { s.count.Add(1) }

func (s *shown) set(v kv.Version) {
	s.version.Store(uint64(v))
	s.count.Store((s.count.Load() + 1) &^ 1)
}

// during calls look and returns the version throughout; 0 if it is not known.
func (s *shown) during(look func()) kv.Version {
	before := s.count.Load()
	v := s.version.Load()
	look()
	if before%2 == 1 || s.count.Load() != before {
		return 0
	}
	return kv.Version(v)
}

// countersMax bounds the counters that are remembered: about half a MiB.
const countersMax = 4096

// counters are the values of keys that were added to. Directories that are worked in have few.
type counters struct{ sums map[string]*int64 }

func (c *counters) get(key []byte) (sum int64, ok bool) {
	if at := c.sums[string(key)]; at != nil {
		return *at, true
	}
	return 0, false
}

func (c *counters) forget(key []byte) {
	if len(c.sums) > 0 {
		delete(c.sums, string(key))
	}
}

func (c *counters) set(key []byte, sum int64) {
	if at := c.sums[string(key)]; at != nil {
		*at = sum
		return
	}
	if c.sums == nil || len(c.sums) >= countersMax {
		c.sums = map[string]*int64{}
	}
	c.sums[string(key)] = &sum
}
