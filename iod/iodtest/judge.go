package iodtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Crashed notes that the server has died and lost everything that was not stable; it is called when
// nothing of it answers any more. Clients that live repeat what they
// have not synced, in their order, before they do anything else with the object; nobody knows in
// which order different clients do. What has failed, and what clients that are gone have written,
// may be there or not. So may what a client has not repeated in all of the life that has ended, if
// somebody has changed the object in it: the next server cannot tell where.
func (l *Ledger) Crashed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed != never {
		l.awayLocked()
	}
	l.crashed = l.tickLocked()
	l.takeBackLocked()
	l.missedLocked()
	for _, cell := range l.cells {
		for _, e := range cell {
			if e.failed && !e.gone { // it has happened by now, or never will
				e.known = min(e.known, l.crashed)
			}
		}
	}
}

// Crashing notes that the server may die at any moment from now on, and the next one start: which
// of them answers is not known until Crashed is called.
func (l *Ledger) Crashing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awayLocked()
	l.takeBackLocked()
	l.crashed = never
}

// awayLocked notes what was lost by a crash before, and not repeated since.
func (l *Ledger) awayLocked() {
	for _, cell := range l.cells {
		for _, e := range cell {
			e.away = e.expected && (e.early || e.lost != 0)
		}
	}
	for w := range l.kept {
		w.overdue = w.owed && (w.early || w.lost != 0)
	}
}

// missedLocked draws the conclusions from a life that is over.
func (l *Ledger) missedLocked() {
	for w := range l.kept {
		l.late = l.late || w.overdue && l.changed
		if w.owed && w.lost == 0 {
			w.lost = l.crashed
		}
	}
	for _, cell := range l.cells {
		for _, e := range cell {
			if e.away && l.changed {
				e.cut, l.late = true, true
			}
			if e.expected && e.lost == 0 {
				e.lost = l.crashed
			}
		}
	}
	l.lives = append(l.lives, past{l.crashed, l.changed})
	l.changed = false
	for op := range l.flights { // it may be carried out by the next server
		l.changed = l.changed || op.write != nil
	}
}

// takeBackLocked forgets what was concluded from writes that are not stable.
func (l *Ledger) takeBackLocked() {
	for w := range l.kept {
		w.owed = true
	}
	for _, cell := range l.cells {
		for _, e := range cell {
			again := !e.stable && !e.failed && e.ended != never
			e.resent = e.resent || again
			if e.gone {
				continue
			}
			e.dead, e.by, e.killers = never, nil, nil
			if !e.stable && !e.failed {
				e.known, e.expected = never, again
				if again {
					l.cutLocked(e.write)
				}
			}
		}
	}
}

// Gone notes that a client has ended and repeats nothing any more.
func (l *Ledger) Gone(client int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickLocked()
	maps.DeleteFunc(l.kept, func(w *write, _ struct{}) bool { return w.client == client })
	for _, cell := range l.cells {
		for _, e := range cell {
			switch {
			case e.client != client || e.stable:
				continue
			case e.expected: // it may have been repeated, and that may still be carried out
			default:
				e.known = min(e.known, e.ended)
			}
		}
	}
	for _, cell := range l.cells {
		for _, e := range cell {
			if e.client == client && !e.stable {
				e.failed, e.expected = true, false
			}
		}
	}
}

// returnedLocked draws the conclusions from a request that was answered after a crash: its client
// has repeated its writes of the object before.
func (l *Ledger) returnedLocked(op *Op, end int64) {
	if op.began <= l.crashed || l.crashed == 0 {
		return
	}
	for w := range l.kept {
		if w.client == op.client && w.ended < op.began {
			w.owed = false
		}
	}
	for c, cell := range l.cells {
		for _, e := range cell {
			if e.client == op.client && e.expected && e.ended < op.began && !e.gone {
				l.cameBackLocked(c, e, op, end)
			}
		}
	}
	for _, cell := range l.cells {
		for _, e := range cell {
			if e.client == op.client && e.ended < op.began {
				e.expected = false
			}
		}
	}
}

// cameBackLocked notes that w is there again. It may have been there all the time, below what
// others have repeated; but older bytes that nobody has ever repeated, its own client's older ones,
// and what an earlier crash had taken, are replaced.
func (l *Ledger) cameBackLocked(cell int, w *entry, op *Op, end int64) {
	w.known = min(w.known, end)
	w.settle()
	for _, e := range l.cells[cell] {
		if e != w && !w.cut && e.ended < w.began &&
			(!e.resent || e.client == w.client || e.lostBefore(w.write)) {
			e.killedBy(w.write, op, end)
		}
	}
}

// Fill makes the bytes of a write: its cells in the order that Write was given them.
func (op *Op) Fill(p []byte) {
	for i, c := range op.cells {
		cell := p[i*op.l.cellBytes : (i+1)*op.l.cellBytes]
		if op.write.zero {
			clear(cell)
			continue
		}
		pattern(cell, op.write.number, c)
	}
}

// pattern is the content of a cell: the write's number, then words that follow from it and from
// the cell's place.
func pattern(p []byte, number uint64, cell int) {
	binary.LittleEndian.PutUint64(p, number)
	x := number*0x9e3779b97f4a7c15 ^ uint64(cell)*0xbf58476d1ce4e5b9
	i := 8
	for ; i+8 <= len(p); i += 8 {
		x = x*0xd1342543de82ef95 + 1
		binary.LittleEndian.PutUint64(p[i:], x)
	}
	for ; i < len(p); i++ {
		p[i] = byte(x >> (8 * (i & 7)))
	}
}

// numberOf reads a cell: the write's number, 0 for zeroes.
func numberOf(p []byte, cell int, spare []byte) (uint64, error) {
	number := binary.LittleEndian.Uint64(p)
	spare = spare[:len(p)]
	if number == 0 {
		clear(spare)
	} else {
		pattern(spare, number, cell)
	}
	if !slices.Equal(p, spare) {
		at := 0
		for p[at] == spare[at] {
			at++
		}
		return number, fmt.Errorf("cell %d begins as write %d and differs from it at byte %d of %d",
			cell, number, at, len(p))
	}
	return number, nil
}

// Seen ends a read and judges what it returned.
func (op *Op) Seen(p []byte) error {
	l := op.l
	numbers, problems := make([]uint64, len(op.cells)), []error(nil)
	spare := make([]byte, l.cellBytes)
	for i, c := range op.cells {
		n, err := numberOf(p[i*l.cellBytes:(i+1)*l.cellBytes], c, spare)
		numbers[i] = n
		if err != nil {
			problems = append(problems, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.endLocked(op)
	l.returnedLocked(op, end)
	for i, c := range op.cells {
		if err := l.judgeLocked(op, c, numbers[i], end); err != nil {
			problems = append(problems, err)
		}
	}
	l.tidyLocked(op.cells)
	const tell = 3 // of many cells one story is enough
	if n := len(problems) - tell; n > 0 {
		problems = append(problems[:tell], fmt.Errorf("and %d more", n))
	}
	return errors.Join(problems...)
}

// judgeLocked wants the number to be one that the cell may have, and learns from it.
func (l *Ledger) judgeLocked(op *Op, cell int, number uint64, end int64) error {
	var found []*entry
	for _, e := range l.cells[cell] {
		same := e.number == number && !e.zero || number == 0 && e.zero
		// What op itself has told to be replaced was replaced before op was carried out.
		if same && (e.dead > op.began && e.by != op) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("client %d read write %d in cell %d (steps %d to %d, last crash %d), "+
			"which cannot be there:\n%s", op.client, number, cell, op.began, end, l.crashed,
			l.tellLocked(cell))
	}
	if e := found[0]; len(found) == 1 && op.began > l.crashed { // else it is on either side of it
		if !e.pieces || e.ended != never && !e.expected { // see Pieces
			e.known = min(e.known, end)
		}
		l.killLocked(cell, e.write, op, end)
	}
	return nil
}

func (e *entry) tell(b *strings.Builder) {
	fmt.Fprintf(b, "\t%v: in effect by %s, replaced by %s (for good: %v)", e.write, step(e.known),
		step(e.dead), e.gone)
	for _, k := range e.killers {
		fmt.Fprintf(b, " by %d", k.number)
	}
	if by := e.by; by != nil {
		fmt.Fprintf(b, ", told by client %d's request from step %d on", by.client, by.began)
	}
	b.WriteByte('\n')
}

// tellLocked is a cell's story for people.
func (l *Ledger) tellLocked(cell int) string {
	var b strings.Builder
	for _, list := range [][]*entry{l.forgot[cell], l.cells[cell]} {
		for _, e := range list {
			e.tell(&b)
		}
	}
	if l.behind != nil {
		b.WriteString(l.behind(cell))
	}
	return b.String()
}
