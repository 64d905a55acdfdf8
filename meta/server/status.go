package server

import (
	"time"

	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/meta"
)

// newRecorder makes what takes note of requests. Two operations wait for something to be told: how
// long they take says nothing.
func newRecorder() *activity.Recorder {
	ops := make([]activity.Op, meta.OpEnd)
	for op := range meta.OpEnd {
		if op.Valid() {
			ops[op] = activity.Op{Name: op.String(), Waits: op == meta.OpListen || op == meta.OpAwaitLocks}
		}
	}
	return activity.New(activity.Options{Ops: ops})
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
