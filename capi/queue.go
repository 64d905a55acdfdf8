package capi

import (
	"bytes"
	"encoding/binary"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

const (
	opRead = iota + 1
	opWrite
	opReadList
	opWriteList
	opSync
)

// depthMax bounds a queue.
const depthMax = 1 << 16

// queue is a struct sluice_queue. Its eventfd is readable while there are completions: it is set
// with the first of them and reset with the last, both under mu.
type queue struct {
	conn  *conn
	lib   *Lib
	depth int
	fd    int // the eventfd

	mu     sync.Mutex
	cond   *sync.Cond // done has changed, or the queue is closed
	under  int        // requests under way
	done   []completion
	closed bool
}

func (q *queue) owner() *conn { return q.conn }

// CreateQueue is sluice_queue_create.
func (l *Lib) CreateQueue(h Handle, depth uint32) (Handle, error) {
	c, err := l.conn(h)
	if err != nil {
		return 0, err
	}
	defer c.leave()
	if depth == 0 || depth > depthMax {
		return 0, fail(syscall.EINVAL, "a queue of %d requests; there may be 1 to %d", depth, depthMax)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return 0, errs.Wrap("sluice_queue_create", "", err)
	}
	q := &queue{conn: c, lib: l, depth: int(depth), fd: fd}
	q.cond = sync.NewCond(&q.mu)
	qh, err := l.objects.add(kindQueue, q)
	if err != nil {
		q.close()
	}
	return qh, err
}

func (l *Lib) queue(h Handle) (*queue, error) {
	return get[*queue](&l.objects, kindQueue, h)
}

// QueueFD is sluice_queue_fd.
func (l *Lib) QueueFD(h Handle) (int64, error) {
	q, err := l.queue(h)
	if err != nil {
		return 0, err
	}
	return int64(q.fd), nil
}

// Submit is sluice_submit.
func (l *Lib) Submit(h Handle, requests uintptr, count uint32) (int64, error) {
	q, err := l.queue(h)
	if err != nil {
		return 0, err
	}
	var started int64
	for i := range uintptr(count) {
		ok, err := q.submit(requests + i*RequestBytes)
		if err != nil && started == 0 {
			return 0, err
		}
		if err != nil || !ok {
			break
		}
		started++
	}
	return started, nil
}

// submit starts one request; false: the queue is full.
func (q *queue) submit(addr uintptr) (ok bool, err error) {
	if !q.enter() {
		return false, nil
	}
	run, r, err := q.prepare(addr)
	if err != nil {
		q.leave()
		return false, err
	}
	go q.run(run, r)
	return true, nil
}

// enter takes a place in the queue; false: there is none.
func (q *queue) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.under+len(q.done) >= q.depth {
		return false
	}
	q.under++
	return true
}

// leave gives back a place that was not used.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.under--
	q.cond.Broadcast()
}

// prepare reads a request and makes of it what is to be run.
func (q *queue) prepare(addr uintptr) (run func() (int64, error), r request, err error) {
	l := q.lib
	if r, err = readRequest(l.space, addr); err != nil {
		return nil, r, err
	}
	f, err := l.file(r.file)
	if err != nil {
		return nil, r, err
	}
	if f.conn != q.conn {
		f.conn.leave()
		return nil, r, fail(syscall.EINVAL, "the file belongs to another connection than the queue")
	}
	move, err := q.operation(f, &r)
	if err != nil {
		f.conn.leave()
		return nil, r, err
	}
	return func() (int64, error) {
		defer f.conn.leave()
		return move()
	}, r, nil
}

// operation is what a request does.
func (q *queue) operation(f *file, r *request) (func() (int64, error), error) {
	l := q.lib
	switch r.op {
	case opRead, opWrite:
		var u use
		if err := u.add(l, r.buf); err != nil {
			u.end(l)
			return nil, err
		}
		return func() (int64, error) {
			defer u.end(l)
			var p []byte
			if len(u.bufs) > 0 {
				p = u.bufs[0]
			}
			if r.op == opWrite {
				return f.write(p, r.off)
			}
			return ended(f.f.ReadAt(f.conn.life, p, r.off))
		}, nil
	case opReadList, opWriteList:
		t, err := l.readTransfer(r.memory, r.access, r.hints)
		if err != nil {
			return nil, err
		}
		return func() (int64, error) {
			defer t.end(l)
			if r.op == opWriteList {
				return f.writeList(&t)
			}
			return f.readList(&t)
		}, nil
	case opSync:
		return func() (int64, error) { return 0, f.f.Sync(f.conn.life) }, nil
	}
	return nil, fail(syscall.EINVAL, "a request of kind %d", r.op)
}

// run runs a request and notes its completion.
func (q *queue) run(run func() (int64, error), r request) {
	var text [errorBytes]byte
	c := completion{tag: r.tag, op: r.op}
	c.result = Do(text[:], run)
	if c.result < 0 {
		before, _, _ := bytes.Cut(text[:], []byte{0})
		c.text = string(before)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.under--
	if q.done = append(q.done, c); len(q.done) == 1 && !q.closed {
		q.signal()
	}
	q.cond.Broadcast()
}

// signal makes the eventfd readable, reset ends that. Neither can block or fail: the counter is 0
// or 1.
func (q *queue) signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(q.fd, one[:])
}

func (q *queue) reset() {
	var count [8]byte
	_, _ = unix.Read(q.fd, count[:])
}

// Complete is sluice_complete.
func (l *Lib) Complete(h Handle, to uintptr, most, least uint32, timeout int) (int64, error) {
	q, err := l.queue(h)
	if err != nil {
		return 0, err
	}
	if least > most {
		return 0, fail(syscall.EINVAL, "at least %d completions where there is room for %d", least, most)
	}
	if most == 0 {
		return 0, nil
	}
	room, err := out(l.space, "struct sluice_completion", to, int(min(most, depthMax))*CompletionBytes)
	if err != nil {
		return 0, err
	}
	got, err := q.take(int(min(most, depthMax)), int(least), timeout)
	for i := range got {
		got[i].put(room[i*CompletionBytes:])
	}
	return int64(len(got)), err
}

// take waits for at least some completions and takes them.
func (q *queue) take(most, least, timeout int) ([]completion, error) {
	late := false
	if timeout > 0 && least > 0 {
		t := time.AfterFunc(time.Duration(timeout)*time.Millisecond, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			late = true
			q.cond.Broadcast()
		})
		defer t.Stop()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for timeout != 0 && !late && !q.closed && q.under > 0 && len(q.done) < least {
		q.cond.Wait()
	}
	if q.closed {
		return nil, fail(syscall.EBADF, "the queue was destroyed meanwhile")
	}
	n := min(most, len(q.done))
	got := append([]completion(nil), q.done[:n]...)
	if q.done = append(q.done[:0], q.done[n:]...); n > 0 && len(q.done) == 0 {
		q.reset()
	}
	return got, nil
}

// DestroyQueue is sluice_queue_destroy.
func (l *Lib) DestroyQueue(h Handle) error {
	q, err := take[*queue](&l.objects, kindQueue, h)
	if err != nil {
		return err
	}
	q.close()
	return nil
}

// close waits for what is under way, and ends the queue.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
	for q.under > 0 {
		q.cond.Wait()
	}
	q.done = nil
	_ = unix.Close(q.fd) // it is ours
}
