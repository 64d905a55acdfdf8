package kvtest

import (
	"fmt"

	"github.com/sluice-storage/sluice/kv"
)

func replayCases() []Case {
	return []Case{
		on("replay/applied-once", replayOnce),
		on("replay/before-checks", replayBeforeChecks),
		on("replay/refusals-are-not-recorded", replayRefused),
		on("replay/zero-id", replayZero),
		on("replay/answer", replayAnswer),
		on("replay/answer-zero-id", replayAnswerZero),
		on("replay/reopen", replayReopen),
		on("replay/concurrent", replayConcurrent),
		on("replay/window", replayWindow),
	}
}

func replayOnce(e *env) {
	t := kv.Txn{ReqID: reqID(1, 1), Puts: puts("a", "1"), Adds: adds("n", 1)}
	v := e.commit(t)
	e.commit(kv.Txn{Puts: puts("a", "2")})
	for range 3 {
		if again := e.commit(t); again != v {
			e.Fatalf("repeated request got version %d, first %d", again, v)
		}
	}
	e.wantCount("n", 1)
	if got := e.get("a").value; got != "2" {
		e.Errorf("a repeated request put its value again: %q", got)
	}
	if got := e.version(); got != v+1 {
		e.Errorf("repeated requests took numbers: version %d, want %d", got, v+1)
	}
	t.ReqID = reqID(1, 2)
	e.commit(t)
	e.wantCount("n", 2)
}

func replayBeforeChecks(e *env) {
	t := kv.Txn{ReqID: reqID(1, 1), Puts: puts("a", "1")}
	t.Checks, t.Ranges = at("a", 0), within("a", 0)
	v := e.commit(t)
	if again := e.commit(t); again != v {
		e.Errorf("repeated request got version %d, first %d", again, v)
	}
	e.want("a", "1", v)
}

func replayRefused(e *env) {
	t := kv.Txn{ReqID: reqID(1, 1), Checks: exists("a"), Adds: adds("n", 1)}
	e.conflict(t)
	e.commit(kv.Txn{Puts: puts("a", "1")})
	e.commit(t)
	e.wantCount("n", 1)
}

func replayZero(e *env) {
	t := kv.Txn{Adds: adds("n", 1)}
	first := e.commit(t)
	if again := e.commit(t); again == first {
		e.Errorf("the zero id was recognised")
	}
	e.wantCount("n", 2)
}

// replayAnswer: the answer of the first time comes back, whatever the repeat says, also to one that
// could not commit (which is how a caller asks), and after restarts.
func replayAnswer(e *env) {
	first := make([]kv.Result, 10)
	for i := range first {
		t := kv.Txn{ReqID: reqID(1, i), Answer: uint64(1)<<63 + uint64(i), Adds: adds("n", 1)}
		if i == 0 {
			t.Answer = 0
		}
		if first[i] = e.result(t); first[i].Answer != t.Answer {
			e.Fatalf("request %d gave answer %d, not its own %d", i, first[i].Answer, t.Answer)
		}
	}
	for range 3 {
		for i, want := range first {
			ask := kv.Txn{ReqID: reqID(1, i), Answer: 7, Checks: exists("never")}
			if got := e.result(ask); got != want {
				e.Errorf("request %d, repeated, gave %+v, first %+v", i, got, want)
			}
		}
		e.reopen()
	}
	e.wantCount("n", int64(len(first)))
	e.conflict(kv.Txn{ReqID: reqID(2, 0), Answer: 7, Checks: exists("never")})
	if got := e.result(kv.Txn{ReqID: reqID(2, 0), Answer: 8}); got.Answer != 8 {
		e.Errorf("a refused request has left its answer behind: %+v", got)
	}
}

// replayAnswerZero: without an id the answer is the transaction's own, each time.
func replayAnswerZero(e *env) {
	for answer := range uint64(3) {
		if got := e.result(kv.Txn{Answer: answer}); got.Answer != answer {
			e.Errorf("a transaction without an id gave answer %d, not its own %d", got.Answer, answer)
		}
	}
}

func replayReopen(e *env) {
	var all []kv.Txn
	var versions []kv.Version
	for i := range 10 {
		t := kv.Txn{ReqID: reqID(1, i), Adds: adds("n", 1), Sync: i%3 == 0}
		all, versions = append(all, t), append(versions, e.commit(t))
	}
	for range 2 {
		e.reopen()
		for i, t := range all {
			if v := e.commit(t); v != versions[i] {
				e.Errorf("after a restart request %d got version %d, first %d", i, v, versions[i])
			}
		}
		e.wantCount("n", 10)
	}
	e.commit(kv.Txn{ReqID: reqID(2, 0), Adds: adds("n", 1)})
	e.wantCount("n", 11)
}

func replayConcurrent(e *env) {
	const rounds, writers = 30, 8
	for round := range rounds {
		var versions [writers]kv.Version
		parallel(writers, func(i int) {
			v, err := e.try(kv.Txn{ReqID: reqID(1, round), Adds: adds("n", 1), Sync: i%2 == 0})
			if err != nil {
				e.Errorf("Commit: %v", err)
			}
			versions[i] = v
		})
		for _, v := range versions {
			if v != versions[0] {
				e.Fatalf("one request got the versions %v", versions)
			}
		}
	}
	e.wantCount("n", rounds)
}

// replayWindow fills the window so that the first request is just within it, here and after a
// restart, then goes around once more so that an engine that keeps a ring wraps it.
func replayWindow(e *env) {
	first := kv.Txn{ReqID: reqID(0, 0), Answer: 5, Adds: adds("n", 1)}
	was := e.result(first)
	fill := func(series, n int) {
		for i := range n {
			if i%1000 == 0 { // what has no id must not push others out
				e.commit(kv.Txn{})
			}
			e.commit(kv.Txn{ReqID: reqID(series, i)})
		}
	}
	fill(1, kv.ReplayWindow-1)
	first.Answer = 6
	if again := e.result(first); again != was {
		e.Fatalf("request at the edge of the window gave %+v, first %+v", again, was)
	}
	e.reopen()
	if again := e.result(first); again != was {
		e.Fatalf("the same after a restart gave %+v, first %+v", again, was)
	}
	e.wantCount("n", 1)
	last := kv.Txn{ReqID: reqID(3, 0), Adds: adds("n", 1)}
	fill(2, 100)
	v := e.commit(last)
	e.reopen()
	fill(4, 10)
	for _, t := range []kv.Txn{last, {ReqID: reqID(2, 0)}, {ReqID: reqID(1, kv.ReplayWindow-2)}} {
		if again := e.commit(t); again > v {
			e.Errorf("request %v was applied again as %d", fmt.Sprintf("%x", t.ReqID), again)
		}
	}
	e.wantCount("n", 2)
}
