package exio

import (
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mem"
)

// Options bound a connection. Both ends must have the same Eager and Requests. The zero value is
// good.
type Options struct {
	// EagerBytes is the longest message that is sent eagerly. Default 16 KiB less the header, at most
	// 64 KiB.
	EagerBytes int

	// Eager is how many eager messages may wait unread. Default 32, at most 1024.
	Eager int

	// Requests is how many long messages may be announced, or under way, in each direction. Default
	// 16, at most 256.
	Requests int

	// Queue is how many writes may wait besides, and how many reads. Default 1024.
	Queue int
}

func (o Options) withDefaults() Options {
	if o.EagerBytes == 0 {
		o.EagerBytes = 16<<10 - headerBytes
	}
	if o.Eager == 0 {
		o.Eager = 32
	}
	if o.Requests == 0 {
		o.Requests = 16
	}
	if o.Queue == 0 {
		o.Queue = 1024
	}
	return o
}

func (o Options) validate() error {
	if o.EagerBytes < 1 || o.EagerBytes > 64<<10 || o.Eager < 2 || o.Eager > 1024 ||
		o.Requests < 1 || o.Requests > 256 || o.Queue < 1 {
		return errs.Newf(errs.Invalid, "exio.Options", "", "%+v", o)
	}
	return nil
}

// creditMessages is how many messages can be under way that only return credits: one is sent when
// half of all eager messages have been read, and the next needs as many new ones.
const creditMessages = 4

// receives is how many messages one end may be sent that it has not looked at yet, so many receives
// it keeps posted: eager ones; for each long message that is written to it, a request, and the
// notice of the one before it; an acceptance or the like for each that it writes itself; credits.
func (o Options) receives() int { return o.Eager + 3*o.Requests + creditMessages }

// carrier is what a driver does for the protocol. It is called with the engine's lock, must not
// wait, and reports by the engine's methods without it. An error ends the connection.
type carrier interface {
	// sendEager sends a message; the engine is told by wrote.
	sendEager(h header, t *task) error

	// sendRequest announces a message.
	sendRequest(h header, t *task) error

	// accept has the message of an arrival brought to the pieces of a read, of which want are to
	// be filled; the engine is told by filled.
	accept(t *task, a *arrival, want [][]byte) error

	// sendWord sends a message without a body, or with a failure.
	sendWord(h header, kind errs.Kind) error

	// ended returns what is to be done, without the lock, before the end of a task is told: taking
	// back what the peer was granted for it. nil: nothing.
	ended(t *task) func()
}

// engine is the protocol of one end of a connection, see the package's comment. It matches messages
// and reads, counts credits, and keeps what is pending. It does no I/O.
type engine struct {
	opts Options
	out  carrier
	name string
	stop func() // has the driver end a connection that has failed; with the lock, must not wait

	mu      sync.Mutex
	dead    error // why nothing can be sent any more
	deaf    bool  // nothing more comes that is taken: what waits unread is the last
	match   matcher
	queue   []*task // writes that are to be sent, in order
	credits int     // eager messages that may be sent
	owed    int     // eager messages that were read and not told
	writes  []*task // announced, by id; nil: free
	pending int     // of writes
	reads   []*task // accepted, by id
	over    []*task
	later   []func() // to be done without the lock
}

func newEngine(opts Options, out carrier, stop func()) *engine {
	return &engine{
		opts: opts, out: out, stop: stop, credits: opts.Eager,
		writes: make([]*task, opts.Requests), reads: make([]*task, opts.Requests),
	}
}

// leave unlocks, does what is to be done without the lock, and tells who is to be told.
func (e *engine) leave() {
	over, later := e.over, e.later
	e.over, e.later = nil, nil
	e.mu.Unlock()
	for _, do := range later {
		do()
	}
	for _, t := range over {
		t.op.Done(t.event)
	}
}

func (e *engine) endLocked(t *task, err error) {
	t.event.Op, t.event.Err = t.op, err
	if err != nil {
		t.event.Len = 0
	}
	if do := e.out.ended(t); do != nil {
		e.later = append(e.later, do)
	}
	e.over = append(e.over, t)
}

// read is Handle.Read.
func (e *engine) read(op *Op) error {
	if err := op.validate("exio.Read", false); err != nil {
		return err
	}
	t := &task{op: op, bytes: bytesOf(op.Pieces)}
	e.mu.Lock()
	defer e.leave()
	if a := e.match.take(t); a != nil {
		e.brokenLocked(e.pairLocked(t, a))
		return nil
	}
	if e.deaf {
		return e.dead
	}
	if len(e.match.reads) >= e.opts.Queue {
		return errs.Newf(errs.Again, "exio.Read", e.name, "%d reads wait", e.opts.Queue)
	}
	e.match.post(t)
	return nil
}

// write is Handle.Write.
func (e *engine) write(op *Op) error {
	if err := op.validate("exio.Write", true); err != nil {
		return err
	}
	t := &task{op: op, bytes: bytesOf(op.Pieces)}
	t.event.Tag, t.event.Note = op.Tag, op.Note
	e.mu.Lock()
	defer e.leave()
	if e.dead != nil {
		return e.dead
	}
	if len(e.queue) >= e.opts.Queue {
		return errs.Newf(errs.Again, "exio.Write", e.name, "%d writes wait", e.opts.Queue)
	}
	e.queue = append(e.queue, t)
	e.brokenLocked(e.pumpLocked())
	return nil
}

// pumpLocked sends what may be sent, in the order of the writes.
func (e *engine) pumpLocked() error {
	if e.dead != nil {
		return nil
	}
	for len(e.queue) > 0 {
		t := e.queue[0]
		if t.bytes > e.opts.EagerBytes || e.credits == 0 {
			if e.pending == e.opts.Requests {
				return nil
			}
		}
		e.queue = e.queue[1:]
		h := header{note: t.op.Note, tag: t.op.Tag, length: uint64(t.bytes)}
		var err error
		switch {
		case t.bytes <= e.opts.EagerBytes && e.credits > 0:
			e.credits--
			t.event.How, t.event.Len, t.moving = Eager, t.bytes, true
			h.kind = kindEager
			err = e.out.sendEager(e.stampLocked(h), t)
		default:
			t.event.How, t.event.Len = Rendezvous, t.bytes
			h.kind, h.id = kindRequest, e.numberLocked(e.writes, t)
			e.pending++
			err = e.out.sendRequest(e.stampLocked(h), t)
		}
		if err != nil {
			return err
		}
	}
	e.queue = nil
	return nil
}

// numberLocked puts a task into a table with room for it.
func (e *engine) numberLocked(table []*task, t *task) uint32 {
	for i := range table {
		if table[i] == nil {
			table[i], t.id = t, uint32(i)
			return t.id
		}
	}
	panic("broken invariant: exio: a table without room")
}

// stampLocked puts credits that are owed onto a message.
func (e *engine) stampLocked(h header) header {
	h.credits = uint16(e.owed)
	e.owed = 0
	return h
}

// pairLocked brings a message to the read that it is for.
func (e *engine) pairLocked(t *task, a *arrival) error {
	t.event.Tag, t.event.Note, t.event.Len = a.tag, a.note, a.length
	t.event.How = Rendezvous
	tooLong := a.length > t.bytes
	if tooLong {
		e.endLocked(t, errs.Newf(errs.TooBig, "exio.Read", e.name,
			"a message of %d bytes for a read of %d", a.length, t.bytes))
	}
	switch {
	case a.eager && !tooLong:
		rest := a.payload
		for _, p := range t.op.Pieces {
			rest = rest[mem.CopyFor(mem.CopySlot, p, rest):]
		}
		t.event.How = Eager
		e.endLocked(t, nil)
		return e.releaseLocked(a)
	case a.eager:
		return e.releaseLocked(a)
	case tooLong:
		return e.out.sendWord(e.stampLocked(header{kind: kindRefuse, id: a.id}), errs.TooBig)
	}
	t.sent = a.length
	e.numberLocked(e.reads, t)
	return e.out.accept(t, a, head(t.op.Pieces, a.length))
}

// releaseLocked gives the memory of an eager message back, and its credit.
func (e *engine) releaseLocked(a *arrival) error {
	a.release()
	if e.owed++; e.owed < e.opts.Eager/2 || e.dead != nil {
		return nil // it goes with the next message, if there is one
	}
	return e.out.sendWord(e.stampLocked(header{kind: kindCredit}), errs.OK)
}

// arrived takes a message that has come, or was announced. What was announced does not come when
// the connection has ended, and what was sent behind it must not be taken for it.
func (e *engine) arrived(a *arrival) error {
	if e.dead != nil && !a.eager {
		e.deaf = true
	}
	if e.deaf {
		return nil
	}
	eager, announced := 0, 0
	for _, w := range e.match.waiting {
		if w.eager {
			eager++
		} else {
			announced++
		}
	}
	for _, t := range e.reads {
		if t != nil {
			announced++
		}
	}
	if a.eager && eager >= e.opts.Eager || !a.eager && announced >= e.opts.Requests {
		return malformed("more messages than there are credits")
	}
	if t := e.match.arrive(a); t != nil {
		return e.pairLocked(t, a)
	}
	return nil
}

// credit takes credits that the peer returned.
func (e *engine) creditLocked(n uint16) error {
	if e.credits += int(n); e.credits > e.opts.Eager {
		return malformed("more credits than there are messages")
	}
	if n > 0 {
		return e.pumpLocked()
	}
	return nil
}

// lookLocked finds what is pending under an id that the peer has sent.
func (e *engine) lookLocked(table []*task, id uint32) (*task, error) {
	if uint64(id) >= uint64(len(table)) || table[id] == nil {
		return nil, malformed("it is about a message that there is not")
	}
	return table[id], nil
}

// wroteLocked ends a write: an eager one that has left, or one that was announced. err of the
// message, not of the connection.
func (e *engine) wroteLocked(t *task, err error) error {
	t.moving = false
	if e.writes[t.id] == t {
		e.writes[t.id] = nil
		e.pending--
	}
	e.endLocked(t, err)
	return e.pumpLocked()
}

// filledLocked ends a read whose message was announced.
func (e *engine) filledLocked(t *task, err error) {
	t.moving = false
	if e.reads[t.id] == t {
		e.reads[t.id] = nil
	}
	e.endLocked(t, err)
}

// brokenLocked ends the connection if err is one: the driver closes it, in a moment. Where the peer
// has ended it, what came before is still read: it may be why.
func (e *engine) brokenLocked(err error) {
	if err == nil || e.dead != nil {
		return
	}
	e.dead = errs.Wrap("exio", e.name, err)
	if errs.KindOf(e.dead) != errs.Disconnected {
		e.muteLocked()
	}
	announced := func(a *arrival) bool { return !a.eager }
	if i := slices.IndexFunc(e.match.waiting, announced); i >= 0 {
		e.match.waiting, e.deaf = e.match.waiting[:i], true
	}
	e.stop()
}

// muteLocked forgets what waits unread, and takes nothing more.
func (e *engine) muteLocked() { e.match.waiting, e.deaf = nil, true }

// close is the first half of Handle.Close: the driver ends the connection.
func (e *engine) close() {
	e.mu.Lock()
	defer e.leave()
	e.brokenLocked(errs.New(errs.Closed, "exio.Close", "", nil))
	e.muteLocked()
}

// fail ends what is pending when the connection has ended: nothing touches its memory any more, and
// nothing more comes. What waits unread goes on waiting, in memory of its own.
func (e *engine) fail() {
	e.mu.Lock()
	defer e.leave()
	e.deaf = true
	for _, t := range e.queue {
		e.endLocked(t, e.dead)
	}
	for _, t := range e.match.reads {
		e.endLocked(t, e.dead)
	}
	for _, a := range e.match.waiting {
		kept := make([]byte, a.length)
		mem.CopyFor(mem.CopySlot, kept, a.payload)
		a.payload, a.release = kept, func() {}
	}
	e.queue, e.match.reads = nil, nil
	for _, table := range [][]*task{e.writes, e.reads} {
		for i, t := range table {
			if t != nil {
				table[i] = nil
				e.endLocked(t, e.dead)
			}
		}
	}
}

// broken is why the connection has ended, or nil.
func (e *engine) broken() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dead
}
