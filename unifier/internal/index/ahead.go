package index

// Readahead. A stream gets a window of units ahead of it, which doubles while it goes on. How large
// windows may be follows from how much of what was read ahead is used. What is read ahead evicts
// units on probation, never those that have proved to be useful, and has a share of the memory that
// it cannot exceed. The index says what to read (NextAhead, FillAhead); whoever runs fills reads
// it.
const (
	aheadLeast = 128 << 10 // the first window
	aheadQueue = 32        // ranges that may wait
	aheadTrial = 128       // units after which the largest window is looked at again
)

// noteRead looks whether a loan goes on with a stream, and if so reads ahead of it.
func (x *Index) noteRead(l *Loan, o *Object) {
	a, as := &x.ahead, l.hint.Policy
	if x.cfg.AheadMax == 0 || as == None || len(l.parts) == 0 || l.access.Pieces() != 1 {
		return
	}
	s := o.streams.follow(l.access.Span())
	if s.run < 2 && as != Stream {
		return
	}
	s.ahead = max(s.ahead, s.next)
	if s.window > 0 && s.ahead-s.next > s.window/2 || len(a.queue) >= aheadQueue {
		return
	}
	x.adapt()
	s.window = min(max(2*s.window, aheadLeast), a.window)
	to := (s.next + s.window) &^ (o.UnitBytes() - 1)
	if to <= s.ahead {
		return
	}
	a.queue = append(a.queue, Ahead{o.id, s.ahead, to, as})
	a.fresh = true
	s.ahead = to
}

// adapt lets windows grow while what is read ahead is used, and shrink while it is not.
func (x *Index) adapt() {
	a, p := &x.ahead, &x.policy
	good, waste := p.aheadGood-a.trialGood, p.aheadWaste-a.trialWaste
	if good+waste < aheadTrial {
		return
	}
	a.trialGood, a.trialWaste = p.aheadGood, p.aheadWaste
	if waste*4 > good {
		a.window = max(a.window/2, min(aheadLeast, x.cfg.AheadMax))
	} else {
		a.window = min(a.window*2, x.cfg.AheadMax)
	}
}

// NewAhead is how many ranges NextAhead has; 0 when none was added since NewAhead was called last.
func (x *Index) NewAhead() int {
	if !x.ahead.fresh {
		return 0
	}
	x.ahead.fresh = false
	return len(x.ahead.queue)
}

// NextAhead takes the next range to read ahead out of the queue.
func (x *Index) NextAhead() (Ahead, bool) {
	q := x.ahead.queue
	if len(q) == 0 {
		return Ahead{}, false
	}
	next := q[0]
	x.ahead.queue = q[:copy(q, q[1:])]
	return next, true
}

// FillAhead starts a fill of the missing units of a range, for the caller to run and to end with
// EndAhead; nil when there is nothing to do, or no memory for it. It may let go of the lock.
func (x *Index) FillAhead(o *Object, a Ahead) *Fill {
	var f *Fill
	r := &x.ahead.request
	for index := a.From >> o.shift; index<<o.shift < a.To && !x.closed; index++ {
		if x.find(o, index) != nil {
			continue
		}
		x.Memory.Grow()
		if x.find(o, index) != nil {
			continue // it was entered while the lock was free
		}
		if x.policy.aheadBytes+o.UnitBytes() > x.cfg.AheadAll {
			break // after Grow: others may have read ahead while the lock was free
		}
		r.Ask(o.shift, 1)
		if !x.Memory.TryAllocate(r, true) {
			break
		}
		if f == nil {
			f = x.newFill(o)
		}
		u := x.enter(f, index, r.Got[0], a.policy)
		r.Got = r.Got[:0]
		u.ahead = true
		x.policy.aheadBytes += o.UnitBytes()
		x.stats.Ahead++
	}
	return f
}

// EndAhead lets go of the units of a fill that is over.
func (x *Index) EndAhead(f *Fill) {
	for _, u := range f.Units {
		x.Unpin(u)
	}
	x.LeaveFill(f)
}
