package uring

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// thread is the one that talks to the kernel. Life of an operation:
//
//	queued     by Do, under mu, which wakes a sleeping thread through the eventfd
//	submitted  by the thread, in a slot, together with what else is queued
//	completed  by the kernel; the thread continues what was cut short, or finishes it
type thread struct {
	ring *Ring
	k    *kernelRing
	wake int    // an eventfd; a read of it is always submitted, so that one wait serves both
	word uint64 // what that read fills
	mem  [][]byte

	slots  []*Op // submitted operations; the index is the kernel's user data
	free   []uint32
	taken  []*Op // queued operations that the thread has fetched
	inWait atomic.Bool
	ended  chan struct{}

	mu     sync.Mutex
	queue  []*Op
	ending bool
}

// User data of what is not an operation.
const (
	idWake   = 1 << 32
	idCancel = 1<<32 + 1
)

// startThread sets a ring up on a thread of its own: the kernel binds the ring to it. Of the
// kernel's features that a ring can do without, it uses those in optional.
func startThread(r *Ring, optional uint32) (*thread, error) {
	t := &thread{ring: r, ended: make(chan struct{}), wake: -1}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		defer close(t.ended)
		err := t.open(optional)
		ready <- err
		if err == nil {
			t.run()
		}
		t.close()
	}()
	if err := <-ready; err != nil {
		<-t.ended
		return nil, err
	}
	return t, nil
}

func (t *thread) open(optional uint32) (err error) {
	o := &t.ring.opt
	// Room for the wake-up and a cancellation beside Depth operations.
	depth := 2 * o.Depth
	t.k, err = setup(depth, setupSingleIssuer|setupDeferTaskrun|setupCoopTaskrun, optional)
	if errors.Is(err, unix.EINVAL) {
		t.k, err = setup(depth, 0, optional) // before 6.1
	}
	if err != nil {
		return err
	}
	if !t.k.knows(opReadv, opWritev, opFsync, opReadFixed, opWriteFixed, opAsyncCancel, opRead) {
		return unix.ENOSYS
	}
	if err := t.k.registerFiles(o.Files); err != nil {
		return err
	}
	if len(o.Memory) > 0 && t.k.registerMemory(o.Memory) == nil {
		t.mem = o.Memory
		t.ring.stats.registered = true
	}
	if t.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return err
	}
	t.slots = make([]*Op, o.Depth)
	for i := range t.slots {
		t.free = append(t.free, uint32(i))
	}
	return nil
}

func (t *thread) close() {
	if t.k != nil {
		t.k.close()
	}
	if t.wake >= 0 {
		_ = unix.Close(t.wake)
	}
}

// push implements engine.
func (t *thread) push(ops []*Op) {
	t.mu.Lock()
	t.queue = append(t.queue, ops...)
	t.mu.Unlock()
	t.wakeThread()
}

// wakeThread wakes the thread if it sleeps, once.
func (t *thread) wakeThread() {
	if !t.inWait.CompareAndSwap(true, false) {
		return
	}
	one := [8]byte{1}
	for {
		_, err := unix.Write(t.wake, one[:])
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// stop implements engine.
func (t *thread) stop() {
	t.mu.Lock()
	t.ending = true
	t.mu.Unlock()
	t.wakeThread()
	<-t.ended
}

// run is the thread.
func (t *thread) run() {
	t.k.next().fillWake(t.wake, &t.word, idWake)
	cancelled := false
	for {
		ending := t.fetch()
		t.submit()
		if ending {
			if t.inFlight() == 0 && len(t.taken) == 0 {
				return // the read of the eventfd ends with the ring
			}
			if !cancelled {
				cancelled = true
				t.cancelAll()
			}
		}
		t.enter(ending)
		t.reapAll(ending)
	}
}

func (t *thread) inFlight() int { return len(t.slots) - len(t.free) }

// fetch takes what is queued. When the ring is closed the operations are finished at once.
func (t *thread) fetch() (ending bool) {
	t.mu.Lock()
	t.taken = append(t.taken, t.queue...)
	clear(t.queue)
	t.queue = t.queue[:0]
	ending = t.ending
	t.mu.Unlock()
	if ending {
		for i, op := range t.taken {
			t.taken[i] = nil
			op.finish(t.ring, errs.Closed)
		}
		t.taken = t.taken[:0]
	}
	return ending
}

// submit fills entries for as many operations as there are slots.
func (t *thread) submit() {
	n := 0
	for n < len(t.taken) && len(t.free) > 0 {
		op := t.taken[n]
		if _, err := t.ring.fd(op); err != nil {
			op.finish(t.ring, err)
			n++
			continue
		}
		if op.Kind != Sync && op.want == 0 {
			op.finish(t.ring, nil)
			n++
			continue
		}
		if !t.place(op) {
			break
		}
		n++
	}
	rest := copy(t.taken, t.taken[n:])
	clear(t.taken[rest:])
	t.taken = t.taken[:rest]
}

// place puts one operation, or what is left of it, into a slot.
func (t *thread) place(op *Op) bool {
	e := t.k.next()
	if e == nil {
		return false
	}
	id := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.slots[id] = op
	fixed := -1
	if op.Kind != Sync {
		op.io.load(op.Bufs, op.N)
		fixed = fixedIndex(t.mem, op.io.list)
	}
	e.fill(op, fixed, uint64(id))
	return true
}

// cancelAll asks the kernel to give up whatever it can: a disk cannot, a pipe can.
func (t *thread) cancelAll() {
	for id, op := range t.slots {
		if op == nil {
			continue
		}
		e := t.k.next()
		if e == nil {
			t.enter(true)
			if e = t.k.next(); e == nil {
				return
			}
		}
		e.fillCancel(uint64(id), idCancel)
	}
}

// enter submits, and sleeps when nothing else is to be done. inWait is set before the
// queue is checked again, so that no wake-up is lost.
func (t *thread) enter(ending bool) {
	wait := uint32(0)
	if ending {
		wait = 1
	} else {
		t.inWait.Store(true)
		t.mu.Lock()
		idle := len(t.queue) == 0 && !t.ending
		t.mu.Unlock()
		if idle {
			wait = 1
		}
	}
	for {
		t.ring.stats.enters.Add(1)
		var err error
		if wait > 0 && t.inFlight() == 0 {
			err = t.k.enterIdle(t.wake)
		} else {
			err = t.k.enter(wait, 0)
		}
		if err == nil || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBUSY) {
			break // busy: completions must be taken first
		}
		if !errors.Is(err, unix.EINTR) {
			panic("io_uring_enter: " + err.Error()) // a bug
		}
	}
	t.inWait.Store(false)
}

// reapAll takes all completions.
func (t *thread) reapAll(ending bool) {
	for {
		id, res, ok := t.k.reap()
		if !ok {
			return
		}
		switch id {
		case idWake:
			if !ending {
				t.k.next().fillWake(t.wake, &t.word, idWake)
			}
		case idCancel:
		default:
			op := t.slots[id]
			t.slots[id] = nil
			t.free = append(t.free, uint32(id))
			t.complete(op, int(res), ending)
		}
	}
}

// complete finishes an operation or puts the rest of it back into the queue, in front.
func (t *thread) complete(op *Op, res int, ending bool) {
	var err error
	if res < 0 {
		err = unix.Errno(-res)
		if ending && (errors.Is(err, unix.ECANCELED) || errors.Is(err, unix.EINTR)) {
			err = errs.Closed
		}
	}
	more, err := op.progress(max(res, 0), err)
	if !more {
		op.finish(t.ring, err)
		return
	}
	t.ring.stats.continued.Add(1)
	if ending {
		op.finish(t.ring, errs.Closed)
		return
	}
	t.taken = append(t.taken, op)
}

// progress records what one call has done and tells whether another one is needed.
func (op *Op) progress(n int, err error) (more bool, _ error) {
	switch {
	case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		return true, nil
	case err != nil || op.Kind == Sync:
		return false, err
	case n == 0 && op.Kind == Read:
		return false, io.ErrUnexpectedEOF
	case n == 0:
		return false, unix.EIO // the device moved nothing and reported no error
	}
	op.N += n
	return op.N < op.want, nil
}
