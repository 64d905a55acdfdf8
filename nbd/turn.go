package nbd

import (
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Who reads a request runs it: its data is in his processor's cache, and nobody has to be woken up
// before it begins. Reading is a turn that one goroutine of the connection has at a time. Before he
// runs what may take a while he passes the turn on, so that others read meanwhile, except
//
//   - what has been quick lately, and
//   - what the client waits for anyhow, because it sends nothing until it has this answer.
//
// Then he keeps it, and saves waking somebody. Who keeps it for too long has misjudged the export,
// or the client: the server's guardian takes the turn from him, and gives it to somebody else.
const (
	// quickTime is what takes less time than waking somebody, or little more.
	quickTime = 100 * time.Microsecond

	// quickRuns of a kind in a row make it quick.
	quickRuns = 4

	// deepFor is for how many requests a client that had several under way is taken to do so again.
	deepFor = 32

	// guardInterval is how often kept turns are looked at. Who is found twice in the same run loses
	// his.
	guardInterval = time.Millisecond

	// guardRounds without anybody who keeps his turn end the guarding.
	guardRounds = 100
)

// kind is a sort of requests that take about the same time.
type kind int

const (
	otherKind kind = iota
	smallWrites
	middleWrites
	flushes
	streams
	kindCount
)

func (c *conn) kindOf(req *request) kind {
	switch {
	case c.batches(req): // how many are under way is counted
	case req.cmd == cmdFlush:
		return flushes
	case req.cmd == cmdWrite && req.flags&cmdFlagFUA == 0 && req.length <= smallBytes:
		return smallWrites
	case req.cmd == cmdWrite && req.flags&cmdFlagFUA == 0 && req.length <= inlineBytes:
		return middleWrites
	case req.cmd == cmdRead && req.length <= inlineBytes && c.streams(&req.header):
		return streams
	}
	return otherKind
}

// turns is who reads a connection. What is not atomic belongs to the one whose turn it is.
type turns struct {
	free chan struct{} // holds the turn while nobody has it
	kept atomic.Uint64 // the run that keeps the turn; 0: none does
	runs uint64        // runs that have kept it
	seen uint64        // the guardian's: the run that he found last time
	deep int           // requests left for which the client is taken to have several under way

	quick [kindCount]atomic.Int32 // runs in a row that were quick
}

// serveRequests reads and runs requests until the client disconnects (nil) or breaks the protocol.
func (c *conn) serveRequests() error {
	c.mu.Lock()
	c.started = 1
	c.mu.Unlock()
	c.workers.Add(1)
	c.member(nil, true)
	c.workers.Wait()
	return c.readErr
}

// member is the life of one of the goroutines that read and run requests, one after the other: it
// has a request to run, or the turn to read, or waits for one of them.
func (c *conn) member(req *request, reading bool) {
	defer c.workers.Done()
	defer func() {
		if p := recover(); p != nil {
			c.broken.Store(true)
			c.panicked(p, debug.Stack())
			if reading {
				c.endReading(nil)
			}
		}
	}()
	for {
		if req == nil && !reading {
			if req, reading = c.await(); req == nil && !reading {
				return
			}
		}
		if reading {
			next, err := c.readWork()
			if next == nil {
				reading = false
				c.endReading(err)
				return
			}
			c.runInTurn(next, &reading)
			continue
		}
		c.perform(req)
		req = nil
	}
}

// endReading is for who has the turn, which nobody has from then on.
func (c *conn) endReading(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readErr = err
	c.ended = true
	close(c.work)
}

// await waits for the turn, or for a request. Without either the goroutine is not needed.
func (c *conn) await() (req *request, reading bool) {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
	select {
	case <-c.turns.free:
		reading = true
	case req = <-c.work:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle--
	if reading {
		return nil, true
	}
	if req != nil {
		c.readerLocked() // somebody may count on this one to read
		return req, false
	}
	select {
	case <-c.turns.free: // and here, too
		return nil, true
	default:
		c.started--
		return nil, false
	}
}

// passTurn lets somebody else read.
func (c *conn) passTurn() {
	c.turns.free <- struct{}{}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readerLocked()
}

// readerLocked sees to it that somebody takes a turn that is free: who waits, a new one, or whoever
// is through first.
func (c *conn) readerLocked() {
	if len(c.turns.free) > 0 && c.idle == 0 {
		c.growLocked(nil)
	}
}

// growLocked starts another goroutine, if there may be more: one for each request, and one to read.
func (c *conn) growLocked(req *request) bool {
	if c.started > c.srv.cfg.ConnRequests {
		return false
	}
	c.started++
	c.workers.Add(1)
	go c.member(req, false)
	return true
}

// hand gives a request away, for who can neither run it nor go on before it is on its way.
func (c *conn) hand(req *request) {
	select {
	case c.work <- req:
		return
	default:
	}
	c.mu.Lock()
	grown := c.growLocked(req)
	c.mu.Unlock()
	if !grown {
		c.work <- req
	}
}

// retireIdle lets goroutines go that have nothing to do at this moment, all but one.
func (c *conn) retireIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for spare := c.idle - 1; spare > 0 && !c.ended; spare-- {
		select {
		case c.work <- nil:
		default:
			return
		}
	}
}

// runInTurn runs what was read. mine tells at every moment whether it is this goroutine's turn.
func (c *conn) runInTurn(req *request, mine *bool) {
	kind := c.kindOf(req)
	quick := c.turns.quick[kind].Load() >= quickRuns && kind != otherKind
	if !c.alone(req) && !quick {
		c.sendReplies()
		*mine = false
		c.passTurn()
		c.perform(req)
		return
	}
	t := &c.turns
	t.runs++
	run := t.runs
	*mine = false // the guardian's, as it were; also after a panic
	t.kept.Store(run)
	c.srv.guarded()
	if !quick {
		c.perform(req)
		*mine = t.kept.CompareAndSwap(run, 0)
		return
	}
	c.runSlotted(req)
	*mine = t.kept.CompareAndSwap(run, 0)
	switch {
	case !*mine:
		t.quick[kind].Store(0)
		c.finish(req)
	case req.answered:
		c.out.abandon(req)
	default:
		c.hold(req) // it leaves with those of the requests that are there already
	}
}

// alone tells whether the client waits for this request before it sends another, as far as can be
// seen.
func (c *conn) alone(req *request) bool {
	t := &c.turns
	if c.in.buffered() > 0 || c.under > 1 || len(req.mates) > 0 {
		t.deep = deepFor
		return false
	}
	if t.deep > 0 {
		t.deep--
		return false
	}
	return true
}

// perform runs a request, or a batch, and sends the replies.
func (c *conn) perform(req *request) {
	if c.batches(req) {
		c.runBatches(req)
		return
	}
	kind := c.kindOf(req)
	if kind == otherKind {
		c.runSlotted(req)
		c.finish(req)
		return
	}
	begun := time.Now()
	c.runSlotted(req)
	if q := &c.turns.quick[kind]; time.Since(begun) > quickTime {
		q.Store(0)
	} else if q.Load() < quickRuns {
		q.Add(1)
	}
	c.finish(req)
}

// finish sends the reply of a request that has run.
func (c *conn) finish(req *request) {
	if req.answered {
		c.out.abandon(req)
		return
	}
	c.out.send(req)
}

// readWork reads requests, and runs those that take no time, until there is one that may: the
// first of a batch, or one by itself. nil: the client disconnects, or breaks the protocol.
func (c *conn) readWork() (*request, error) {
	bytes, decode := requestBytes, decodeRequest
	if c.extended {
		bytes, decode = extRequestBytes, decodeExtRequest
	}
	for {
		if c.in.buffered() < bytes || c.held > holdBytes {
			// Nothing more to gather replies from: send what there is before waiting.
			c.sendReplies()
			if batch := c.takeBatch(); batch != nil {
				return batch, nil
			}
		}
		p, err := c.in.next(bytes)
		if err != nil {
			c.handBatches()
			if err == io.EOF {
				return nil, nil // not polite, but common
			}
			return nil, errs.Wrap("nbd.request", "header", err)
		}
		h, ok := decode(p)
		if !ok {
			c.handBatches()
			return nil, errs.New(errs.Protocol, "nbd.request", "magic", nil)
		}
		if h.cmd == cmdDisc {
			c.handBatches()
			return nil, nil
		}
		work, err := c.begin(h)
		if work != nil {
			return work, nil
		}
		if err != nil {
			c.handBatches()
			return nil, err
		}
	}
}

// begin makes a request of a header, and returns what is to be run now, if there is anything.
func (c *conn) begin(h header) (*request, error) {
	if h.cmd < cmdCount {
		c.count.commands[h.cmd].Add(1)
	}
	if c.under = c.out.tryEnter(); c.under == 0 {
		c.sendHeld()
		c.under = c.out.enter()
	}
	req := c.srv.reqs.Get().(*request)
	req.header = h
	c.sample(req)
	work, err := c.start(req)
	if err != nil {
		c.out.abandon(req)
	}
	return work, err
}

// guarded sees to it that somebody looks after who keeps his turn.
func (s *Server) guarded() {
	if s.guarding.Load() || !s.guarding.CompareAndSwap(false, true) {
		return
	}
	select {
	case s.keeps <- struct{}{}:
	default:
	}
}

// guard looks after kept turns for as long as there are any; false: the server ends.
func (s *Server) guard(second *time.Ticker) bool {
	fine := time.NewTicker(guardInterval)
	defer fine.Stop()
	for quiet := 0; ; {
		select {
		case <-fine.C:
			if quiet++; s.guardOnce() {
				quiet = 0
			}
			if quiet < guardRounds {
				continue
			}
			s.guarding.Store(false)
			if !s.guardOnce() || !s.guarding.CompareAndSwap(false, true) {
				return true
			}
			quiet = 0
		case <-second.C:
			s.watchOnce(s.clock.Add(1))
		case <-s.stop:
			return false
		}
	}
}

// guardOnce takes the turn from those who have kept it since the last time, and tells whether
// anybody keeps his.
func (s *Server) guardOnce() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for c := range s.conns {
		t := &c.turns
		run := t.kept.Load()
		if run != 0 {
			found = true
		}
		if run != 0 && run == t.seen && t.kept.CompareAndSwap(run, 0) {
			c.passTurn()
		}
		t.seen = run
	}
	return found
}
