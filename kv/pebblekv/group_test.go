package pebblekv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
)

// outcome is what a commit that runs beside the test gave.
type outcome struct {
	r   kv.Result
	err error
}

// assemble has transactions wait, in this order, behind a leader that does not go on before lead is
// called; lead returns what became of them.
func assemble(t *testing.T, s *Store, list ...*kv.Txn) (lead func() []outcome) {
	t.Helper()
	first := takePending(&kv.Txn{})
	if ok, err := s.turn.join(t.Context(), first); !ok || err != nil {
		t.Fatalf("somebody leads: %v", err)
	}
	done := make([]chan outcome, len(list))
	for i, txn := range list {
		done[i] = make(chan outcome, 1)
		go func() {
			r, err := s.Commit(context.Background(), txn)
			done[i] <- outcome{r, err}
		}()
		awaitWaiting(t, s, i+1)
	}
	return func() (all []outcome) {
		s.lead(first)
		first.free()
		for _, c := range done {
			all = append(all, <-c)
		}
		return all
	}
}

func awaitWaiting(t *testing.T, s *Store, n int) {
	t.Helper()
	for {
		s.turn.mu.Lock()
		have := len(s.turn.waiting)
		s.turn.mu.Unlock()
		if have == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func key(k string) []byte { return []byte(k) }

// TestAGroupIsInOrder: members of one group see each other's effects as if each had come alone.
func TestAGroupIsInOrder(t *testing.T) {
	s := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem()})
	defer mustClose(t, s)
	before := mustCommitIn(t, s)
	absent := []kv.Check{{Key: key("a")}}
	put := []kv.Put{{Key: key("a"), Value: key("1")}}
	all := assemble(t, s,
		&kv.Txn{ReqID: kv.ReqID{1}, Answer: 7, Seen: before, Checks: absent, Puts: put,
			Adds: []kv.Add{{Key: key("n"), Delta: 1}}},
		&kv.Txn{Seen: before, Checks: absent, Puts: put},                              // too late
		&kv.Txn{ReqID: kv.ReqID{1}, Answer: 8, Puts: []kv.Put{{Key: key("b")}}},       // the first again
		&kv.Txn{Adds: []kv.Add{{Key: key("n"), Delta: 10}}, Sync: true},               // counts on
		&kv.Txn{Adds: []kv.Add{{Key: key("a"), Delta: 1}}, Puts: put[:0]},             // is no counter
		&kv.Txn{Ranges: []kv.RangeCheck{{Start: key("a"), End: key("b")}}, Puts: put}, // is not empty
		&kv.Txn{Checks: []kv.Check{{Key: key("a"), Exists: true}}, Deletes: [][]byte{key("a")}},
	)()
	wantKinds := []errs.Kind{errs.OK, errs.Conflict, errs.OK, errs.OK, errs.Invalid, errs.Conflict,
		errs.OK}
	for i, o := range all {
		if errs.KindOf(o.err) != wantKinds[i] {
			t.Errorf("transaction %d: %v, want %v", i, o.err, wantKinds[i])
		}
	}
	first := before + 2 // behind the leader's own
	if all[0].r != (kv.Result{Version: first, Answer: 7}) || all[2].r != all[0].r {
		t.Errorf("the first gave %+v, its repetition %+v", all[0].r, all[2].r)
	}
	if all[3].r.Version != first+1 || all[6].r.Version != first+2 {
		t.Errorf("versions %d and %d, want %d and %d", all[3].r.Version, all[6].r.Version, first+1,
			first+2)
	}
	snap := s.Snapshot()
	defer snap.Close()
	n, _, _ := snap.Get(key("n"))
	_, a, _ := snap.Get(key("a"))
	_, b, _ := snap.Get(key("b"))
	if len(n) != kv.CounterBytes || n[7] != 11 || a != 0 || b != 0 || snap.Version() != first+2 {
		t.Errorf("n is %x, a at %d, b at %d, the snapshot at %d", n, a, b, snap.Version())
	}
}

// TestAGroupIsOneRecord: what comes together costs one write of the log and one sync.
func TestAGroupIsOneRecord(t *testing.T) {
	s := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem()})
	defer mustClose(t, s)
	var list []*kv.Txn
	for i := range groupMax - 1 {
		list = append(list, &kv.Txn{Puts: []kv.Put{{Key: []byte{byte(i)}}}, Sync: true})
	}
	lead := assemble(t, s, list...)
	records := s.db.Metrics().WAL.BytesIn
	for i, o := range lead() {
		if o.err != nil {
			t.Fatalf("transaction %d: %v", i, o.err)
		}
	}
	// One record has one "last"; as many as there are members would need more than this.
	perMember := float64(s.db.Metrics().WAL.BytesIn-records) / groupMax
	if limit := float64(1 + 1 + 2 + 1 + versionBytes + 8); perMember > limit {
		t.Errorf("%.1f bytes of log for each member, want at most %.0f: they do not share a record",
			perMember, limit)
	}
}

// TestAWaiterGivesUp: the end of its context takes a transaction out of the queue; it leaves no
// trace, and the others go on.
func TestAWaiterGivesUp(t *testing.T) {
	s := mustOpen(t, Options{Dir: "store", FS: vfs.NewMem()})
	defer mustClose(t, s)
	lead := assemble(t, s, &kv.Txn{Puts: []kv.Put{{Key: key("stays")}}})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, &kv.Txn{Puts: []kv.Put{{Key: key("gone")}}})
		gone <- err
	}()
	awaitWaiting(t, s, 2)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter that was cancelled: %v", err)
	}
	if o := lead()[0]; o.err != nil {
		t.Errorf("the other: %v", o.err)
	}
	snap := s.Snapshot()
	defer snap.Close()
	_, stays, _ := snap.Get(key("stays"))
	if _, v, _ := snap.Get(key("gone")); v != 0 || stays == 0 {
		t.Errorf("gone is at %d, stays at %d", v, stays)
	}
}
