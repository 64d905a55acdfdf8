package server

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/msg"
)

// newRecorder makes what takes note of requests. Two operations wait for something to be told: how
// long they take says nothing.
func newRecorder() *activity.Recorder {
	ops := make([]activity.Op, meta.OpEnd)
	for op := range meta.OpEnd {
		if op.Valid() {
			ops[op] = activity.Op{Name: op.String(), Waits: op == meta.OpListen || op == meta.OpAwaitLocks ||
				op == meta.OpAwaitVolume}
		}
	}
	return activity.New(activity.Options{Ops: ops, Phases: []string{"service", "other clients"}})
}

// The phases of a request: it is being served, or waits until other clients have given back what
// they hold, as leases.
const (
	phaseService = iota
	phaseOthers
)

// watch is a request as onlookers see it. It stands between the service and the call, which it
// tells that the service waits: so it knows for how long.
type watch struct {
	seen   *activity.Recorder
	call   *msg.Call
	live   activity.Request
	since  time.Duration // it began to wait; 0: it does not
	waited time.Duration
}

// begin takes note of a request. Its context must not have been passed on.
func (w *watch) begin(ctx context.Context, s *Server, op meta.Op, c *msg.Call) {
	*w = watch{seen: s.seen, call: c, live: s.seen.Begin(int(op), s.seen.Now())}
	if own, ok := ctx.(*wait.Context); ok {
		own.SetParker(w)
	}
}

// end takes note of what has become of it.
func (w *watch) end(t *task, err error) {
	now := w.seen.Now()
	w.goOn(now)
	done := t.done(err)
	done.Phases[phaseOthers] = w.waited
	w.live.End(now, &done)
}

// Waits implements wait.Parker.
func (w *watch) Waits() { w.call.Waits() }

// Park implements wait.Parker.
func (w *watch) Park() {
	w.since = w.seen.Now()
	w.live.Enter(phaseOthers)
	w.call.Park()
}

// Unpark implements wait.Parker.
func (w *watch) Unpark(ctx context.Context) error {
	err := w.call.Unpark(ctx)
	w.goOn(w.seen.Now())
	w.live.Enter(phaseService)
	return err
}

func (w *watch) goOn(now time.Duration) {
	if w.since > 0 {
		w.waited += now - w.since
	}
	w.since = 0
}

// Activity is what the server takes note of: operations, sessions and inodes.
func (s *Server) Activity() *activity.Recorder { return s.seen }

// object is the inode that a request is about, 0 for none.
func object(a *meta.Args) uint64 {
	for _, ino := range []meta.Ino{a.Ino, a.Change.Ino, a.Dir} {
		if ino != 0 {
			return uint64(ino)
		}
	}
	return 0
}

// done is what has become of a request. Bytes are those of small files.
func (t *task) done(err error) activity.Done {
	r := &t.result
	return activity.Done{Failed: err != nil, Name: t.args.Name,
		Read:    int64(len(r.Small.Bytes) + len(r.Handle.Data) + len(r.Found.Data)),
		Written: int64(len(t.args.Change.Data) + len(t.args.Closing.Change.Data))}
}

// Count is what one operation has done so far.
type Count struct {
	Op     string
	Calls  uint64
	Failed uint64
	Time   time.Duration // all calls together
}

// Status lists the operations that were called, in the order of their numbers.
func (s *Server) Status() []Count {
	var all []Count
	for _, u := range s.seen.Ops() {
		all = append(all, Count{Op: u.Op, Calls: u.Count, Failed: u.Failed, Time: u.Sum})
	}
	return all
}
