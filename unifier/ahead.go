package unifier

import "github.com/sluice-storage/sluice/seg"

// Readahead. Up to streamsMax readers of an object are told apart by where they go on; one whose
// reads follow each other gets a window of units ahead of it, which doubles while it goes on. How
// large windows may be follows from how much of what was read ahead is used. What is only guessed
// evicts units on probation, never those that have proved to be useful, and has a share of the
// memory that it cannot exceed.
const (
	streamsMax = 8
	aheadLeast = 128 << 10 // the first window
	aheadFill  = 1 << 20   // bytes of one read of the backing
	aheadQueue = 32        // guesses that may wait for a worker
	aheadTrial = 128       // units after which the largest window is looked at again
)

// streams are the readers of an object. Guarded by Cache.mu.
type streams struct {
	list  [streamsMax]reader
	clock uint32
}

// reader is one of them.
type reader struct {
	next   int64 // where it goes on
	ahead  int64 // end of what was asked for ahead of it
	window int64
	run    int    // reads in a row
	used   uint32 // by streams.clock
}

// guess is a range that will be read, perhaps.
type guess struct {
	id       Key
	from, to int64
	policy   Policy
}

// follow finds the reader that a read belongs to. Several requests of one reader may be under way
// and overtake each other: a few lengths ahead or behind is still in a row.
func (s *streams) follow(p seg.Piece) *reader {
	s.clock++
	oldest := &s.list[0]
	for i := range s.list {
		r := &s.list[i]
		if d := p.Off - r.next; r.run > 0 && d <= 4*p.Len && -d <= 4*p.Len {
			r.used = s.clock
			if p.End() > r.next {
				r.run++
				r.next = p.End()
			}
			return r
		}
		if r.used < oldest.used {
			oldest = r
		}
	}
	*oldest = reader{next: p.End(), ahead: p.End(), run: 1, used: s.clock}
	return oldest
}

// noteReadLocked looks whether a loan goes on with a stream, and if so reads ahead of it.
func (c *Cache) noteReadLocked(l *Loan, o *object) {
	if c.aheadMax == 0 || l.hint.Policy == None || len(l.parts) == 0 || l.access.Pieces() != 1 {
		return
	}
	r := o.ahead.follow(l.access.Span())
	if r.run < 2 && l.hint.Policy != Stream {
		return
	}
	r.ahead = max(r.ahead, r.next)
	if r.window > 0 && r.ahead-r.next > r.window/2 || c.guesses.len() >= aheadQueue {
		return
	}
	c.adaptLocked()
	r.window = min(max(2*r.window, aheadLeast), c.aheadNow)
	to := (r.next + r.window) &^ (o.unit() - 1)
	if to <= r.ahead {
		return
	}
	c.guesses.push(job{ahead: guess{o.id, r.ahead, to, l.hint.Policy}})
	r.ahead = to
	c.rouseLocked()
}

// adaptLocked lets windows grow while what is read ahead is used, and shrink while it is not.
func (c *Cache) adaptLocked() {
	p := &c.policy
	good, waste := p.aheadGood-c.trialGood, p.aheadWaste-c.trialWaste
	if good+waste < aheadTrial {
		return
	}
	c.trialGood, c.trialWaste = p.aheadGood, p.aheadWaste
	if waste*4 > good {
		c.aheadNow = max(c.aheadNow/2, min(aheadLeast, c.aheadMax))
	} else {
		c.aheadNow = min(c.aheadNow*2, c.aheadMax)
	}
}

// readAheadLocked brings what is missing of the range, on a worker.
func (c *Cache) readAheadLocked(g guess) {
	if c.stater != nil { // behind the end there is nothing
		c.mu.Unlock()
		info, err := c.stater.Stat(c.life, g.id)
		c.mu.Lock()
		if err != nil {
			return
		}
		g.to = min(g.to, info.Size)
	}
	o := c.objectLocked(g.id, Hint{})
	o.busy++
	for g.from < g.to && !c.closed {
		to := min(g.to, g.from+aheadFill)
		f := c.guessLocked(o, g.from, to, g.policy)
		g.from = to
		if f == nil {
			continue
		}
		c.mu.Unlock()
		_ = c.run(c.life, f) // whoever needs the bytes will be told
		c.mu.Lock()
		for _, u := range f.units {
			c.unpinLocked(u)
		}
		c.leaveFillLocked(f)
	}
	o.busy--
	c.tidyLocked(o)
}

// guessLocked starts a fill of the missing units of a range, if there is memory for guesses.
func (c *Cache) guessLocked(o *object, from, to int64, p Policy) *fill {
	var f *fill
	n := &c.guessNeed
	for index := from >> o.shift; index<<o.shift < to; index++ {
		if c.findLocked(o, index) != nil {
			continue
		}
		if c.policy.aheadBytes+o.unit() > c.aheadShare || !c.queue.Empty() {
			break
		}
		if c.memory.free == 0 && !c.mapping {
			c.growOnceLocked()
			if c.findLocked(o, index) != nil {
				continue
			}
		}
		n.shift, n.count = o.shift, 1 // here: all guesses share it, and the lock was let go of
		if !c.collectLocked(n, true) {
			break
		}
		if f == nil {
			f = c.newFillLocked(o)
		}
		u := c.addLocked(o, index, n.got[0], p)
		n.got = n.got[:0]
		f.add(u)
		u.ahead = true
		c.policy.aheadBytes += o.unit()
		c.stats.Ahead++
	}
	return f
}
