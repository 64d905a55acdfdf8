package uring

import (
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

// workers make plain calls: a queue, and a fixed number of goroutines that empty it.
type workers struct {
	ring *Ring
	wg   sync.WaitGroup
	some sync.Cond // of mu: there is work, or the end

	mu     sync.Mutex
	queue  []*Op
	ending bool
}

func startWorkers(r *Ring) *workers {
	w := &workers{ring: r}
	w.some.L = &w.mu
	for range r.opt.Workers {
		w.wg.Go(w.run)
	}
	return w
}

// push implements engine.
func (w *workers) push(ops []*Op) {
	w.mu.Lock()
	w.queue = append(w.queue, ops...)
	w.mu.Unlock()
	if len(ops) == 1 {
		w.some.Signal()
	} else {
		w.some.Broadcast()
	}
}

// stop implements engine. A plain call cannot be cancelled: whoever reads from a pipe closes it.
func (w *workers) stop() {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	w.some.Broadcast()
	w.wg.Wait()
}

func (w *workers) run() {
	for {
		op, ending := w.take()
		if op == nil {
			return
		}
		if ending {
			op.finish(w.ring, errs.Closed)
			continue
		}
		op.finish(w.ring, w.ring.carry(op))
	}
}

// take waits for an operation; nil when there will be none any more.
func (w *workers) take() (op *Op, ending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 {
		if w.ending {
			return nil, true
		}
		w.some.Wait()
	}
	op = w.queue[0]
	n := copy(w.queue, w.queue[1:])
	w.queue[n] = nil
	w.queue = w.queue[:n]
	return op, w.ending
}

// carry makes as many plain calls as the operation needs.
func (r *Ring) carry(op *Op) error {
	fd, err := r.fd(op)
	if err != nil {
		return err
	}
	if op.Kind != Sync && op.want == 0 {
		return nil
	}
	for calls := 0; ; calls++ {
		if calls > 0 {
			r.stats.continued.Add(1)
		}
		r.stats.enters.Add(1)
		n := 0
		if op.Kind == Sync {
			err = unix.Fdatasync(fd)
		} else {
			op.io.load(op.Bufs, op.N)
			n, err = plainMove(op, fd)
		}
		more, err := op.progress(n, err)
		if !more {
			return err
		}
	}
}
