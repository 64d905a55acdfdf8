package capi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/client"
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
// with the first of them and reset with the last, from when the program has asked for it.
type queue struct {
	conn *conn
	lib  *Lib
	q    *client.Queue
	most int // requests
	fd   int // the eventfd

	mu      sync.Mutex
	some    bool // there are completions
	watched bool // the program knows fd
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
	q := &queue{conn: c, lib: l, most: int(depth), fd: fd}
	q.q = c.fs.NewQueue(c.life, client.QueueOptions{Depth: int(depth), Readable: q.readable,
		Guard: guard})
	qh, err := l.objects.add(kindQueue, q)
	if err != nil {
		q.close()
	}
	return qh, err
}

// guard is Do for goroutines of the client that touch the program's memory.
func guard(run func() error) (err error) {
	debug.SetPanicOnFault(true)
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	return run()
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
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.some && !q.watched {
		q.signal()
	}
	q.watched = true
	return int64(q.fd), nil
}

// readable is told when there are completions, and when there are none any more.
func (q *queue) readable(some bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.some = some
	switch {
	case !q.watched:
	case some:
		q.signal()
	default:
		q.reset()
	}
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
	if q.q.Free() == 0 {
		return false, nil
	}
	x, err := q.prepare(addr)
	if err != nil {
		return false, err
	}
	r := client.Request{Tag: x, Then: x.over}
	x.describe(&r)
	if err = q.q.Submit(&r); err != nil {
		x.over(0, nil)
	}
	switch errs.KindOf(err) {
	case errs.Again: // another thread was faster
		return false, nil
	case errs.Closed:
		return false, badHandle(kindQueue, 0)
	}
	return err == nil, err
}

// submitted is a request of a program, with the memory that it holds.
type submitted struct {
	request
	f    *file
	use  use
	list transfer
}

// prepare reads a request, and looks at its memory.
func (q *queue) prepare(addr uintptr) (*submitted, error) {
	l := q.lib
	r, err := readRequest(l.space, addr)
	if err != nil {
		return nil, err
	}
	f, err := l.file(r.file)
	if err != nil {
		return nil, err
	}
	x := &submitted{request: r, f: f}
	switch {
	case f.conn != q.conn:
		err = fail(syscall.EINVAL, "the file belongs to another connection than the queue")
	case r.op == opRead || r.op == opWrite:
		err = x.use.add(l, r.buf)
	case r.op == opReadList || r.op == opWriteList:
		x.list, err = l.readTransfer(r.memory, r.access, r.hints)
	case r.op != opSync:
		err = fail(syscall.EINVAL, "a request of kind %d", r.op)
	}
	if err != nil {
		x.over(0, nil)
		return nil, err
	}
	return x, nil
}

// over gives back what the request holds.
func (x *submitted) over(int64, error) {
	x.use.end(x.f.conn.lib)
	x.list.end(x.f.conn.lib)
	x.f.conn.leave()
}

// describe makes a request of the client of it.
func (x *submitted) describe(r *client.Request) {
	f := x.f
	r.File, r.Off = f.f, x.off
	if len(x.use.bufs) > 0 {
		r.Buf = x.use.bufs[0]
	}
	switch x.op {
	case opRead:
		r.Op = client.OpRead
	case opWrite:
		r.Op = client.OpWrite
		if f.durable {
			r.Op = client.OpWriteDurable
		}
	case opReadList, opWriteList:
		r.Op, r.Transfer = client.OpTransfer, &x.list.Transfer
		r.Transfer.Write, r.Transfer.Durable = x.op == opWriteList, f.durable
	case opSync:
		r.Op = client.OpSync
	}
	if f.appends && (x.op == opWrite || x.op == opWriteList) { // it finds its place itself
		buf := r.Buf
		*r = client.Request{Tag: r.Tag, Then: r.Then, Op: client.OpCall,
			Call: func(context.Context) (int64, error) {
				if x.op == opWriteList {
					return f.writeList(&x.list)
				}
				return f.write(buf, 0)
			}}
	}
}

// completionOf is what C sees of a request that is over.
func completionOf(c *client.Completion) completion {
	x := c.Tag.(*submitted)
	done := completion{tag: x.tag, op: x.op, result: c.N}
	short := c.N > 0 && x.op == opWrite // what a quota leaves no room for the next call tells
	if c.Err == nil || errors.Is(c.Err, io.EOF) || short {
		return done
	}
	var text [errorBytes]byte
	done.result = Fail(text[:], c.Err)
	before, _, _ := bytes.Cut(text[:], []byte{0})
	done.text = string(before)
	return done
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
	most = min(most, depthMax)
	room, err := out(l.space, "struct sluice_completion", to, int(most)*CompletionBytes)
	if err != nil {
		return 0, err
	}
	var few [8]client.Completion
	got := few[:]
	if int(most) > len(got) {
		got = make([]client.Completion, min(int(most), q.most))
	}
	n, err := q.take(got[:min(int(most), len(got))], int(least), timeout)
	for i := range got[:n] {
		c := completionOf(&got[i])
		c.put(room[i*CompletionBytes:])
	}
	return int64(n), err
}

// take waits for at least some completions and takes them.
func (q *queue) take(to []client.Completion, least, timeout int) (int, error) {
	ctx := context.Background()
	switch {
	case timeout == 0:
		least = 0
	case timeout > 0 && least > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(timeout)*time.Millisecond)
		defer cancel()
	}
	n, err := q.q.Wait(ctx, to, least)
	switch errs.KindOf(err) {
	case errs.TimedOut:
		err = nil
	case errs.Closed:
		err = fail(syscall.EBADF, "the queue was destroyed meanwhile")
	}
	return n, err
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
	q.q.Close()
	_ = unix.Close(q.fd) // it is ours
}
