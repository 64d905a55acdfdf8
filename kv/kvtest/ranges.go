package kvtest

import (
	"fmt"

	"github.com/sluice-storage/sluice/kv"
)

func rangeCases() []Case {
	return []Case{
		on("range/empty", rangeEmpty),
		on("range/bounds", rangeBounds),
		on("range/since-puts", sinceSees("put", kv.Txn{Puts: puts("d/b", "2")})),
		on("range/since-creations", sinceSees("creation", kv.Txn{Puts: puts("d/new", "2")})),
		on("range/since-deletes", sinceSees("delete", kv.Txn{Deletes: deletes("d/b")})),
		on("range/since-adds", sinceSees("add", kv.Txn{Adds: adds("d/n", 1)})),
		on("range/since-neighbours", sinceNeighbours),
		on("range/since-recreation", sinceRecreation),
		on("range/since-window", sinceWindow),
		on("range/since-reopen", sinceReopen),
		on("range/since-future", sinceFuture),
	}
}

func rangeEmpty(e *env) {
	t := kv.Txn{Ranges: within("d/", 0), Puts: puts("mark", "x")}
	e.commit(t)
	e.commit(kv.Txn{Puts: puts("d", "1", "d0", "1", "c/x", "1")}) // all beside d/
	e.commit(t)
	e.commit(kv.Txn{Puts: puts("d/a", "1")})
	e.conflict(t)
	e.commit(kv.Txn{Deletes: deletes("d/a")})
	e.commit(t)
	e.commit(kv.Txn{Adds: adds("d/n", 0)})
	e.conflict(t)
}

func rangeBounds(e *env) {
	before := e.commit(kv.Txn{})
	e.commit(kv.Txn{Puts: puts("b", "1", "other", "1")})
	e.commit(kv.Txn{Deletes: deletes("other")})
	hit := func(start, end string, want bool) {
		e.Helper()
		for _, since := range []kv.Version{0, before} {
			g := kv.RangeCheck{Start: []byte(start), End: []byte(end), Since: since}
			if t := (kv.Txn{Ranges: []kv.RangeCheck{g}}); want {
				e.conflict(t)
			} else {
				e.commit(t)
			}
		}
	}
	hit("a", "b", false)
	hit("a", "b\x00", true)
	hit("b", "c", true)
	hit("b\x00", "c", false)
	hit("b", "", true)
	hit("", "", true)
	hit("", "b", false)
	hit("p", "", false)
}

// sinceSees says that the change must be seen by Since before it and not by Since at it.
func sinceSees(what string, change kv.Txn) func(e *env) {
	return func(e *env) {
		e.commit(kv.Txn{Puts: puts("d/a", "1", "d/b", "1", "e", "1"), Adds: adds("d/n", 1)})
		before := e.version()
		e.commit(kv.Txn{Ranges: within("d/", before), Puts: puts("e", "2")})
		v := e.commit(change)
		t := kv.Txn{Ranges: within("d/", before), Puts: puts("e", "3")}
		if _, err := e.try(t); err == nil {
			e.Fatalf("a %s after version %d went unseen", what, before)
		}
		e.conflict(t)
		t.Ranges = within("d/", v)
		e.commit(t)
		t.Ranges = within("d/", e.version())
		e.commit(t)
	}
}

func sinceNeighbours(e *env) {
	v := e.commit(kv.Txn{Puts: puts("d/a", "1", "d/b", "1", "c", "1", "d0", "1")})
	e.commit(kv.Txn{Puts: puts("d", "2"), Deletes: deletes("d0", "c", "d/")})
	e.conflict(kv.Txn{Ranges: within("d/", v)}) // a delete of an absent key is a change, too
	e.commit(kv.Txn{Ranges: within("d/a", v)})
	e.conflict(kv.Txn{Ranges: within("d0", v)})
	e.conflict(kv.Txn{Ranges: within("c", v)})
	e.conflict(kv.Txn{Ranges: append(within("d/a", v), within("d", v)...)})
}

func sinceRecreation(e *env) {
	v := e.commit(kv.Txn{Puts: puts("d/a", "same")})
	e.commit(kv.Txn{Deletes: deletes("d/a")})
	e.commit(kv.Txn{Puts: puts("d/a", "same")})
	e.conflict(kv.Txn{Ranges: within("d/", v)})
}

// sinceWindow: the latest kv.SinceWindow changes are remembered exactly; of older ones nothing
// may be forgotten silently.
func sinceWindow(e *env) {
	const perTxn = kv.MaxOps
	e.commit(kv.Txn{Puts: puts("gone", "1", "kept", "1")})
	before := e.version()
	after := e.commit(kv.Txn{Deletes: deletes("gone")})
	for i := range kv.SinceWindow/perTxn + 40 {
		if i == kv.SinceWindow/perTxn-1 {
			e.conflict(kv.Txn{Ranges: within("gone", before)})
			e.commit(kv.Txn{Ranges: within("gone", after)})
			e.commit(kv.Txn{Ranges: within("kept", after)})
		}
		var t kv.Txn
		for j := range perTxn {
			t.Puts = append(t.Puts, put(fmt.Sprintf("busy%d", (i+j)%100), "x"))
		}
		e.commit(t)
	}
	e.conflict(kv.Txn{Ranges: within("gone", before)})
}

// sinceReopen: a deletion before a restart is not overlooked after it; the present is known.
func sinceReopen(e *env) {
	e.commit(kv.Txn{Puts: puts("d/a", "1")})
	before := e.version()
	e.commit(kv.Txn{Deletes: deletes("d/a")})
	e.reopen()
	e.conflict(kv.Txn{Ranges: within("d/", before)})
	e.commit(kv.Txn{Ranges: within("d/", e.version())})
}

// sinceFuture: a version that the store has not reached cannot come from one of its snapshots.
func sinceFuture(e *env) {
	v := e.commit(kv.Txn{Puts: puts("d/a", "1")})
	e.conflict(kv.Txn{Ranges: within("d/", v+1)})
}
