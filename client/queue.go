package client

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Queue has many requests under way for one goroutine, which submits them and takes their
// completions, in the order in which they end. Safe for concurrent use: several goroutines may
// share one.
//
//	q := fs.NewQueue(ctx, client.QueueOptions{Depth: 32})
//	err := q.Submit(&client.Request{Op: client.OpRead, File: f, Buf: p, Off: off, Tag: 1})
//	n, err := q.Wait(ctx, done[:], 1)
//
// Reads, writes and transfers of files whose data lies with I/O servers cost no goroutine: Submit
// sends what goes to each server, the answers are handled by whoever is in Wait, and while nobody
// is by one goroutine of the queue. Where a credit is missing, or memory to keep a write in, that
// another request has, it is sent when others of the queue are over. What has to be asked elsewhere
// first (a server that is away, a small file, a length that is not known, a quota) and OpSync and
// OpCall are carried out by goroutines, queueWorkers of each kind at most.
//
// A request is what the call of the same name is, also in its errors, its retries while a server is
// away, and its order: those that are under way together have none, so what must be before another
// one is waited for first; OpSync covers what had completed when it was submitted.
//
// Buffers and Transfer are the request's from Submit until its completion was taken, or Then
// called.
type Queue struct {
	fs   *FS
	opts QueueOptions
	ctx  context.Context
	stop func() bool   // of what ends requests with ctx
	poke chan struct{} // room for one: the queue's goroutine has something to do
	over chan struct{} // closed when it is to end
	gone chan struct{} // closed when it has

	mu       sync.Mutex
	closed   bool
	under    int // requests that have not ended
	done     []Completion
	changed  wait.Queue         // waiters in Wait and Close
	waiting  int                // in Wait
	summoned bool               // somebody was told that ready is not empty, and has not looked yet
	flying   list.List[posting] // that were sent, and were not finished
	ready    []*posting         // of these, those that were answered
	backlog  []*queued          // requests that something is missing for; then some message is flying
	calls    jobs               // by the ordinary way, which may wait for anything
	rests    jobs               // begun before: these wait for servers only
}

// QueueOptions are those of a Queue.
type QueueOptions struct {
	// Depth is how many requests may be under way, or have ended without having been taken.
	// Default 64.
	Depth int

	// Readable, if not nil, is told when there are completions where there were none (true), and when
	// the last was taken (false). It is called with the queue's lock held: it must not block, nor use
	// the queue. Default nil.
	Readable func(bool)

	// Guard, if not nil, runs everything that touches the memory of requests; it returns the error
	// of what it runs, or one in the place of a panic. Default nil: a panic is one.
	Guard func(run func() error) error
}

// queueDepth is the default depth: as many requests as one connection has credits.
const queueDepth = 64

// RequestOp is what a Request does.
type RequestOp uint8

// The requests.
const (
	OpRead         RequestOp = iota + 1 // File.ReadAt
	OpWrite                             // File.WriteAt
	OpWriteDurable                      // File.WriteAtDurable
	OpTransfer                          // File.Transfer
	OpSync                              // File.Sync
	OpCall                              // Call
)

// Request is one request to a Queue.
type Request struct {
	Op       RequestOp
	File     *File     // of all but OpCall
	Buf      []byte    // of OpRead and OpWrite
	Off      int64     // likewise
	Transfer *Transfer // of OpTransfer

	// Call is anything else, which takes its turn with the rest. It must return when its context has
	// ended.
	Call func(ctx context.Context) (int64, error)

	// Tag comes back with the completion.
	Tag any

	// Then, if not nil, is called when the request is over, before the completion can be taken. It
	// must not block, nor use the queue.
	Then func(n int64, err error)
}

// Completion is a request that is over, with what the call would have returned.
type Completion struct {
	Tag any
	Op  RequestOp
	N   int64
	Err error // io.EOF as it is
}

// NewQueue makes a queue. Requests are carried out under ctx: when that ends those under way end as
// canceled, and later ones, too. The queue must be closed, before the FS.
func (fs *FS) NewQueue(ctx context.Context, opts QueueOptions) *Queue {
	if opts.Depth <= 0 {
		opts.Depth = queueDepth
	}
	q := &Queue{fs: fs, opts: opts, ctx: ctx, poke: make(chan struct{}, 1),
		over: make(chan struct{}), gone: make(chan struct{})}
	q.stop = context.AfterFunc(ctx, q.cancel)
	go q.tend()
	return q
}

// Submit begins a request. It does not wait for servers, nor for other requests; what is written
// volatile it may copy. errs.Again: the queue is full, so completions must be taken first.
// errs.Closed, errs.Invalid: it is closed, or the request is none. All other errors are the
// completion's.
func (q *Queue) Submit(r *Request) error {
	if r.Op < OpRead || r.Op > OpCall || (r.Op == OpCall) != (r.Call != nil) ||
		(r.Op == OpCall) != (r.File == nil) || (r.Op == OpTransfer) != (r.Transfer != nil) ||
		r.File != nil && r.File.fs != q.fs {
		return errs.Newf(errs.Invalid, "client.Submit", "", "request %d", r.Op)
	}
	q.mu.Lock()
	err := q.refusesLocked()
	if err == nil {
		q.under++
	}
	q.mu.Unlock()
	if err == nil {
		q.begin(&queued{Request: *r})
	}
	return err
}

func (q *Queue) refusesLocked() error {
	switch {
	case q.closed:
		return errs.New(errs.Closed, "client.Queue", "", nil)
	case q.under+len(q.done) >= q.opts.Depth:
		return errs.Newf(errs.Again, "client.Submit", "", "%d requests are under way, or were not "+
			"taken", q.opts.Depth)
	}
	return nil
}

// Free is how many requests may be submitted before completions must be taken.
func (q *Queue) Free() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.opts.Depth - q.under - len(q.done)
}

// Poll takes completions that are there.
func (q *Queue) Poll(to []Completion) int {
	n, _ := q.Wait(q.ctx, to, 0)
	return n
}

// Wait takes completions, as many as to has room for, when there are at least some of them, or
// nothing is under way any more. If ctx ends before, it returns those that are there, and why; if
// the queue is closed, errs.Closed.
func (q *Queue) Wait(ctx context.Context, to []Completion, least int) (int, error) {
	least = min(least, len(to))
	q.work()
	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	for err == nil && !q.closed && len(q.done) < least && q.under > 0 {
		if len(q.ready) > 0 {
			q.mu.Unlock()
			q.work()
			q.mu.Lock()
			continue
		}
		q.waiting++
		err = errs.Wrap("client.Queue", "", q.changed.Wait(ctx, &q.mu))
		q.waiting--
	}
	if len(q.ready) > 0 { // it was this goroutine that was told
		q.pokeLocked()
	}
	if q.closed {
		return 0, errs.New(errs.Closed, "client.Queue", "", nil)
	}
	n := copy(to, q.done)
	rest := copy(q.done, q.done[n:])
	clear(q.done[rest:])
	if q.done = q.done[:rest]; n > 0 && rest == 0 && q.opts.Readable != nil {
		q.opts.Readable(false)
	}
	if len(q.done) > 0 {
		q.changed.WakeAll() // others who wait may be content with less
	}
	return n, err
}

// Close refuses further requests, waits for those that are under way, and drops what was not taken.
// Who does not want to wait ends the context before. A second Close waits, too.
func (q *Queue) Close() {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	q.changed.WakeAll()
	for q.under+q.calls.workers+q.rests.workers > 0 {
		_ = q.changed.Wait(context.Background(), &q.mu) // which does not end
	}
	if len(q.done) > 0 && q.opts.Readable != nil {
		q.opts.Readable(false)
	}
	q.done = nil
	q.mu.Unlock()
	if first {
		q.stop()
		close(q.over)
	}
	<-q.gone
}

// end is the end of a request.
func (q *Queue) end(a *queued, n int64, err error) {
	if a.Then != nil {
		a.Then(n, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.under--
	q.done = append(q.done, Completion{Tag: a.Tag, Op: a.Op, N: n, Err: err})
	if len(q.done) == 1 && q.opts.Readable != nil && !q.closed {
		q.opts.Readable(true)
	}
	q.changed.WakeAll()
}

// guarded runs what touches the memory of requests.
func (q *Queue) guarded(run func() error) error {
	if q.opts.Guard == nil {
		return run()
	}
	return q.opts.Guard(run)
}

// tend is the queue's goroutine.
func (q *Queue) tend() {
	defer close(q.gone)
	for {
		select {
		case <-q.poke:
			q.work()
		case <-q.over:
			return
		}
	}
}

func (q *Queue) pokeLocked() {
	select {
	case q.poke <- struct{}{}:
	default:
	}
}

// work finishes messages that were answered, until there are none.
func (q *Queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) > 0 {
		m := q.ready[0]
		rest := copy(q.ready, q.ready[1:])
		q.ready[rest] = nil
		q.ready = q.ready[:rest]
		q.mu.Unlock()
		q.finish(m)
		q.mu.Lock()
	}
	q.summoned = false
}

// answered notes that a message can be finished, and tells somebody. It is called with locks of the
// transport held.
func (q *Queue) answered(m *posting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m.answered = true
	q.readyLocked(m)
}

func (q *Queue) readyLocked(m *posting) {
	if !m.flying.In() || m.taken { // it is just being sent, or was finished
		return
	}
	m.taken = true
	q.ready = append(q.ready, m)
	if q.summoned {
		return
	}
	q.summoned = true
	if q.waiting > 0 {
		q.changed.WakeAll()
	} else {
		q.pokeLocked()
	}
}

// cancel ends what is under way: the context has ended. What is carried out by goroutines ends by
// itself.
func (q *Queue) cancel() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for m := q.flying.First(); m != nil; m = m.flying.Next() {
		q.readyLocked(m)
	}
}
