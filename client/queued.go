package client

import (
	"io"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// The life of a request of a Queue:
//
//	begin     is it over at once (misuse, small files), or to be sent (reads, writes), or a job?
//	send      a message to each server, as long as nothing has to be waited for
//	finish    an answer; then more is sent, or
//	conclude  the request is over, or begins anew as a job
//
// The same happens in File.settle and File.all; here nobody waits meanwhile.

// queued is a request of a Queue. The fields below messages are guarded by Queue.mu.
type queued struct {
	Request
	dir      direction
	g        *grant
	seq      uint64 // the truncations that all of its messages know of
	seen     sight  // of a read
	access   seg.Access
	shares   []share
	messages int // in all

	next    int   // the message to be sent next
	under   int   // sent, or given to a worker, and not finished
	sending bool  // by somebody who looks at the rest afterwards
	stalled bool  // it is in the backlog
	failed  error // no more is sent
}

// posting is a message: what one server is asked of a request. Guarded by Queue.mu, but for what
// does not change.
type posting struct {
	a      *queued
	stripe int
	r      *request
	sent   iod.Started // nil: by a worker

	flying   list.Link[posting] // in Queue.flying
	answered bool
	taken    bool // into Queue.ready
}

// way is how a request goes on.
type way uint8

const (
	wayOver  way = iota // it has ended
	waySend             // messages can be sent
	wayShort            // by the ordinary way: something has to be asked before
)

// begin begins a request.
func (q *Queue) begin(a *queued) {
	var w way
	var n int64
	err := q.guarded(func() (err error) {
		w, n, err = a.prepare(q.fs)
		return err
	})
	switch {
	case w == wayOver || err != nil && err != io.EOF:
		q.end(a, n, err)
	case w == wayShort:
		q.mu.Lock()
		defer q.mu.Unlock()
		q.addLocked(&q.calls, job{a: a})
	default:
		q.mu.Lock()
		mine := len(q.backlog) == 0
		if a.sending, a.stalled = mine, !mine; !mine {
			q.backlog = append(q.backlog, a) // from here on it is whoever's resumes
		}
		q.mu.Unlock()
		if mine {
			q.send(a)
		}
	}
}

// prepare finds out how a request goes on.
func (a *queued) prepare(fs *FS) (way, int64, error) {
	switch a.Op {
	case OpRead:
		return a.prepareRead(fs)
	case OpWrite:
		return a.prepareWrite(fs)
	case OpWriteDurable:
		a.dir = writingDurably
		return a.prepareWrite(fs)
	case OpTransfer:
		return a.prepareTransfer(fs)
	}
	return wayShort, 0, nil
}

// show is what readSmall does where the data is at hand.
func (a *queued) show(show func(data []byte)) (way, error) {
	n := a.File.node
	if !n.small.Load() {
		return waySend, nil
	}
	if _, err := a.File.live(); err != nil {
		return wayOver, err
	}
	if n.view(a.File.fs, show) {
		return wayOver, nil
	}
	if _, data, ok := a.File.fs.cache.Data(n.ino); ok && !n.untold() {
		show(data)
		return wayOver, nil
	}
	return wayShort, nil
}

// change is what writeSmall does where the data is at hand.
func (a *queued) change(from, end int64, put func(data []byte)) way {
	n := a.File.node
	switch {
	case !n.small.Load():
		return waySend
	case a.dir != writing || end > meta.SmallMax || a.File.present() != nil ||
		!n.change(a.File.fs, from, end, put):
		return wayShort
	}
	a.File.fs.flushing.put(n)
	return wayOver
}

func (a *queued) prepareRead(fs *FS) (way, int64, error) {
	f, p, off := a.File, a.Buf, a.Off
	if err := f.readable(off); err != nil || len(p) == 0 {
		return wayOver, 0, err
	}
	n := 0
	w, err := a.show(func(data []byte) { n = copyAt(p, data, off) })
	switch {
	case err != nil:
		return wayOver, 0, errs.Wrap("client.Read", "", err)
	case w == wayOver && n < len(p):
		err = io.EOF
	case w == waySend:
		w, err = a.aim(fs, off+int64(len(p)), func(l *layout.Layout) { a.one(l, p, off) })
		return w, 0, errs.Wrap("client.Read", "", err)
	}
	return w, int64(n), err
}

func (a *queued) prepareWrite(fs *FS) (way, int64, error) {
	f, p, off := a.File, a.Buf, a.Off
	if a.Op == OpWrite {
		a.dir = writing
	}
	if err := f.room("client.Write", off, int64(len(p))); err != nil || len(p) == 0 {
		return wayOver, 0, err
	}
	end := off + int64(len(p))
	if !f.roomy(end) {
		return wayShort, 0, nil
	}
	w := a.change(off, end, func(data []byte) { copy(data[off:], p) })
	if w != waySend {
		return w, int64(len(p)), nil
	}
	w, err := a.aim(fs, end, func(l *layout.Layout) { a.one(l, p, off) })
	return w, 0, errs.Wrap("client.Write", "", err)
}

func (a *queued) prepareTransfer(fs *FS) (way, int64, error) {
	f, t := a.File, a.Transfer
	var err error
	span := t.File.Span()
	if !t.Write {
		err = f.readable(0)
	}
	var s *space
	if err == nil {
		s, err = spaceOf(t)
	}
	if err == nil && s != nil && t.Write {
		err = f.room("", span.Off, span.Len)
	}
	switch {
	case err != nil || s == nil:
		return wayOver, 0, errs.Wrap("client.Transfer", "", err)
	case f.node.small.Load() || t.Write && !f.roomy(span.End()):
		return wayShort, 0, nil
	case t.Durable && t.Write:
		a.dir = writingDurably
	case t.Write:
		a.dir = writing
	}
	w, err := a.aim(fs, span.End(), func(l *layout.Layout) {
		a.access, a.shares = t.File, plan(l, s, t.File)
		t.Explain.watch(a.shares)
	})
	return w, 0, errs.Wrap("client.Transfer", "", err)
}

// one plans one piece.
func (a *queued) one(l *layout.Layout, p []byte, off int64) {
	a.access = seg.Contig(off, int64(len(p)))
	if s, r, ok := single(l, p, off); ok {
		a.shares = []share{{s, []request{r}}}
		return
	}
	a.shares = plan(l, flat(p), a.access)
}

// roomy tells whether a file may grow to an end without anybody being asked: see Room.
func (f *File) roomy(end int64) bool {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return end <= max(f.node.size, f.node.growth.to) || !f.node.growth.bounded || f.fixed
}

// aim settles by what right, and after which truncations, messages are sent, and plans them, if all
// of that is known.
func (a *queued) aim(fs *FS, end int64, plan func(l *layout.Layout)) (way, error) {
	f := a.File
	g, err := f.live()
	if err != nil {
		return wayOver, err
	}
	size, seen, recalled := f.node.sight()
	a.seen, a.seq = seen, seen.seq
	known := end <= size && (!recalled && !f.strict || f.fixed)
	if fs.starter == nil || g.handle == 0 || len(g.caps) == 0 || a.dir == reading && !known {
		return wayShort, nil
	}
	f.used.Store(true)
	a.g = g
	plan(&g.layout)
	for i := range a.shares {
		a.messages += len(a.shares[i].requests)
	}
	return waySend, nil
}

// message is the i-th message of a request: the first of each share, then the second of each.
func (a *queued) message(i int) *posting {
	for nth := 0; ; nth++ {
		for s := range a.shares {
			if nth >= len(a.shares[s].requests) {
				continue
			}
			if i == 0 {
				return &posting{a: a, stripe: a.shares[s].stripe, r: &a.shares[s].requests[nth]}
			}
			i--
		}
	}
}

// send sends what can be sent of a request. The caller has set sending.
func (q *Queue) send(a *queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for a.failed == nil && a.next < a.messages && a.under < atOnce*len(a.shares) {
		m := a.message(a.next)
		a.next++
		a.under++
		q.mu.Unlock()
		full, err := q.try(m)
		q.mu.Lock()
		switch {
		case err != nil:
			a.under--
			a.failed = err
		case m.sent != nil:
			q.flying.PushLast(&m.flying, m)
			if m.answered || q.ctx.Err() != nil {
				q.readyLocked(m)
			}
		case full && !q.flying.Empty():
			a.next--
			a.under--
			a.sending, a.stalled = false, true
			q.backlog = append([]*queued{a}, q.backlog...)
			return
		default:
			q.addLocked(&q.calls, job{m: m})
		}
	}
	a.sending = false
	if a.under == 0 {
		q.mu.Unlock()
		q.conclude(a)
		q.mu.Lock()
	}
}

// try sends a message, if nothing has to be waited for.
func (q *Queue) try(m *posting) (full bool, err error) {
	a := m.a
	f, r := a.File, m.r
	t, ready := f.target(a.g, a.seq, m.stripe), func() { q.answered(m) }
	err = q.guarded(func() error {
		switch a.dir {
		case reading:
			m.sent, full = q.fs.starter.TryRead(q.ctx, t, r.object, &r.memory, ready)
		case writing:
			m.sent, full = q.fs.starter.TryWrite(q.ctx, t, r.object, &r.memory, stripe.Volatile, ready)
		case writingDurably:
			m.sent, full = q.fs.starter.TryWrite(q.ctx, t, r.object, &r.memory, stripe.Durable, ready)
		}
		return nil
	})
	return full, err
}

// finish takes the answer to a message.
func (q *Queue) finish(m *posting) {
	again := false
	err := q.guarded(func() (err error) {
		_, again, err = m.sent.Finish(q.ctx)
		return err
	})
	q.mu.Lock()
	q.flying.Remove(&m.flying)
	if again {
		q.addLocked(&q.rests, job{m: m})
		q.mu.Unlock()
	} else {
		q.mu.Unlock()
		q.finished(m, err)
	}
	q.resume()
}

// finished notes what has become of a message, and goes on with its request.
func (q *Queue) finished(m *posting, err error) {
	a := m.a
	if err == nil && a.dir == writing {
		a.File.node.acked(m.stripe)
	}
	q.mu.Lock()
	a.under--
	if err != nil {
		a.failed = worst([]error{a.failed, err})
	}
	mine := !a.sending && !a.stalled
	if mine {
		a.sending = true
	}
	q.mu.Unlock()
	if mine {
		q.send(a)
	}
}

// resume sends what waits in the backlog, as far as possible.
func (q *Queue) resume() {
	for {
		q.mu.Lock()
		if len(q.backlog) == 0 {
			q.mu.Unlock()
			return
		}
		a := q.backlog[0]
		rest := copy(q.backlog, q.backlog[1:])
		q.backlog[rest] = nil
		q.backlog = q.backlog[:rest]
		a.sending, a.stalled = true, false
		q.mu.Unlock()
		q.send(a)
		q.mu.Lock()
		stuck := len(q.backlog) > 0 && q.backlog[0] == a
		q.mu.Unlock()
		if stuck {
			return
		}
	}
}

// conclude is called when all messages have ended.
func (q *Queue) conclude(a *queued) {
	switch err := a.failed; errs.KindOf(err) {
	case errs.OK:
		if a.dir == reading && a.File.node.doubts(a.seen) { // how long it is now must be asked
			q.mu.Lock()
			defer q.mu.Unlock()
			q.addLocked(&q.calls, job{a: a})
			return
		}
		q.end(a, a.succeed(), nil)
	case errs.Stale, errs.Expired, errs.NotFound: // as in settle
		q.mu.Lock()
		defer q.mu.Unlock()
		q.addLocked(&q.calls, job{a: a})
	default:
		op := "client.Transfer"
		if a.Op != OpTransfer && a.dir == reading {
			op = "client.Read"
		} else if a.Op != OpTransfer {
			op = "client.Write"
		}
		q.end(a, 0, errs.Wrap(op, "", err))
	}
}

// succeed takes note of what was done.
func (a *queued) succeed() int64 {
	f := a.File
	from, end := a.access.Span().Off, a.access.Span().End()
	if a.access.Pieces() > 1 {
		from = end // as in File.list
	}
	f.finish(a.dir, from, end, a.seq)
	if a.Transfer != nil {
		a.Transfer.Explain.tell(&a.g.layout, a.shares)
	}
	return a.access.Len()
}
