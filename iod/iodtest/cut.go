package iodtest

// Truncate begins a truncation that leaves zeroes in cells, the last ones of the object. What
// clients have not yet repeated of what a crash has lost comes too late then, wherever it lies: a
// server cannot tell whether it was written before. It may be there or not. The next sync of its
// client tells, unless the truncation has taken all of it anyhow.
func (l *Ledger) Truncate(client int, cells []int) *Op {
	op := l.change(client, cells, true)
	l.mu.Lock()
	defer l.mu.Unlock()
	op.cuts = true
	l.late = l.late || l.crashed > 0
	for _, cell := range l.cells {
		for _, e := range cell {
			if e.expected {
				e.cutBy(op)
			}
		}
	}
	return op
}

// cutLocked notes that w is repeated while truncations are under way.
func (l *Ledger) cutLocked(w *write) {
	for op := range l.flights {
		if op.cuts {
			l.late = true
			w.cutBy(op)
		}
	}
}

// cutBy notes that a truncation may have come before w was repeated.
func (w *write) cutBy(op *Op) {
	w.cut = true
	w.unsaid = w.unsaid || len(op.cells) > 0 && w.first >= op.cells[0]
}

// Told ends a sync that has told its client of a loss: what may have come too late, behind a
// truncation or after a life that was missed, may be missing for good. It returns false if there was no reason for a loss.
func (op *Op) Told() bool {
	l := op.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(op)
	for _, cell := range l.cells {
		for _, e := range cell {
			if e.client == op.client && e.cut {
				e.unsaid = true
			}
		}
	}
	return l.late
}

// inTimeLocked draws the conclusions from a sync that succeeded: what of its client's writes it
// would have told of has not come too late. If two syncs of a client run at once only one is told.
func (l *Ledger) inTimeLocked(op *Op) {
	if op.joint {
		return
	}
	for _, cell := range l.cells {
		for _, e := range cell {
			if e.client == op.client && e.cut && !e.unsaid && !e.stable && !e.failed &&
				e.ended < op.began {
				e.cut, e.expected = false, true
			}
		}
	}
}
