package iodtest

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// never is a time that does not come: the end of a request that is not known to have ended.
const never = int64(math.MaxInt64)

// Ledger is one object as its clients know it. The object is a row of cells of equal size, and
// requests cover whole cells. Every write has a number of its own, which is in every cell that it
// wrote, so that a read tells whose bytes it found, cell by cell. They must be those of a write
// that may be the last one: it began before the read ended, and no other write, and no read of
// another write's bytes, lies entirely between it and the read. That is the order of the clock: a
// write lies over all that was acknowledged before it began, also over what a crash has lost and
// clients repeat behind it, however many crashes later. Only the writes that one crash has lost
// have no order among each other, but for those of one client. A cell should not cross a border of
// 4096 bytes: no server promises that more than such a block is seen as a whole.
//
// A crash takes all that back which was not stable: see Crashed. Times are numbers of steps, so
// that a verdict does not depend on clocks. Safe for concurrent use.
type Ledger struct {
	cellBytes int
	behind    func(cell int) string // what is known of a cell besides, for people; nil: nothing

	mu      sync.Mutex
	now     int64
	numbers uint64
	cells   [][]*entry
	forgot  [][]*entry       // the last ones of each cell that were forgotten, for people
	flights map[*Op]struct{} // requests that have begun and not ended
	crashed int64            // when the last crash was over
	changed bool             // a request that changes something was under way since then
	lives   []past           // that are over

	// What clients keep: acknowledged, not stable. Also what others have replaced for good, which its
	// client cannot know, and sends again.
	kept map[*write]struct{}
	late bool // a server may refuse, and has to tell, what a crash made clients repeat
}

// past is a server's life: when the crash was over that ended it, and whether a request that
// changes something was under way in it.
type past struct {
	at      int64
	changed bool
}

// write is one request that changes cells. The original times are those that its client saw; the
// entries' are what counts since the last crash.
type write struct {
	number   uint64
	client   int
	zero     bool // leaves zeroes: punch, truncate, remove
	began    int64
	ended    int64
	stable   bool  // survives crashes
	failed   bool  // its client was not told that it succeeded, and does not repeat it
	resent   bool  // its client repeats it, or has repeated it, since a crash
	expected bool  // its client has not shown yet that it has
	lost     int64 // when the first crash was over that has taken it if it could; 0: none has
	early    bool  // an earlier one may have, in the middle of the request
	away     bool  // its client has not shown up in all of the life that ends
	owed     bool  // its client has not shown yet that it has sent it again, replaced or not
	overdue  bool  // nor in all of the life that ends
	pieces   bool  // it is carried out piece by piece, see Pieces
	cut      bool  // it may have come too late, see Truncate and Crashed
	unsaid   bool  // and its client may not be told, or was
	first    int   // of its cells
	about    string
}

func (w *write) String() string {
	kind := "write"
	if w.zero {
		kind = "zeroing"
	}
	return fmt.Sprintf("%s %d of client %d (steps %d to %s, lost %d%s%s)", kind, w.number, w.client,
		w.began, step(w.ended), w.lost, w.marks(), w.about)
}

// marks are what is true of the write, for people.
func (w *write) marks() (list string) {
	for _, m := range []struct {
		is   bool
		name string
	}{
		{w.stable, "stable"}, {w.failed, "failed"}, {w.resent, "resent"}, {w.expected, "expected"},
		{w.cut, "cut"}, {w.unsaid, "unsaid"},
	} {
		if m.is {
			list += ", " + m.name
		}
	}
	return list
}

func step(at int64) string {
	if at == never {
		return "?"
	}
	return fmt.Sprint(at)
}

// entry is a write in one cell. Each cell has its own view: a write of many cells is not one
// moment.
type entry struct {
	*write
	known   int64    // it had taken effect by then
	dead    int64    // its bytes were replaced by then; never: they may be there
	gone    bool     // and no crash brings them back
	by      *Op      // the request whose end told that
	killers []*write // each of them came later
}

// NewLedger makes the ledger of an object that was never written.
func NewLedger(cells, cellBytes int) *Ledger {
	l := &Ledger{cellBytes: cellBytes, cells: make([][]*entry, cells), forgot: make([][]*entry, cells),
		flights: map[*Op]struct{}{}, now: 1, kept: map[*write]struct{}{}}
	for i := range l.cells {
		hole := &write{zero: true, stable: true}
		l.cells[i] = []*entry{{write: hole, dead: never}}
	}
	return l
}

// Cells is how many there are, CellBytes how long each is.
func (l *Ledger) Cells() int { return len(l.cells) }

// CellBytes is the length of a cell.
func (l *Ledger) CellBytes() int { return l.cellBytes }

func (l *Ledger) tickLocked() int64 {
	l.now++
	return l.now
}

// Op is a request under way.
type Op struct {
	l      *Ledger
	client int
	began  int64
	cells  []int
	write  *write // nil: it changes nothing
	cuts   bool   // it truncates
	joint  bool   // it is a sync, and so is another request of its client at the same time
}

func (l *Ledger) beginLocked(client int, cells []int) *Op {
	op := &Op{l: l, client: client, began: l.tickLocked(), cells: slices.Clone(cells)}
	l.flights[op] = struct{}{}
	return op
}

// Ask begins a request that changes nothing: a read of cells, or a sync, which has none.
func (l *Ledger) Ask(client int, cells []int) *Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	op := l.beginLocked(client, cells)
	for other := range l.flights {
		if other != op && op.syncs() && other.syncs() && other.client == client {
			op.joint, other.joint = true, true
		}
	}
	return op
}

func (op *Op) syncs() bool { return op.write == nil && len(op.cells) == 0 }

// Write begins a write of cells; Fill makes its bytes. Zero begins one that leaves zeroes.
func (l *Ledger) Write(client int, cells []int) *Op { return l.change(client, cells, false) }

// Zero begins a request that leaves zeroes.
func (l *Ledger) Zero(client int, cells []int) *Op { return l.change(client, cells, true) }

func (l *Ledger) change(client int, cells []int, zero bool) *Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	op := l.beginLocked(client, cells)
	l.changed = true
	l.numbers++
	op.write = &write{number: l.numbers, client: client, zero: zero, began: op.began, ended: never}
	if len(cells) > 0 {
		op.write.first = slices.Min(cells)
	}
	for _, c := range op.cells {
		l.cells[c] = append(l.cells[c], &entry{write: op.write, known: never, dead: never})
	}
	return op
}

// Pieces tells that the server carries the write out piece by piece and notes its number with the
// last one: when a crash comes in between, all of it is repeated. So what is seen of it before it
// has ended, or before it was repeated, is no proof that it does not come again.
func (op *Op) Pieces() {
	op.l.mu.Lock()
	defer op.l.mu.Unlock()
	op.write.pieces = true
}

// About adds to what people are told of the write, should it come to that.
func (op *Op) About(format string, args ...any) {
	op.l.mu.Lock()
	defer op.l.mu.Unlock()
	op.write.about = ", " + fmt.Sprintf(format, args...)
}

// Written ends a write that succeeded. stable: it survives crashes from now on.
func (op *Op) Written(stable bool) {
	l := op.l
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.endLocked(op)
	w := op.write
	w.ended = end
	crossed := op.began <= l.crashed
	if !stable {
		l.kept[w] = struct{}{}
	}
	if stable {
		l.stableLocked(w)
	} else if crossed { // it may have been lost, and is repeated then
		w.resent, w.expected = true, true
		missed, changed := l.missedBy(op)
		w.early, w.away = missed, missed
		w.owed, w.overdue = true, missed
		if changed {
			w.cut, l.late = true, true
		}
		l.cutLocked(w)
	}
	l.returnedLocked(op, end)
	if !w.expected {
		l.settledLocked(w, op, end)
	}
	l.tidyLocked(op.cells)
}

// missedBy tells whether a client that was answered now may have been answered by a server that is
// dead since, and so have missed the present one's life so far; and whether it may have missed a
// whole life in which the object was changed.
func (l *Ledger) missedBy(op *Op) (missed, changed bool) {
	for _, x := range l.lives {
		if x.at > op.began {
			changed = changed || missed && x.changed
			missed = true
		}
	}
	return missed, changed
}

// settledLocked notes that w had taken effect by end.
func (l *Ledger) settledLocked(w *write, op *Op, end int64) {
	for _, c := range op.cells {
		for _, e := range l.cells[c] {
			if e.write == w {
				e.known = min(e.known, end)
			}
		}
		l.killLocked(c, w, op, end)
	}
}

// killLocked notes that the bytes of w were in the cell at some time within op: what had taken
// effect before op began is replaced, and so is what had been acknowledged before w began, if w
// began in this life of the server, or in a later one than the other was lost with: whether that
// was repeated by now or not.
func (l *Ledger) killLocked(cell int, w *write, op *Op, end int64) {
	for _, e := range l.cells[cell] {
		if e.write != w && (e.known < op.began || e.ended < w.began && w.began > l.crashed ||
			e.lostBefore(w)) {
			e.killedBy(w, op, end)
		}
	}
}

// lostBefore tells whether w was acknowledged, and lost, before the other one began.
func (w *write) lostBefore(other *write) bool {
	return w.ended < other.began && w.lost != 0 && w.lost < other.began
}

func (e *entry) killedBy(w *write, op *Op, end int64) {
	if e.dead > end {
		e.dead, e.by = end, op
	}
	if !slices.Contains(e.killers, w) {
		e.killers = append(e.killers, w)
	}
	e.settle()
}

// settle finds out whether no crash brings the bytes back that were replaced, nor a client that
// comes back after the next one.
func (e *entry) settle() {
	if e.dead == never {
		return
	}
	for _, w := range e.killers {
		e.gone = e.gone || w.stable
	}
}

// Failed ends a request that was not answered with success: a write may have happened, or may
// still.
func (op *Op) Failed() {
	l := op.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(op)
	if op.write != nil {
		op.write.failed = true
	}
}

// Synced ends a sync that succeeded: what had ended before it began is stable now. Where a crash
// came in between, that holds for the client's own writes only.
func (op *Op) Synced() {
	l := op.l
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.endLocked(op)
	crossed := op.began <= l.crashed
	l.returnedLocked(op, end)
	l.inTimeLocked(op)
	var stable []*write
	for c, cell := range l.cells {
		for _, e := range cell {
			mine := e.client == op.client
			if e.stable || e.cut || e.failed || e.ended >= op.began ||
				!mine && (crossed || e.known >= op.began) {
				continue
			}
			if e.expected { // repeated before the sync, or synced before the crash
				l.cameBackLocked(c, e, op, end)
			}
			stable = append(stable, e.write)
		}
	}
	for _, w := range stable {
		l.stableLocked(w)
	}
	for w := range l.kept {
		if w.client == op.client && w.ended < op.began {
			delete(l.kept, w)
		}
	}
	all := make([]int, len(l.cells))
	for i := range all {
		all[i] = i
	}
	l.tidyLocked(all)
}

// stableLocked notes that w survives crashes, and so does what it has replaced.
func (l *Ledger) stableLocked(w *write) {
	w.stable, w.expected = true, false
	delete(l.kept, w)
	for _, cell := range l.cells {
		for _, e := range cell {
			e.settle()
		}
	}
}

func (l *Ledger) endLocked(op *Op) int64 {
	delete(l.flights, op)
	return l.tickLocked()
}

// forgotMax is how many forgotten entries of a cell a verdict tells of.
const forgotMax = 8

// tidyLocked forgets what no request can see any more.
func (l *Ledger) tidyLocked(cells []int) {
	oldest := l.now
	for op := range l.flights {
		oldest = min(oldest, op.began)
	}
	for _, c := range cells {
		l.cells[c] = slices.DeleteFunc(l.cells[c], func(e *entry) bool {
			if e.gone && e.dead < oldest {
				l.forgot[c] = append(l.forgot[c][max(0, len(l.forgot[c])-forgotMax+1):], e)
				return true
			}
			return false
		})
	}
}
