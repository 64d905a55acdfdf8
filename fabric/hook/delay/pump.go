package delay

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// pump moves completions from the queue below into the lanes until that is closed. It is the only
// one who takes from there, so that the order is kept, and it waits without a context, which
// providers do best.
func (q *queue) pump() {
	defer close(q.ended)
	dst := make([]fabric.Completion, min(q.depth, 64))
	for {
		n, err := q.CQ.Wait(context.Background(), dst)
		q.arrive(dst[:n])
		if err != nil || q.reply(dst) {
			return // closed, or nothing will come any more
		}
	}
}

// retire ends the pump of a domain that was closed: everything has completed.
func (q *queue) retire() {
	if q.waker == nil {
		return // it ends with the queue
	}
	q.mu.Lock()
	q.last = true
	q.mu.Unlock()
	q.catchUp()
	<-q.ended
	q.flush(nil)
}

// catchUp waits until the pump has taken everything that was in the queue below. It takes as long
// as the pump needs to be woken.
func (q *queue) catchUp() {
	if q.waker == nil {
		return
	}
	q.mu.Lock()
	q.asked++
	want := q.asked
	q.mu.Unlock()
	q.waker.Wake()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.answered < want && !q.closed && !q.retired {
		q.answer.Wait()
	}
}

// reply is the pump's answer to those who ask it to catch up. It tells whether that was the last.
func (q *queue) reply(dst []fabric.Completion) (last bool) {
	q.mu.Lock()
	asked, silent := q.asked, q.asked == q.answered
	last = q.last
	q.mu.Unlock()
	if silent {
		return false // who asks for the last time asks to catch up then
	}
	for {
		n := q.CQ.Poll(dst)
		q.arrive(dst[:n])
		if n < len(dst) {
			break
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answered, q.retired = asked, last
	q.answer.Broadcast()
	return last
}

// arrive puts completions where they wait.
func (q *queue) arrive(batch []fabric.Completion) {
	if len(batch) == 0 {
		return
	}
	now, last := q.d.now(), int64(0)
	for i := range batch {
		c := &batch[i]
		e, ok := c.EP.(*endpoint)
		if !ok {
			last = max(last, q.put(&q.strays, item{due: now, c: *c}))
			continue
		}
		passed, places := e.passed(now, c)
		it := item{due: max(passed, now+q.draw(c.Op)), places: places, c: *c}
		l := &e.sends
		if c.Op == fabric.OpRecv {
			l = &e.recvs
		}
		due := q.put(l, it)
		if c.Err != nil && c.ErrKind() != errs.Perm {
			e.sendQ.flush(e)
			e.recvQ.flush(e)
			due = now
		}
		last = max(last, due)
		batch[i] = fabric.Completion{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.loud == never {
		q.loud = last
	} else {
		q.next = last // later than any next before
	}
	q.wakeLocked()
}

func (q *queue) put(l *lane, it item) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return it.due
	}
	return q.lanes.add(l, it)
}

// draw tells how long a completion is held back.
func (q *queue) draw(op fabric.Op) int64 {
	s := q.d.spans[op]
	if s.Max <= s.Min {
		return int64(s.Min)
	}
	return int64(s.Min) + q.rng.Int64N(int64(s.Max-s.Min)+1)
}

// flush lets everything go that is held for an endpoint, or for all.
func (q *queue) flush(e *endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e == nil {
		for _, l := range q.lanes {
			l.loose = true // all alike: they stay a heap
		}
	} else {
		if e.sendQ == q {
			q.lanes.loosen(&e.sends)
		}
		if e.recvQ == q {
			q.lanes.loosen(&e.recvs)
		}
	}
	if q.solicited && len(q.lanes) > 0 {
		q.loud = min(q.loud, q.d.now())
	}
	q.wakeLocked()
}
