//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// failed ends the endpoint with a device's status, and returns the request's own error, if it has
// one. A flushed request does not: another one has the cause.
func (e *endpoint) failed(status int) error {
	switch status {
	case wcFlushed:
		e.Die(errs.Disconnected, "the connection failed")
		return nil
	case wcAccess:
		e.Die(errs.Disconnected, "the peer refused an access of this side")
		return errs.Newf(errs.Perm, "fabric", e.Name(), "the peer refused the access")
	case wcNoReceive:
		e.Die(errs.Protocol, "the peer had no receive posted")
	case wcLocLen, wcInvalid, wcRemoteOp:
		e.Die(errs.Protocol, "a message was longer than its receive")
	case wcNoAnswer:
		e.Die(errs.Disconnected, "the peer does not answer")
	default:
		e.Die(errs.Disconnected, fmt.Sprintf("the device reports status %d", status))
	}
	return nil
}

// Die marks the end, once, and starts finish. A better reason than "disconnected" may be found
// until everything is completed. It does not wait.
func (e *endpoint) Die(kind errs.Kind, why string) {
	if e.End(kind, why) {
		go e.finish()
	} else if kind == errs.Protocol {
		e.Blame(kind, why)
	}
}

// failedRecv is failed for a receive: a message was too long, for which devices have several
// statuses, or it came with an access that was refused here.
func (e *endpoint) failedRecv(status int) error {
	switch status {
	case wcLocalOp:
		status = wcLocLen
	case wcAccess:
		e.Die(errs.Disconnected, "the peer asked for what it may not have")
		return nil
	}
	return e.failed(status)
}

func (e *endpoint) Close() error {
	e.Die(errs.Closed, "closed by this side")
	e.AwaitEnd()
	return nil
}

// flushTime bounds how long a device may take to report what it has dropped.
const flushTime = 500 * time.Millisecond

// finish runs once, when the endpoint is dead: it stops the queue pair, waits until the device has
// reported everything that it will, destroys the queue pair, so that no memory is touched any more,
// and completes the rest.
func (e *endpoint) finish() {
	defer e.d.Running.Done()
	e.sendMu.Lock() // wait for posts under way; there are none after this
	//lint:ignore SA2001 it waits for the holder
	e.sendMu.Unlock()
	e.gate.wg.Wait()
	e.sendMu.Lock()
	e.recvMu.Lock()
	// The receives' marker is posted before the queue pair stops, since a stopped one may ignore new
	// receives; the sends' marker after that, so that it is not sent.
	lastRecv := e.numberRecvLocked(recvSlot{marker: true})
	marked := postLastRecv(e.qp, e.recvID(lastRecv)) == nil
	failQP(e.qp)
	lastSend := e.numberLocked(&sendSlot{kind: slotFree})
	marked = postNothing(e.qp, e.sendID(lastSend)) == nil && marked
	e.recvMu.Unlock()
	e.sendMu.Unlock()
	_ = disconnectID(e.conn.id) // the peer may have disconnected first
	if marked {
		e.awaitFlush(lastSend+1, lastRecv+1)
	}
	e.d.grants.sweep(e)
	freeQP(e.qp)
	e.d.conns.drop(e.conn)
	e.gate.close()
	e.completeSends()
	e.completeRecvs()
	e.stage.free()
	e.stageIn.free()
	e.dev.refs.leave()
	e.Finished()
}

// awaitFlush takes completions until those of the markers have come.
func (e *endpoint) awaitFlush(send, recv uint32) {
	for start := time.Now(); time.Since(start) < flushTime; {
		e.sendCQ.mu.Lock()
		e.sendCQ.drainLocked()
		through := e.sq.seen == send
		e.sendCQ.mu.Unlock()
		e.recvCQ.mu.Lock()
		e.recvCQ.drainLocked()
		through = through && e.rq.seen == recv
		e.recvCQ.mu.Unlock()
		if through {
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// completeSends completes the requests that no device reported as done, in order.
func (e *endpoint) completeSends() {
	err, q := e.Cause(), e.sendCQ
	e.sendMu.Lock()
	waiting := e.waiting
	e.waiting = nil
	e.sendMu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; e.sq.next != e.sendNext.Load(); e.sq.next++ {
		e.failSendLocked(&e.sends[e.sq.next&uint32(len(e.sends)-1)], err)
	}
	for i := range waiting {
		e.failSendLocked(&waiting[i], err)
	}
	q.forgetLocked(e)
}

func (e *endpoint) failSendLocked(slot *sendSlot, err error) {
	if slot.kind > slotSignaled {
		return
	}
	if slot.err != nil { // it failed for a reason of its own
		err = slot.err
	}
	e.sendCQ.Push(&fabric.Completion{
		Op: slot.op, Context: slot.context, EP: e, Len: slot.length, Err: err,
	}, false)
}

func (e *endpoint) completeRecvs() {
	err, q := e.Cause(), e.recvCQ
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; e.rq.next != e.recvNext.Load(); e.rq.next++ {
		slot := &e.recvs[e.rq.next&uint32(len(e.recvs)-1)]
		if slot.marker {
			continue
		}
		c := fabric.Completion{Op: fabric.OpRecv, Context: slot.context, EP: e, Err: err}
		if slot.err != nil {
			c.Err = slot.err
		}
		q.Push(&c, false)
	}
	q.forgetLocked(e)
}
