package hook

import "github.com/sluice-storage/sluice/fabric"

// Pending remembers one value for each posted request of an endpoint until its completion comes,
// which it finds by the order rules of the contract, since contexts are the user's and may repeat:
// Sends and Writes complete in the order posted, Reads in any order, and a request that is not
// signalled is over when a later signalled one completes. Not safe for concurrent use; it allocates
// nothing once it has seen the endpoint's depth.
//
// Where it cannot know it guesses, so that a request may be called over too early but never stays:
// of requests with the same operation and context a failure takes the signalled one, or else the
// latest silent one; a silent Read counts as over with the next signalled request although only one
// with a fence proves it, and a silent Write with the next signalled Read, as its place does. A
// completion whose request was called over finds nothing.
type Pending[T any] struct {
	depth   int
	seq     uint64
	ordered fifo[T] // Sends and Writes
	reads   fifo[T]
}

// NewPending is for an endpoint of this send depth (or, for receives, receive depth).
func NewPending[T any](depth int) Pending[T] { return Pending[T]{depth: max(depth, 1)} }

// Len is the number of requests that are not over, as far as is known.
func (p *Pending[T]) Len() int { return p.ordered.len() + p.reads.len() }

// Add remembers a request that has been posted. Providers may free the places of silent requests as
// early as they like; when more are remembered than the queue has places the oldest silent ones
// must be over, and their number is returned.
func (p *Pending[T]) Add(
	op fabric.Op, flags fabric.Flags, context uint64, value T,
) (retired int) {
	p.seq++
	silent := flags&fabric.FlagSignaled == 0 && op != fabric.OpRecv
	p.list(op).push(entry[T]{p.seq, context, op, silent, value})
	if p.Len() < 2*p.depth {
		return 0
	}
	retired = p.ordered.drop(p.Len() - p.depth)
	return retired + p.reads.drop(p.Len()-p.depth)
}

// Done finds the request that a completion belongs to, and forgets it and the silent ones before
// it, whose number is retired and which are shown to silent unless that is nil.
func (p *Pending[T]) Done(c *fabric.Completion, silent func(T)) (value T, retired int, ok bool) {
	if c.Op == fabric.OpRead {
		i := p.reads.findRead(c)
		if i < 0 {
			return value, 0, false
		}
		found := p.reads.at[i]
		retired = p.reads.take(i, silent) + p.ordered.retire(found.seq, silent)
		return found.value, retired, true
	}
	i := p.ordered.findOrdered(c)
	if i < 0 {
		return value, 0, false
	}
	found := p.ordered.at[i]
	retired = p.ordered.cut(i, silent) + p.reads.retire(found.seq, silent)
	return found.value, retired, true
}

// Each shows every request that is not over.
func (p *Pending[T]) Each(show func(T)) {
	for _, f := range []*fifo[T]{&p.ordered, &p.reads} {
		for i := f.head; i < len(f.at); i++ {
			show(f.at[i].value)
		}
	}
}

// Clear forgets everything and tells how much that was.
func (p *Pending[T]) Clear() int {
	n := p.Len()
	p.ordered, p.reads = fifo[T]{}, fifo[T]{}
	return n
}

func (p *Pending[T]) list(op fabric.Op) *fifo[T] {
	if op == fabric.OpRead {
		return &p.reads
	}
	return &p.ordered
}

type entry[T any] struct {
	seq, context uint64
	op           fabric.Op
	silent       bool
	value        T
}

// fifo is a list, oldest first, from head on, out of whose middle little is taken.
type fifo[T any] struct {
	at      []entry[T]
	head    int
	silents int
}

func (f *fifo[T]) len() int { return len(f.at) - f.head }

func (f *fifo[T]) push(e entry[T]) {
	if len(f.at) == cap(f.at) && f.head > 0 {
		n := copy(f.at, f.at[f.head:])
		clear(f.at[n:])
		f.at, f.head = f.at[:n], 0
	}
	f.at = append(f.at, e)
	if e.silent {
		f.silents++
	}
}

func (e *entry[T]) fits(c *fabric.Completion) bool {
	return e.context == c.Context && e.op == c.Op
}

// findOrdered looks for the request of a completion among those that complete in order: the first
// signalled one, or for a failure a silent one before that.
func (f *fifo[T]) findOrdered(c *fabric.Completion) int {
	found := -1
	for i := f.head; i < len(f.at); i++ {
		e := &f.at[i]
		switch fits := e.fits(c); {
		case fits && !e.silent:
			return i
		case fits && c.Err != nil:
			found = i
		case !e.silent && c.Err != nil:
			return found
		}
	}
	return found
}

// findRead looks for the request of a completion among those that complete in any order.
func (f *fifo[T]) findRead(c *fabric.Completion) int {
	found := -1
	for i := f.head; i < len(f.at); i++ {
		if e := &f.at[i]; !e.fits(c) {
			continue
		} else if !e.silent {
			return i
		}
		if found < 0 && c.Err != nil {
			found = i
		}
	}
	return found
}

// cut removes element i and everything before it.
func (f *fifo[T]) cut(i int, silent func(T)) (retired int) {
	for j := f.head; j <= i; j++ {
		if f.at[j].silent {
			f.silents--
		}
		if j < i && silent != nil {
			silent(f.at[j].value)
		}
	}
	retired = i - f.head
	clear(f.at[f.head : i+1])
	if f.head = i + 1; f.head == len(f.at) {
		f.at, f.head = f.at[:0], 0
	}
	return retired
}

// take removes element i, and the silent ones before it.
func (f *fifo[T]) take(i int, silent func(T)) (retired int) {
	if f.at[i].silent {
		f.silents--
	}
	return f.squeeze(i-1, i, len(f.at), silent)
}

// retire removes the silent ones that are older than seq.
func (f *fifo[T]) retire(seq uint64, silent func(T)) int {
	if f.silents == 0 {
		return 0
	}
	i := f.head
	for i < len(f.at) && f.at[i].seq < seq {
		i++
	}
	return f.squeeze(i-1, i-1, len(f.at), silent)
}

// drop removes the oldest silent ones, at most limit.
func (f *fifo[T]) drop(limit int) int {
	if limit <= 0 || f.silents == 0 {
		return 0
	}
	i, seen := f.head, 0
	for ; i < len(f.at) && seen < limit; i++ {
		if f.at[i].silent {
			seen++
		}
	}
	return f.squeeze(i-1, i-1, seen, nil)
}

// squeeze removes up to limit silent elements from element i on downwards, and moves those that
// stay up to slot, which is free or is i itself. The head moves up.
func (f *fifo[T]) squeeze(i, slot, limit int, silent func(T)) (retired int) {
	for ; i >= f.head; i-- {
		if f.at[i].silent && retired < limit {
			retired++
			if silent != nil {
				silent(f.at[i].value)
			}
			continue
		}
		if slot != i {
			f.at[slot] = f.at[i]
		}
		slot--
	}
	f.silents -= retired
	clear(f.at[f.head : slot+1])
	if f.head = slot + 1; f.head == len(f.at) {
		f.at, f.head = f.at[:0], 0
	}
	return retired
}
