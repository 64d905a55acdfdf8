package client

import "context"

// queueWorkers is how many jobs of a kind a queue has under way: as many as a connection has
// credits, so that a queue of the usual depth waits for a server that is away as its calls would.
const queueWorkers = 64

// job is a request, or a message, that has to wait for something.
type job struct {
	a *queued // by the call of the same name
	m *posting
}

// jobs are those of one kind. Guarded by Queue.mu.
type jobs struct {
	list    []job
	workers int
}

// addLocked adds a job, and a goroutine for it where there may be one more.
func (q *Queue) addLocked(jobs *jobs, j job) {
	jobs.list = append(jobs.list, j)
	if jobs.workers < queueWorkers {
		jobs.workers++
		go q.labour(jobs)
	}
}

// labour does jobs until there are none.
func (q *Queue) labour(jobs *jobs) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(jobs.list) > 0 {
		j := jobs.list[0]
		rest := copy(jobs.list, jobs.list[1:])
		jobs.list[rest] = job{}
		jobs.list = jobs.list[:rest]
		q.mu.Unlock()
		if j.a != nil {
			q.call(j.a)
		} else {
			q.complete(j.m)
		}
		q.mu.Lock()
	}
	jobs.workers--
	q.changed.WakeAll() // Close waits for it
}

// call carries a request out by the ordinary way.
func (q *Queue) call(a *queued) {
	var n int64
	err := q.guarded(func() (err error) {
		n, err = a.call(q.ctx)
		return err
	})
	q.end(a, n, err)
}

func (a *queued) call(ctx context.Context) (n int64, err error) {
	f, k := a.File, 0
	switch a.Op {
	case OpRead:
		k, err = f.ReadAt(ctx, a.Buf, a.Off)
	case OpWrite:
		k, err = f.WriteAt(ctx, a.Buf, a.Off)
	case OpWriteDurable:
		k, err = f.WriteAtDurable(ctx, a.Buf, a.Off)
	case OpTransfer:
		return f.Transfer(ctx, a.Transfer)
	case OpSync:
		err = f.Sync(ctx)
	case OpCall:
		return a.Call(ctx)
	}
	return int64(k), err
}

// complete carries a message out that was not sent, or whose server was lost.
func (q *Queue) complete(m *posting) {
	err := q.guarded(func() (err error) {
		a := m.a
		if m.sent == nil {
			return a.File.send(q.ctx, a.g, a.seq, a.dir, m.stripe, m.r)
		}
		_, err = m.sent.Complete(q.ctx)
		return err
	})
	q.finished(m, err)
}
