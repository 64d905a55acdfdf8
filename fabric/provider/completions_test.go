package provider

import (
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// TestReady: a queue for solicited completions hands out what was before them too.
func TestReady(t *testing.T) {
	r := newRig(t, 8)
	var q Completions
	q.Open(&r.Domain, fabric.CQOptions{Depth: 8, SolicitedOnly: true})
	push := func(context uint64, solicited bool, err error) bool {
		return q.Push(&fabric.Completion{Context: context, Err: err}, solicited)
	}
	if push(1, false, nil) || q.Ready() {
		t.Fatal("it was not solicited")
	}
	if !push(2, true, nil) || push(3, false, nil) || !q.Ready() {
		t.Fatal("one was solicited")
	}
	var dst [8]fabric.Completion
	if n := q.Take(dst[:2]); n != 2 || dst[1].Context != 2 || q.Ready() {
		t.Fatalf("took %d, and there is more that is ready: %v", n, q.Ready())
	}
	if !push(4, false, errs.New(errs.IO, "", "", nil)) {
		t.Fatal("a failure ends a wait")
	}
	if n := q.Take(dst[:1]); n != 1 || dst[0].Context != 3 || !q.Ready() {
		t.Fatalf("took %d", n)
	}
	push(5, false, nil)
	q.ReadyAll()
	if n := q.Take(dst[:1]); n != 1 || !q.Ready() {
		t.Fatal("all were to be ripe")
	}
	if n := q.Take(dst[:]); n != 1 || q.Ready() {
		t.Fatalf("took %d", n)
	}
}

func TestShutDrops(t *testing.T) {
	r := newRig(t, 1)
	var q Completions
	q.Open(&r.Domain, fabric.CQOptions{Depth: 1})
	if !q.Push(&fabric.Completion{}, false) || !q.Shut() || q.Shut() {
		t.Fatal("it can be shut once")
	}
	var dst [1]fabric.Completion
	if q.Push(&fabric.Completion{}, false) || q.Ready() || q.Take(dst[:]) != 0 || !q.Closed() {
		t.Fatal("a closed queue holds something")
	}
	wants(t, q.ClosedErr(), errs.Closed)
}

func TestOverflowIsABug(t *testing.T) {
	r := newRig(t, 1)
	r.q.Push(&fabric.Completion{}, false)
	defer func() {
		if recover() == nil {
			t.Fatal("nobody noticed")
		}
	}()
	r.q.Push(&fabric.Completion{}, false)
}
